// Package faults makes the calls of a platform's fake fail. It is what the fakes of HTTP platforms
// share.
package faults

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
)

// An Effect is the way in which a call fails.
type Effect int

// The effects.
const (
	Answer Effect = iota // the API's own error answer; nothing is executed
	Page                 // an HTML error page, as a proxy sends it; nothing is executed
	Drop                 // the connection is closed before anything is executed
	Lose                 // the call is executed, then the connection is closed
	Hang                 // nothing happens until the client or the server gives up
	Cut                  // the connection is closed before the call was read
)

// A Queue has the faults of type F that calls are still to meet, and counts those that were met, by
// chats of type C. The zero value is empty and ready for use.
type Queue[F any, C comparable] struct {
	mu   sync.Mutex
	list []*entry[F]
	hits map[hit[C]]int
}

type entry[F any] struct {
	fault  F
	effect Effect
	times  int
}

type hit[C comparable] struct {
	effect Effect
	chat   C
}

// Inject adds a fault until so many calls have met it, or until remove is called if times is 0.
func (q *Queue[F, C]) Inject(fault F, effect Effect, times int) (remove func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := &entry[F]{fault, effect, times}
	q.list = append(q.list, e)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.list = slices.DeleteFunc(q.list, func(other *entry[F]) bool { return other == e })
	}
}

// Meet returns the fault that was injected first of those that match a call about a chat, if any,
// and counts it.
func (q *Queue[F, C]) Meet(chat C, matches func(F) bool) (fault F, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, e := range q.list {
		if !matches(e.fault) {
			continue
		}
		q.count(e.effect, chat)
		if e.times == 1 {
			q.list = slices.Delete(q.list, i, i+1)
		}
		e.times--
		return e.fault, true
	}
	return fault, false
}

// Count counts an effect on a call about a chat that no fault of the queue has caused.
func (q *Queue[F, C]) Count(effect Effect, chat C) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(effect, chat)
}

func (q *Queue[F, C]) count(effect Effect, chat C) {
	if q.hits == nil {
		q.hits = make(map[hit[C]]int)
	}
	q.hits[hit[C]{effect, chat}]++
}

// Hits returns how many calls about a chat had an effect.
func (q *Queue[F, C]) Hits(effect Effect, chat C) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hits[hit[C]{effect, chat}]
}

// WritePage answers with an HTML error page, as a proxy does; status is 502 by default.
func WritePage(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(cmp.Or(status, http.StatusBadGateway))
	_, _ = w.Write([]byte("<html><h1>Bad Gateway</h1></html>")) // the client may be gone
}

// Abort closes the connection of the call without an answer. It does not return.
func Abort() {
	panic(http.ErrAbortHandler) // net/http's way to do that
}

// Package faults injects faults into the calls of a fake platform. The fakes of HTTP platforms
// share it.
package faults

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
)

// An Effect says how a call fails.
type Effect int

// The effects.
const (
	Answer Effect = iota // the API's own error answer; nothing is executed
	Page                 // an HTML error page, as a proxy sends it; nothing is executed
	Drop                 // the connection is closed before anything is executed
	Lose                 // the call is executed, then the connection is closed without an answer
	Hang                 // no answer until the client or the server gives up
	Cut                  // the connection is closed before the call is read
)

// A Queue holds injected faults of type F, and counts the calls that met one, by chats of type C.
// The zero value is empty and ready for use.
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

// Inject adds a fault for the given number of calls, or until remove is called if times is 0.
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

// Meet returns the oldest matching fault for a call about a chat, if there is one, and counts it.
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

// Count counts an effect on a call about a chat if the effect did not come from the queue.
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

// Hits returns how often calls about a chat had an effect.
func (q *Queue[F, C]) Hits(effect Effect, chat C) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hits[hit[C]{effect, chat}]
}

// WritePage answers with an HTML error page as a proxy does. The default status is 502.
func WritePage(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(cmp.Or(status, http.StatusBadGateway))
	_, _ = w.Write([]byte("<html><h1>Bad Gateway</h1></html>")) // the client may be gone
}

// Abort closes the connection of the call without an answer. It does not return.
func Abort() {
	panic(http.ErrAbortHandler) // how net/http is told to close the connection
}

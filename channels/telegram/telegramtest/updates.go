package telegramtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// A queued is an unconfirmed update.
type queued struct {
	id   int64
	json []byte
	chat *chat // nil for a raw update
	msg  int   // message id in chat
}

// A poll is the waiting getUpdates call. There is at most one.
type poll struct {
	wake  chan struct{} // receives a token when an update is queued
	ended chan string   // receives the reason if another call ended this one
}

func (p *poll) end(reason string) { p.ended <- reason } // buffered, and ended only once

// getUpdates confirms the updates below the offset and returns the following ones, waiting if
// necessary. As with Telegram, a second call ends the one that waits.
func (s *Server) getUpdates(ctx context.Context, c call) (reply, bool) {
	offset, _ := strconv.ParseInt(c.params.Get("offset"), 10, 64) // missing: 0, which confirms nothing
	limit, err := strconv.Atoi(c.params.Get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 100
	}
	seconds, _ := strconv.Atoi(c.params.Get("timeout")) // missing: 0, which does not wait
	timeout := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timeout.Stop()

	p := &poll{wake: make(chan struct{}, 1), ended: make(chan string, 1)}
	if refused, ok := s.beginPoll(p, offset, c); !ok {
		return refused, true
	}
	defer s.endPoll(p)
	for {
		if batch := s.serve(limit); batch != nil || seconds == 0 {
			return reply{result: batchJSON(batch)}, true
		}
		select {
		case <-p.wake:
		case <-timeout.C:
			seconds = 0
		case reason := <-p.ended:
			return refuse(http.StatusConflict, reason), true
		case <-ctx.Done():
			return reply{}, false
		case <-s.closing:
			return reply{}, false
		}
	}
}

func (s *Server) beginPoll(p *poll, offset int64, c call) (refused reply, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused := s.allow(c); refused.code != 0 {
		return refused, false
	}
	if s.hook != nil {
		return refuse(http.StatusConflict, "Conflict: can't use getUpdates method while "+
			"webhook is active; use deleteWebhook to delete the webhook first"), false
	}
	if s.poll != nil {
		s.poll.end("Conflict: terminated by other getUpdates request; " +
			"make sure that only one bot instance is running")
	}
	s.poll = p
	for len(s.queue) > 0 && s.queue[0].id < offset && !s.restarted {
		s.queue = s.queue[1:]
	}
	if len(s.queue) == 0 {
		s.queue = nil // frees the confirmed updates
	}
	s.changed.Notify()
	return reply{}, true
}

func (s *Server) endPoll(p *poll) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll == p {
		s.poll = nil
	}
}

// serve returns the next updates and records when their chats were served.
func (s *Server) serve(limit int) []queued {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	s.restarted = false
	now := time.Now()
	batch := slices.Clone(s.queue[:min(limit, len(s.queue))])
	for _, u := range batch {
		if u.chat != nil {
			u.chat.served = now
		}
	}
	return batch
}

func batchJSON(batch []queued) json.RawMessage {
	b := []byte{'['}
	for i, u := range batch {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, u.json...)
	}
	return append(b, ']')
}

// allow records which kinds of updates the bot wants. s.mu is held.
func (s *Server) allow(c call) reply {
	if !c.params.Has("allowed_updates") {
		return reply{} // unchanged
	}
	var kinds []string
	if err := json.Unmarshal([]byte(c.params.Get("allowed_updates")), &kinds); err != nil {
		return refuse(http.StatusBadRequest, "Bad Request: can't parse allowed updates list")
	}
	s.allowed = nil // an empty list means all
	for _, kind := range kinds {
		if s.allowed == nil {
			s.allowed = make(map[string]bool)
		}
		s.allowed[kind] = true
	}
	return reply{}
}

// enqueue adds an update of a kind with the given JSON, unless the bot does not want that kind.
// s.mu is held.
func (s *Server) enqueue(kind string, object []byte, ch *chat, msg int) {
	if s.allowed != nil && !s.allowed[kind] {
		return
	}
	fields := append(strconv.AppendQuote(nil, kind), ':')
	s.enqueueRaw(append(fields, object...), ch, msg)
}

// enqueueRaw adds an update whose JSON lacks the braces and the id. s.mu is held.
func (s *Server) enqueueRaw(fields []byte, ch *chat, msg int) {
	s.lastUpdate++
	b := strconv.AppendInt([]byte(`{"update_id":`), s.lastUpdate, 10)
	b = append(append(append(b, ','), fields...), '}')
	s.queue = append(s.queue, queued{id: s.lastUpdate, json: b, chat: ch, msg: msg})
	var wake chan struct{}
	switch {
	case s.poll != nil:
		wake = s.poll.wake
	case s.hook != nil:
		wake = s.hook.wake
	}
	select {
	case wake <- struct{}{}:
	default: // awake already, or no poll waits
	}
}

// DeliverRaw queues an unchecked update of any kind, given as the JSON of its fields other than
// update_id: `"poll":{"id":"1"}`.
func (s *Server) DeliverRaw(fields string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueueRaw([]byte(fields), nil, 0)
	s.changed.Notify()
}

// RestartUpdateIDs makes the next update's id last+1, as Telegram may do after a week without
// updates. No update must be pending.
func (s *Server) RestartUpdateIDs(last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUpdate = last
	s.restarted = true
}

// Pending returns the number of unconfirmed updates.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Polling reports whether a getUpdates call is waiting.
func (s *Server) Polling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poll != nil
}

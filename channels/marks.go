package channels

import (
	"context"
	"errors"
	"sync"
	"time"

	"gateway/bus"
)

// marks are what people see on their own messages at one account: that they were read, and that
// an answer is on its way. Nothing depends on them, and they hold nothing up.
type marks struct {
	reactor Reactor // nil if there is none, or no reaction is configured
	reader  Reader  // nil if there is none
	emoji   string
	queue   chan mark

	mu      sync.Mutex
	reacted map[string]*reaction // by conversation and message
	began   time.Time
}

// A mark is one call that is to be made.
type mark struct {
	to    bus.Address
	id    string
	read  bool      // tell that it was read
	react *reaction // else react, or, if nil, take the reaction away
}

// A reaction is on a message while its answer is on its way.
type reaction struct {
	at   time.Time
	made bool // the platform was called
	over bool // the message is answered
}

const (
	// maxMarks bounds the calls of an account that wait. When half of them do, nothing new is marked.
	maxMarks = 1024
	// longestMark is how long a turn may take. Reactions that an earlier process may have set are
	// taken away for that time, whether or not they are there.
	longestMark = 15 * time.Minute
	markTime    = 10 * time.Second // for one call
)

func newMarks(a Account, now time.Time) *marks {
	m := &marks{emoji: a.Reaction, queue: make(chan mark, maxMarks), began: now,
		reacted: make(map[string]*reaction)}
	m.reader, _ = a.Channel.(Reader)
	if a.Reaction != "" {
		m.reactor, _ = a.Channel.(Reactor)
	}
	return m
}

// Admitted shows the senders of messages that these were taken in. It does not wait for that.
func (r *Router) Admitted(messages []bus.InboundMessage) {
	for i := range messages {
		m := &messages[i]
		if a, ok := r.accounts[m.From.Account]; ok && m.Edits == "" {
			a.marks.admitted(m, r.now())
		}
	}
}

func (s *marks) admitted(m *bus.InboundMessage, now time.Time) {
	if len(s.queue) >= maxMarks/2 {
		return
	}
	if s.reader != nil {
		s.put(mark{to: m.From, id: m.ID, read: true})
	}
	if s.reactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reacted) >= maxMarks {
		for key, r := range s.reacted {
			if now.Sub(r.at) > longestMark {
				delete(s.reacted, key)
			}
		}
	}
	if len(s.reacted) < maxMarks {
		r := &reaction{at: now}
		s.reacted[markKey(m.From, m.ID)] = r
		s.put(mark{to: m.From, id: m.ID, react: r})
	}
}

// answered takes the reactions from messages that are answered now.
func (s *marks) answered(to bus.Address, ids []string, now time.Time) {
	if s.reactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		r, ok := s.reacted[markKey(to, id)]
		if ok {
			delete(s.reacted, markKey(to, id))
			r.over = true
		}
		if ok && r.made || !ok && now.Sub(s.began) < longestMark {
			s.put(mark{to: to, id: id})
		}
	}
}

func markKey(to bus.Address, id string) string { return to.String() + "\x00" + id }

// put queues m, unless far too many wait.
func (s *marks) put(m mark) {
	select {
	case s.queue <- m:
	default:
	}
}

// mark makes the calls of an account that wait, one after another, until ctx ends.
func (r *Router) mark(ctx context.Context, a *account) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-a.marks.queue:
			if a.wait(m.to.Chat, r.now()) > 0 || !a.marks.due(m) {
				continue // the platform wants to be left alone, or the answer was faster
			}
			err := a.marks.call(ctx, m)
			if limit, ok := errors.AsType[*RateError](err); ok && limit.After > 0 {
				a.pause(limit, m.to.Chat, r.now())
			}
			if err != nil {
				r.log.DebugContext(ctx, "message not marked",
					"to", m.to.String(), "id", m.id, "err", err)
			}
		}
	}
}

// due reports whether m is still to be made, and notes that it is.
func (s *marks) due(m mark) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.react == nil {
		return true
	}
	m.react.made = !m.react.over
	return m.react.made
}

// call makes the call of m.
func (s *marks) call(ctx context.Context, m mark) error {
	ctx, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	switch {
	case m.read:
		return s.reader.MarkRead(ctx, m.to, []string{m.id})
	case m.react != nil:
		return s.reactor.React(ctx, m.to, m.id, s.emoji)
	}
	return s.reactor.React(ctx, m.to, m.id, "")
}

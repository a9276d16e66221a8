package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// marks manages what people see on their own messages at one account: read receipts, and reactions
// that say that an answer is coming. They are optional. A separate worker sets them, so they delay
// no message even if the platform refuses them.
type marks struct {
	reactor channels.Reactor // nil: no reactions
	reader  channels.Reader  // nil: no read receipts
	emoji   string
	other   func(bus.Address) (bus.Address, bool) // account.other
	wake    bus.Signal                            // when a call may be due

	mu    sync.Mutex
	all   map[string]*mark // by conversation and message
	early []*mark          // marks whose reaction is not due yet, by time
	queue []*mark          // marks that need a call, in order
	limit limitEnds
	began time.Time
}

// A mark records what a message should show and what it shows. marks.mu guards it, except for to
// and id, which never change.
type mark struct {
	to bus.Address
	id string

	at     time.Time // when the mark was created
	read   bool      // the read receipt must still be sent
	wanted bool      // the reaction should be visible
	shown  bool      // the reaction may be visible
	failed bool      // the last call for the reaction failed and will be repeated
	tries  int       // failed attempts at the next call
	next   time.Time // when the next attempt is due
	queued bool
	early  bool // it is in marks.early
}

const (
	// maxMarks is the maximum number of an account's marks that need a call. While half of it is
	// reached, new messages get no mark.
	maxMarks = 1024
	// maxMarked is the maximum number of an account's marks.
	maxMarked = 8 * maxMarks
	// markAfter is how long an answer must take for its message to get a reaction. For a faster
	// answer two calls would show something that nobody notices.
	markAfter = 500 * time.Millisecond
	// longestMark is the maximum duration of a turn. For that time after the start, reactions are
	// also removed from messages that only an earlier process can have marked.
	longestMark = 15 * time.Minute
	// markTime is the time limit of a call. It is short because WhatsApp handles one call of an
	// account at a time, and answers wait behind it.
	markTime = 2 * time.Second
	// maxMarkTries is the maximum number of attempts at a call. With the pauses of backoff they
	// take half a minute.
	maxMarkTries = 6
	// sentBefore is how many of the last sent messages are checked for reactions that an earlier
	// process could not remove.
	sentBefore = 32
)

func newMarks(a Account, now time.Time) *marks {
	m := &marks{emoji: a.Reaction, wake: bus.NewSignal(), began: now,
		all: make(map[string]*mark), limit: make(limitEnds)}
	m.reader, _ = a.Channel.(channels.Reader)
	if a.Reaction != "" {
		m.reactor, _ = a.Channel.(channels.Reactor)
	}
	return m
}

// Admitted marks admitted messages. It does not wait for the platform.
func (r *Router) Admitted(messages []bus.InboundMessage) {
	for i := range messages {
		m := &messages[i]
		if a, ok := r.accounts[m.From.Account]; ok && m.Edits == "" {
			a.marks.admitted(m, r.now())
		}
	}
}

// Dropped removes the reactions from messages that get no answer. It does not wait for the
// platform.
func (r *Router) Dropped(messages []bus.InboundMessage) {
	for i := range messages {
		m := &messages[i]
		if a, ok := r.accounts[m.From.Account]; ok && m.Edits == "" {
			a.marks.answered(m.From, []string{m.ID}, r.now())
		}
	}
}

func (s *marks) admitted(m *bus.InboundMessage, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil && s.reactor == nil || len(s.queue)+len(s.early) >= maxMarks/2 {
		return
	}
	if len(s.all) >= maxMarked { // some were never answered
		maps.DeleteFunc(s.all, func(_ string, k *mark) bool {
			return now.Sub(k.at) > longestMark && !k.queued && !k.early
		})
	}
	if len(s.all) >= maxMarked {
		return
	}
	k := &mark{to: m.From, id: m.ID, at: now, read: s.reader != nil, wanted: s.reactor != nil}
	s.all[markKey(k.to, k.id)] = k
	if k.wanted {
		k.early = true
		s.early = append(s.early, k)
	}
	if k.read {
		s.enqueue(k)
	} else if len(s.early) == 1 {
		s.wake.Ring() // if others are before it, the worker wakes anyway
	}
}

// answered removes the reactions from messages that were answered or will not be. If the group has
// moved, each may be a message to either id.
func (s *marks) answered(to bus.Address, ids []string, now time.Time) {
	if s.reactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	chats := []bus.Address{to}
	if other, moved := s.other(to); moved {
		chats = append(chats, other)
	}
	for _, id := range ids {
		known := slices.IndexFunc(chats, func(a bus.Address) bool { return s.all[markKey(a, id)] != nil })
		switch {
		case known >= 0:
			s.unmark(s.all[markKey(chats[known], id)])
		case now.Sub(s.began) < longestMark:
			for _, a := range chats {
				s.unmark(&mark{to: a, id: id, at: now, shown: true})
			}
		}
	}
	s.dropAnswered()
}

// unmark removes the reaction of k, unless too many marks need a call. s.mu is held.
func (s *marks) unmark(k *mark) {
	k.wanted, k.tries, k.next = false, 0, time.Time{}
	if !k.shown && !k.queued {
		delete(s.all, markKey(k.to, k.id))
	} else if len(s.queue) < 2*maxMarks {
		s.all[markKey(k.to, k.id)] = k
		s.enqueue(k)
	}
}

// dropAnswered removes the oldest of the early marks whose messages were answered. s.mu is held.
func (s *marks) dropAnswered() {
	n := 0
	for n < len(s.early) && !s.early[n].wanted {
		s.early[n].early = false
		n++
	}
	s.early = s.early[n:]
	if len(s.early) == 0 {
		s.early = nil
	}
}

// dropEarly drops the reactions that are not due yet.
func (s *marks) dropEarly() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.early {
		k.wanted = false
	}
	s.dropAnswered()
}

// promote queues the early marks that are due. It returns the time until the next one is due, or 0
// if there is none. s.mu is held.
func (s *marks) promote(now time.Time) time.Duration {
	for {
		s.dropAnswered()
		if len(s.early) == 0 {
			return 0
		}
		k := s.early[0]
		if wait := k.at.Add(markAfter).Sub(now); wait > 0 {
			return wait
		}
		k.early = false
		s.early = s.early[1:]
		s.enqueue(k)
	}
}

func markKey(to bus.Address, id string) string { return to.String() + "\x00" + id }

// enqueue queues k. s.mu is held.
func (s *marks) enqueue(k *mark) {
	if !k.queued {
		k.queued = true
		s.queue = append(s.queue, k)
	}
	s.wake.Ring()
}

// due reports whether k needs a call now.
func (k *mark) due() bool {
	reaction := k.wanted != k.shown || k.wanted && k.failed
	return k.read || reaction && !k.early
}

// A markCall is a call to the platform for a mark.
type markCall struct {
	*mark
	read  bool // send a read receipt; otherwise set a reaction
	emoji string
}

// next returns the next due call. If none is due, it returns nil and the time until one is, or 0 if
// no call is needed. paused returns how long the platform wants no calls for a conversation.
func (s *marks) next(
	now time.Time, paused func(bus.Address) time.Duration,
) (c *markCall, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = s.promote(now)
	for i := 0; i < len(s.queue); {
		k := s.queue[i]
		left := max(k.next.Sub(now), s.limit.wait(k.to.Chat, now), paused(k.to))
		switch {
		case !k.due(): // no call is needed, at least now
			s.queue, k.queued = slices.Delete(s.queue, i, i+1), false
			if !k.wanted && !k.shown {
				delete(s.all, markKey(k.to, k.id))
			}
			continue
		case left > 0:
			if wait == 0 || left < wait {
				wait = left
			}
		case k.read:
			k.read = false
			return &markCall{mark: k, read: true}, 0
		case k.wanted:
			k.shown, k.failed = true, false
			return &markCall{mark: k, emoji: s.emoji}, 0
		default:
			return &markCall{mark: k}, 0
		}
		i++
	}
	return nil, wait
}

// completed records the outcome of c and decides whether to repeat the call.
func (s *marks) completed(c *markCall, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, limited := errors.AsType[*channels.RateError](err)
	switch {
	case limited:
		s.limit.add(limit, c.to.Chat, now)
		c.mark.read = c.mark.read || c.read
		if c.emoji != "" { // an earlier failed call may have set it
			c.shown, c.failed = c.tries > 0, c.tries > 0
		}
	case err != nil && !errors.Is(err, channels.ErrRefused) && c.tries+1 < maxMarkTries:
		c.tries++
		c.next = now.Add(backoff(c.tries))
		c.mark.read = c.mark.read || c.read
		c.failed = c.failed || c.emoji != ""
	case c.read || c.emoji != "" && !errors.Is(err, channels.ErrRefused): // done or given up
		c.tries = 0
	default: // removed, removal given up, or not allowed on this platform
		c.shown = false
		c.wanted = false
	}
}

// markGrace is how long a stopping process waits for calls that are not due yet.
const markGrace = 2 * time.Second

// runMarks makes the calls of an account, one after another. Once ctx is done it adds no reactions,
// and makes only calls that are due within markGrace, until work is done.
func (r *Router) runMarks(ctx, work context.Context, a *account) {
	paused := func(to bus.Address) time.Duration { return a.wait(to, r.now()) }
	if err := a.marks.clearEarlier(work, r, a.Name); err != nil {
		r.log.WarnContext(ctx, "reactions of an earlier process may stay", "account", a.Name, "err", err)
	}
	for work.Err() == nil {
		if ctx.Err() != nil {
			a.marks.dropEarly()
		}
		c, wait := a.marks.next(r.now(), paused)
		if c != nil {
			err := a.marks.call(work, c)
			a.marks.completed(c, err, r.now())
			if err != nil {
				r.log.DebugContext(work, "message could not be marked",
					"to", c.to.String(), "id", c.id, "err", err)
			}
			continue
		}
		ended := ctx.Done()
		if ctx.Err() != nil {
			if wait == 0 || wait > markGrace {
				return
			}
			ended = work.Done()
		}
		timer := time.NewTimer(cmp.Or(wait, time.Hour)) // an hour: there is nothing to do
		select {
		case <-a.marks.wake:
		case <-timer.C:
		case <-ended:
		}
		timer.Stop()
	}
}

// clearEarlier removes the reactions from the messages that an earlier process answered last,
// because it may have ended before it could remove them. account is the name of the account.
func (s *marks) clearEarlier(ctx context.Context, r *Router, account string) error {
	if s.reactor == nil {
		return nil
	}
	list, err := r.outbox.List(r.db.Read(ctx), bus.Sent, sentBefore)
	if err != nil {
		return fmt.Errorf("router: read the outbox: %w", err)
	}
	for _, d := range list {
		if now := r.now(); d.Message.To.Account == account && now.Sub(d.Created) < longestMark {
			s.answered(d.Message.To, d.Message.Answers, now)
		}
	}
	return nil
}

// call makes the call c.
func (s *marks) call(ctx context.Context, c *markCall) error {
	ctx, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	if c.read {
		return s.reader.MarkRead(ctx, c.to, []string{c.id})
	}
	return s.reactor.React(ctx, c.to, c.id, c.emoji)
}

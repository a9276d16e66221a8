package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// marks are what people see on their own messages at one account: that they were read, and that
// an answer is on its way. Nothing depends on them, and they hold nothing up: they have a worker of
// their own, and what the platform refuses of them pauses no message.
type marks struct {
	reactor channels.Reactor // nil if there is none, or no reaction is configured
	reader  channels.Reader  // nil if there is none
	emoji   string
	wake    chan struct{} // has a token when there is something to do

	mu    sync.Mutex
	all   map[string]*mark     // by conversation and message
	queue []*mark              // those with something to do, in the order in which that came up
	until map[string]time.Time // when the platform wants marks again, by chat; "" for all of them
	began time.Time
}

// A mark is what is to be seen on a message, and what is seen there. It is guarded by marks.mu, but
// for to and id, which stay.
type mark struct {
	to bus.Address
	id string

	at     time.Time // when it was made
	read   bool      // the sender is to be told that the message was read
	wanted bool      // the reaction is to be there
	there  bool      // the reaction may be there
	tries  int       // to take it away that failed
	next   time.Time // when the next try is due
	queued bool
}

const (
	// maxMarks bounds the messages of an account whose marks are looked after. When there is something
	// to do for half of that many, nothing new is marked.
	maxMarks = 1024
	// longestMark is how long a turn may take. Reactions that an earlier process may have set are
	// taken away for that time, whether or not they are there.
	longestMark = 15 * time.Minute
	// markTime is the time for one call. WhatsApp makes one call of an account at a time, answers
	// included, so it is short.
	markTime = 2 * time.Second
	// maxMarkTries is how often the removal of a reaction is tried, with the pauses of backoff between
	// the tries: for half a minute.
	maxMarkTries = 6
	// sentBefore is how many of the messages that were sent last may be answers whose reactions an
	// earlier process had no time to take away.
	sentBefore = 32
)

func newMarks(a Account, now time.Time) *marks {
	m := &marks{emoji: a.Reaction, wake: make(chan struct{}, 1), began: now,
		all: make(map[string]*mark), until: make(map[string]time.Time)}
	m.reader, _ = a.Channel.(channels.Reader)
	if a.Reaction != "" {
		m.reactor, _ = a.Channel.(channels.Reactor)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil && s.reactor == nil || len(s.queue) >= maxMarks/2 {
		return
	}
	if len(s.all) >= maxMarks { // answers to some never came
		for key, m := range s.all {
			if now.Sub(m.at) > longestMark && !m.queued {
				delete(s.all, key)
			}
		}
	}
	if len(s.all) >= maxMarks {
		return
	}
	k := &mark{to: m.From, id: m.ID, at: now, read: s.reader != nil, wanted: s.reactor != nil}
	s.all[markKey(k.to, k.id)] = k
	s.put(k)
}

// answered takes the reactions from messages to which no answer is on its way any more.
func (s *marks) answered(to bus.Address, ids []string, now time.Time) {
	if s.reactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		k, ok := s.all[markKey(to, id)]
		if ok {
			k.wanted = false
		} else if now.Sub(s.began) < longestMark {
			k = &mark{to: to, id: id, at: now, there: true}
		}
		if k != nil && len(s.all) < 2*maxMarks {
			s.all[markKey(to, id)] = k
			s.put(k)
		}
	}
}

func markKey(to bus.Address, id string) string { return to.String() + "\x00" + id }

// put queues k. s.mu is held.
func (s *marks) put(k *mark) {
	if !k.queued {
		k.queued = true
		s.queue = append(s.queue, k)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// A markCall is a call of the platform that is to be made for a mark.
type markCall struct {
	*mark
	read  bool // mark as read; else react
	emoji string
}

// next returns the call that is due, or nil and how long there is none; 0 if none is to be made.
// Paused says how long the platform wants nothing at all for a conversation.
func (s *marks) next(
	now time.Time, paused func(bus.Address) time.Duration,
) (c *markCall, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.queue); {
		k := s.queue[i]
		due := k.next
		for _, chat := range []string{"", k.to.Chat} {
			if until := s.until[chat]; until.After(due) {
				due = until
			}
		}
		left := max(due.Sub(now), paused(k.to))
		switch {
		case !k.read && k.wanted == k.there: // the answer was faster, or nothing is left to do
			s.queue, k.queued = slices.Delete(s.queue, i, i+1), false
			if !k.wanted {
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
			k.there = true
			return &markCall{mark: k, emoji: s.emoji}, 0
		default:
			return &markCall{mark: k}, 0
		}
		i++
	}
	return nil, wait
}

// made notes what came of c, and decides whether it is made again.
func (s *marks) made(c *markCall, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, limited := errors.AsType[*channels.RateError](err)
	switch {
	case limited:
		chat := c.to.Chat
		if limit.Account {
			chat = ""
		}
		for chat, until := range s.until {
			if !until.After(now) {
				delete(s.until, chat)
			}
		}
		s.until[chat] = now.Add(max(limit.After, time.Millisecond))
		c.mark.read = c.mark.read || c.read
		if c.emoji != "" {
			c.there = false
		}
	case c.read || err == nil && c.emoji != "":
	case err == nil || errors.Is(err, channels.ErrRefused): // it is not there, or stays for ever
		c.there = false
		c.wanted = false
	case c.emoji == "":
		if c.tries++; c.tries >= maxMarkTries {
			c.there = false
		}
		c.next = now.Add(backoff(c.tries))
	}
}

// markGrace is how long a call that is not due at the end of the process is waited for.
const markGrace = 2 * time.Second

// mark makes the calls of an account, one after another. After the end of ctx it makes those that
// are due soon, until work ends.
func (r *Router) mark(ctx, work context.Context, a *account) {
	paused := func(to bus.Address) time.Duration { return a.wait(to, r.now()) }
	if err := r.markedBefore(work, a); err != nil {
		r.log.WarnContext(ctx, "reactions of an earlier process may stay", "account", a.Name, "err", err)
	}
	for work.Err() == nil {
		c, wait := a.marks.next(r.now(), paused)
		if c != nil {
			err := a.marks.call(work, c)
			a.marks.made(c, err, r.now())
			if err != nil {
				r.log.DebugContext(work, "message not marked",
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

// markedBefore takes the reactions from messages that an earlier process answered last: it may have
// ended before it could do that.
func (r *Router) markedBefore(ctx context.Context, a *account) error {
	if a.marks.reactor == nil {
		return nil
	}
	list, err := r.outbox.List(r.db.Read(ctx), bus.Sent, sentBefore)
	if err != nil {
		return fmt.Errorf("router: read the outbox: %w", err)
	}
	for _, d := range list {
		if now := r.now(); d.Message.To.Account == a.Name && now.Sub(d.Created) < longestMark {
			a.marks.answered(d.Message.To, d.Message.Answers, now)
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

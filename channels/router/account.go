package router

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
	"gateway/channels"
)

// An account is an Account with the clocks that bound what it sends.
type account struct {
	Account
	editor   channels.Editor   // nil if there is none, or previews are off
	drafter  channels.Drafter  // nil if there is none, or previews are off
	remover  channels.Remover  // nil if there is none
	finisher channels.Finisher // nil if there is none
	finder   channels.Finder   // nil if there is none
	typer    channels.Typer    // nil if there is none
	pacer    channels.Pacer    // nil if there is none
	once     bool              // it is a Deduplicator
	marks    *marks
	stats    Stats
	typing   chan struct{}
	typed    *rate.Limiter

	mu      sync.Mutex
	all     clock
	chats   map[string]*clock // by what limited names
	most    int               // how many chats there may be before those that rest are forgotten
	round   int               // how often all was paused
	breaker breaker

	// Guarded by the router's mu:
	loaded int // conversations that have a worker because something waits for them
	open   int // messages on their way
	waits  waits
}

// maxTyping bounds how many typing indicators of an account are being set at once, typingRate
// how many in a second. More are left out: they are worth less than the answers, and needed
// least when there are many of them.
const (
	maxTyping  = 8
	typingRate = 30
)

func newAccount(a Account, now time.Time) *account {
	acc := &account{Account: a, typing: make(chan struct{}, maxTyping),
		typed: rate.NewLimiter(typingRate, typingRate),
		marks: newMarks(a, now),
		chats: make(map[string]*clock), most: maxClocks}
	acc.remover, _ = a.Channel.(channels.Remover)
	acc.finisher, _ = a.Channel.(channels.Finisher)
	acc.finder, _ = a.Channel.(channels.Finder)
	acc.typer, _ = a.Channel.(channels.Typer)
	acc.pacer, _ = a.Channel.(channels.Pacer)
	_, acc.once = a.Channel.(channels.Deduplicator)
	if a.Streaming {
		acc.editor, _ = a.Channel.(channels.Editor)
		acc.drafter, _ = a.Channel.(channels.Drafter)
	}
	return acc
}

// limits returns the bounds for a conversation.
func (a *account) limits(to bus.Address) channels.Limits {
	var l channels.Limits
	if limiter, ok := a.Channel.(channels.Limiter); ok {
		l = limiter.Limits(to)
	}
	l.EditInterval = cmp.Or(a.EditInterval, l.EditInterval)
	if a.Unlimited {
		l.Chat, l.Account = channels.Rate{}, channels.Rate{}
	}
	return l
}

// A clock says when the next message may go.
type clock struct {
	limiter *rate.Limiter // nil until the first message
	until   time.Time     // the platform asked to wait till then
}

// next takes the next place in line and returns its time.
func (c *clock) next(r channels.Rate, now time.Time) time.Time {
	if r == (channels.Rate{}) {
		return now
	}
	if c.limiter == nil {
		c.limiter = rate.NewLimiter(rate.Every(r.Every), max(r.Burst, 1))
	}
	return now.Add(c.limiter.ReserveN(now, 1).DelayFrom(now))
}

// rests reports whether c is as good as new.
func (c *clock) rests(now time.Time) bool {
	return !c.until.After(now) &&
		(c.limiter == nil || c.limiter.TokensAt(now) >= float64(c.limiter.Burst()))
}

// A pass is the right to send one message. It gets in line at the chat's clock and then at
// the account's, and keeps its place until it is used.
type pass struct {
	clocks int       // that it was in line at
	at     time.Time // when its turn comes at the last of them
	round  int       // of the account
}

// reserve returns how long to wait before the next message may go to a conversation. If that
// is 0, p is used up.
func (a *account) reserve(p *pass, to bus.Address, l channels.Limits, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	chat := limited(to, l)
	if wait := a.pausedFor(chat, now); wait > 0 {
		return wait
	}
	if a.pacer != nil {
		if wait := a.pacer.Wait(to); wait > 0 {
			return wait
		}
	}
	if p.round != a.round { // else all who waited would go at once when a pause ends
		*p = pass{round: a.round}
	}
	for {
		if wait := p.at.Sub(now); wait > 0 {
			return wait
		}
		switch p.clocks {
		case 0:
			if l.Chat != (channels.Rate{}) {
				p.at = a.clock(chat, now).next(l.Chat, now)
			}
		case 1:
			p.at = a.all.next(l.Account, now)
		default:
			*p = pass{round: a.round}
			return 0
		}
		p.clocks++
	}
}

// admit returns how long c must wait before it may try something: see [breaker].
func (a *account) admit(c *chat, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breaker.admit(c, now)
}

// leave notes that c tries nothing for now.
func (a *account) leave(c *chat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breaker.leave(c)
}

// broken reports whether the platform can't be reached.
func (a *account) broken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breaker.open
}

// limited names what of a conversation has limits of its own: the chat, or the thread.
func limited(to bus.Address, l channels.Limits) string {
	if l.PerThread && to.Thread != "" {
		return to.Chat + "/" + to.Thread
	}
	return to.Chat
}

// wait returns how long the platform wants nothing for a conversation.
func (a *account) wait(to bus.Address, now time.Time) time.Duration {
	chat := limited(to, a.limits(to))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedFor(chat, now)
}

// pausedFor is wait for those who hold a.mu.
func (a *account) pausedFor(chat string, now time.Time) time.Duration {
	until := a.all.until
	if c, ok := a.chats[chat]; ok && c.until.After(until) {
		until = c.until
	}
	return max(until.Sub(now), 0)
}

// pause does what the platform asks for when it refuses something for a conversation.
func (a *account) pause(e *channels.RateError, to bus.Address, now time.Time) {
	chat := limited(to, a.limits(to))
	a.mu.Lock()
	defer a.mu.Unlock()
	until := now.Add(e.After)
	switch {
	case !e.Account:
		if c := a.clock(chat, now); until.After(c.until) {
			c.until = until
		}
	case until.After(a.all.until):
		a.all = clock{until: until}
		a.round++
	}
}

// maxClocks is how many chats are remembered before those that rest are forgotten.
const maxClocks = 4096

// clock returns the clock of a chat. a.mu is held.
func (a *account) clock(chat string, now time.Time) *clock {
	if c, ok := a.chats[chat]; ok {
		return c
	}
	if len(a.chats) >= a.most {
		for chat, c := range a.chats {
			if c.rests(now) {
				delete(a.chats, chat)
			}
		}
		a.most = max(maxClocks, 2*len(a.chats)) // so that few look at all of them
	}
	c := new(clock)
	a.chats[chat] = c
	return c
}

// showTyping sets the typing indicator, unless that many are being set that it would be late.
func (a *account) showTyping(ctx context.Context, to bus.Address, wg *sync.WaitGroup) {
	if !a.typed.Allow() {
		return
	}
	select {
	case a.typing <- struct{}{}:
	default:
		return
	}
	wg.Go(func() {
		defer func() { <-a.typing }()
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = a.typer.Type(ctx, to) // it is repeated, and nothing depends on it
	})
}

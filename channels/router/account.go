package router

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
	"gateway/channels"
)

// An account is an [Account] with its rate limits and the state that its conversations share.
type account struct {
	Account
	features
	marks  *marks
	moves  Moves // or nil
	stats  Stats
	typing chan struct{}
	typed  *rate.Limiter
	window window // unused if the platform has idempotency keys

	mu      sync.Mutex
	total   bucket
	chats   map[string]*bucket // by limitKey
	pruneAt int                // number of chats at which full buckets are removed
	round   int                // how often the account was paused
	breaker breaker
	typeEnd limitEnds // for typing indicators

	// Guarded by Router.mu:
	loaded    int // conversations with a worker because something waits for them
	pending   int // messages that wait to be sent
	backlog   backlog
	announced map[bus.Address]bool // conversations whose next message isIdle has promised to send
	read      int64                // id of the newest message that a worker got from the table
}

// features are the optional interfaces of an account's channel; nil if it lacks them.
type features struct {
	editor       channels.Editor
	drafter      channels.Drafter // also nil if previews are off
	remover      channels.Remover
	finisher     channels.Finisher
	finder       channels.Finder
	typer        channels.Typer
	pacer        channels.Pacer
	deduplicates bool // it is a [channels.Deduplicator]
}

// maxTyping is the maximum number of concurrent typing indicators of an account, and typingRate
// that per second. Further ones are skipped: answers are more important.
const (
	maxTyping  = 8
	typingRate = 30
)

func newAccount(a Account, now time.Time) *account {
	acc := &account{Account: a, typing: make(chan struct{}, maxTyping),
		typed: rate.NewLimiter(typingRate, typingRate),
		marks: newMarks(a, now), typeEnd: make(limitEnds),
		chats: make(map[string]*bucket), pruneAt: maxBuckets, announced: make(map[bus.Address]bool)}
	acc.marks.other = acc.other
	acc.editor, _ = a.Channel.(channels.Editor)
	acc.remover, _ = a.Channel.(channels.Remover)
	acc.finisher, _ = a.Channel.(channels.Finisher)
	acc.finder, _ = a.Channel.(channels.Finder)
	acc.typer, _ = a.Channel.(channels.Typer)
	acc.pacer, _ = a.Channel.(channels.Pacer)
	_, acc.deduplicates = a.Channel.(channels.Deduplicator)
	if a.Streaming {
		acc.drafter, _ = a.Channel.(channels.Drafter)
	}
	return acc
}

// limits returns the limits for a conversation.
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

// A bucket limits the rate of messages to a chat or of an account.
type bucket struct {
	limiter *rate.Limiter // nil until the first message
	until   time.Time     // time until which the platform has asked to wait
}

// reserve takes the next token and returns the time from which it may be used.
func (c *bucket) reserve(r channels.Rate, now time.Time) time.Time {
	if r == (channels.Rate{}) {
		return now
	}
	if c.limiter == nil {
		c.limiter = rate.NewLimiter(rate.Every(r.Every), max(r.Burst, 1))
	}
	return now.Add(c.limiter.ReserveN(now, 1).DelayFrom(now))
}

// hasToken reports whether reserve would return now.
func (c *bucket) hasToken(now time.Time) bool {
	return c.limiter == nil || c.limiter.TokensAt(now) >= 1
}

// isFull reports whether c limits nothing at present and can be removed.
func (c *bucket) isFull(now time.Time) bool {
	return !c.until.After(now) &&
		(c.limiter == nil || c.limiter.TokensAt(now) >= float64(c.limiter.Burst()))
}

// A reservation is the right to send one message. It takes a token of the chat's bucket, then one
// of the account's, and keeps them until it is used.
type reservation struct {
	buckets int       // number of buckets whose token it has
	at      time.Time // when the newest token may be used
	round   int       // round of the account
}

// reserve returns how long to wait before the next message may be sent to a conversation. If it
// returns 0, p is used up.
func (a *account) reserve(
	p *reservation, to bus.Address, l channels.Limits, now time.Time,
) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	chat := a.limitKey(to, l)
	if wait := a.pausedFor(chat, now); wait > 0 {
		return wait
	}
	if a.pacer != nil {
		if wait := a.pacer.Wait(to); wait > 0 {
			return wait
		}
	}
	if p.round != a.round { // otherwise all would send at once when a pause ends
		*p = reservation{round: a.round}
	}
	for {
		if wait := p.at.Sub(now); wait > 0 {
			return wait
		}
		switch p.buckets {
		case 0:
			if l.Chat != (channels.Rate{}) {
				p.at = a.bucket(chat, now).reserve(l.Chat, now)
			}
		case 1:
			p.at = a.total.reserve(l.Account, now)
		default:
			*p = reservation{round: a.round}
			return 0
		}
		p.buckets++
	}
}

// admit returns how long w must wait before its next attempt: see [breaker].
func (a *account) admit(w *worker, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breaker.admit(w, now)
}

// release records that w is not attempting a delivery any more.
func (a *account) release(w *worker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breaker.release(w)
}

// isUnreachable reports whether the platform is unreachable.
func (a *account) isUnreachable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breaker.open
}

// outages returns how often the platform was unreachable until it answered again.
func (a *account) outages() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breaker.outages
}

// isIdle reports whether the next message to a conversation will probably be sent at once. After it
// has reported true, it reports false until that message is dispatched. If the message must wait
// after all, its sender marks it as waiting.
func (a *account) isIdle(r *Router, to bus.Address) bool {
	if !a.isFree(to, r.now()) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := !a.announced[to] && r.suspects.untried == 0 && r.suspects.trying == nil
	if w, ok := r.workers[to]; ok {
		idle = idle && w.isIdle()
	} else {
		idle = idle && !a.backlog.pending && a.loaded+len(a.announced) < maxLoaded
	}
	if other, ok := a.other(to); ok && idle {
		w := r.workers[other]
		idle = !a.announced[other] && (w == nil && !a.backlog.pending || w != nil && w.isIdle())
	}
	if idle {
		a.announced[to] = true
	}
	return idle
}

// isFree reports whether a message to a conversation could be sent now.
func (a *account) isFree(to bus.Address, now time.Time) bool {
	if a.pacer != nil && a.pacer.Wait(to) > 0 {
		return false
	}
	chat := a.limitKey(to, a.limits(to))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.breaker.open || a.pausedFor(chat, now) > 0 {
		return false
	}
	c, ok := a.chats[chat]
	return a.total.hasToken(now) && (!ok || c.hasToken(now))
}

// limitKey returns the key of the chat or thread whose limits apply to a conversation.
func (a *account) limitKey(to bus.Address, l channels.Limits) string {
	if other, ok := a.other(to); ok { // the limits are those of one chat
		to.Chat = min(to.Chat, other.Chat)
	}
	if l.PerThread && to.Thread != "" {
		return to.Chat + "/" + to.Thread
	}
	return to.Chat
}

// wait returns how long the platform has asked not to send to a conversation.
func (a *account) wait(to bus.Address, now time.Time) time.Duration {
	chat := a.limitKey(to, a.limits(to))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedFor(chat, now)
}

// pausedFor is wait with a.mu held.
func (a *account) pausedFor(chat string, now time.Time) time.Duration {
	until := a.total.until
	if c, ok := a.chats[chat]; ok && c.until.After(until) {
		until = c.until
	}
	return max(until.Sub(now), 0)
}

// pause applies a rate limit from an answer of the platform.
func (a *account) pause(e *channels.RateError, to bus.Address, now time.Time) {
	chat := a.limitKey(to, a.limits(to))
	a.mu.Lock()
	defer a.mu.Unlock()
	until := now.Add(e.After)
	switch {
	case !e.Account:
		if c := a.bucket(chat, now); until.After(c.until) {
			c.until = until
		}
	case until.After(a.total.until):
		a.total = bucket{until: until}
		a.round++
	}
}

// maxBuckets is the number of buckets at which full ones are removed for the first time.
const maxBuckets = 4096

// bucket returns the bucket of a chat. a.mu is held.
func (a *account) bucket(chat string, now time.Time) *bucket {
	if c, ok := a.chats[chat]; ok {
		return c
	}
	if len(a.chats) >= a.pruneAt {
		maps.DeleteFunc(a.chats, func(_ string, c *bucket) bool { return c.isFull(now) })
		a.pruneAt = max(maxBuckets, 2*len(a.chats)) // so that only few calls visit all buckets
	}
	c := new(bucket)
	a.chats[chat] = c
	return c
}

// showTyping shows the typing indicator unless too many are shown already, or the platform allows
// none yet.
func (a *account) showTyping(ctx context.Context, r *Router, to bus.Address) {
	a.mu.Lock()
	wait := a.typeEnd.wait(to.Chat, r.now())
	a.mu.Unlock()
	if wait > 0 || !a.typed.Allow() {
		return
	}
	select {
	case a.typing <- struct{}{}:
	default:
		return
	}
	r.wg.Go(func() {
		defer func() { <-a.typing }()
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := a.typer.Type(ctx, to) // it is repeated, so a failure is harmless
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.typeEnd.add(limit, to.Chat, r.now())
		}
	})
}

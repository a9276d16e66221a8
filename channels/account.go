package channels

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
)

// An account is an Account with the clocks that bound what it sends.
type account struct {
	Account
	editor Editor // nil if there is none, or previews are off
	typer  Typer  // nil if there is none
	typing chan struct{}
	total  *rate.Limiter // nil until the first message

	mu     sync.Mutex
	paused time.Time                // nothing goes before
	chats  map[string]*rate.Limiter // by chat, all its threads together
}

// maxTyping bounds how many typing indicators of an account are being set at once. More are
// left out: they are worth less than the answers.
const maxTyping = 8

func newAccount(a Account) *account {
	acc := &account{Account: a, typing: make(chan struct{}, maxTyping),
		chats: make(map[string]*rate.Limiter)}
	acc.typer, _ = a.Channel.(Typer)
	if a.Streaming {
		acc.editor, _ = a.Channel.(Editor)
	}
	return acc
}

// limits returns the bounds for a conversation.
func (a *account) limits(to bus.Address) Limits {
	var l Limits
	if limiter, ok := a.Channel.(Limiter); ok {
		l = limiter.Limits(to)
	}
	l.EditInterval = cmp.Or(a.EditInterval, l.EditInterval)
	if a.Unlimited {
		l.Chat, l.Account = Rate{}, Rate{}
	}
	return l
}

// reserve returns how long to wait before the next message may go to a conversation. If that
// is 0, the message is counted.
func (a *account) reserve(to bus.Address, l Limits, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := a.paused.Sub(now); wait > 0 {
		return wait
	}
	var taken []*rate.Reservation
	for _, limiter := range []*rate.Limiter{a.limiter(to.Chat, l.Chat), a.all(l.Account)} {
		if limiter == nil {
			continue
		}
		res := limiter.ReserveN(now, 1)
		taken = append(taken, res)
		if wait := res.DelayFrom(now); wait > 0 {
			for _, res := range taken {
				res.CancelAt(now)
			}
			return wait
		}
	}
	return 0
}

// all returns the limiter of the account, nil if it has none. a.mu is held.
func (a *account) all(r Rate) *rate.Limiter {
	if r == (Rate{}) {
		return nil
	}
	if a.total == nil {
		a.total = r.limiter()
	}
	return a.total
}

// maxLimiters is how many chats are remembered before those that rest are forgotten.
const maxLimiters = 4096

// limiter returns the limiter of a chat, nil if it has none. a.mu is held.
func (a *account) limiter(chat string, r Rate) *rate.Limiter {
	if r == (Rate{}) {
		return nil
	}
	if l, ok := a.chats[chat]; ok {
		return l
	}
	if len(a.chats) >= maxLimiters {
		for chat, l := range a.chats {
			if l.Tokens() >= float64(l.Burst()) { // as good as new
				delete(a.chats, chat)
			}
		}
	}
	l := r.limiter()
	a.chats[chat] = l
	return l
}

func (r Rate) limiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(r.Every), max(r.Burst, 1))
}

// pause keeps the whole account from sending for a time.
func (a *account) pause(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until.After(a.paused) {
		a.paused = until
	}
}

// showTyping sets the typing indicator, unless that many are being set that it would be late.
func (a *account) showTyping(ctx context.Context, to bus.Address, wg *sync.WaitGroup) {
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

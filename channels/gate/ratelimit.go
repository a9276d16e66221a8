package gate

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
)

// A pace bounds how many messages each sender may have taken in. It goes by the platform's clock:
// what waited there during an outage comes at once, and was not sent so.
type pace struct {
	mu      sync.Mutex
	senders map[identity]*walker
	most    int // how many senders there may be before those that rest are forgotten
}

type walker struct {
	limiter *rate.Limiter
	told    bool // that messages are dropped, since one was taken
}

// maxPaced is how many senders are remembered before those that rest are forgotten.
const maxPaced = 4096

// allow reports whether m may be taken in at so many messages a minute. If not, tell reports
// whether its sender does not know that yet.
// If it may, undo takes that back, for a message that could not be stored.
func (p *pace) allow(m bus.InboundMessage, perMinute int) (ok, tell bool, undo func()) {
	if perMinute <= 0 || m.Role.AtLeast(bus.Admin) {
		return true, false, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	every := rate.Every(time.Minute / time.Duration(perMinute))
	w := p.walker(identity{m.From.Account, m.Sender.ID}, every, perMinute, m.Time)
	r := w.limiter.ReserveN(m.Time, 1)
	if r.OK() && r.DelayFrom(m.Time) == 0 {
		w.told = false
		return true, false, func() { r.CancelAt(m.Time) }
	}
	r.CancelAt(m.Time)
	tell = !w.told
	w.told = true
	return false, tell, func() {}
}

// knocks is how many requests of a stranger to be let in are looked at in the time that a code has:
// further ones cost no transaction.
const knocks = 3

// knock reports whether the request of a stranger to be let in may be looked at. If it may, undo
// takes that back, for one that could not be stored. It goes by the clock of the gateway, as
// codes do.
func (p *pace) knock(m bus.InboundMessage, now time.Time) (ok bool, undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.walker(identity{m.From.Account, m.Sender.ID}, rate.Every(pairingTerm/knocks), knocks, now)
	r := w.limiter.ReserveN(now, 1)
	if r.OK() && r.DelayFrom(now) == 0 {
		return true, func() { r.CancelAt(now) }
	}
	r.CancelAt(now)
	return false, nil
}

// walker returns what is known of a sender, who may do burst things at once and so many a second.
// p.mu is held.
func (p *pace) walker(id identity, every rate.Limit, burst int, now time.Time) *walker {
	if w, ok := p.senders[id]; ok {
		return w
	}
	if p.senders == nil {
		p.senders, p.most = make(map[identity]*walker), maxPaced
	}
	if len(p.senders) >= p.most {
		for id, w := range p.senders {
			if w.limiter.TokensAt(now) >= float64(w.limiter.Burst()) {
				delete(p.senders, id)
			}
		}
		p.most = max(maxPaced, 2*len(p.senders))
	}
	w := &walker{limiter: rate.NewLimiter(every, burst)}
	p.senders[id] = w
	return w
}

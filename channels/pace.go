package channels

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
func (p *pace) allow(m bus.InboundMessage, perMinute int) (ok, tell bool) {
	if perMinute <= 0 || m.Role.AtLeast(bus.Admin) {
		return true, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.walker(identity{m.From.Account, m.Sender.ID}, perMinute, m.Time)
	if w.limiter.AllowN(m.Time, 1) {
		w.told = false
		return true, false
	}
	tell = !w.told
	w.told = true
	return false, tell
}

// walker returns what is known of a sender. p.mu is held.
func (p *pace) walker(id identity, perMinute int, now time.Time) *walker {
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
	w := &walker{limiter: rate.NewLimiter(rate.Every(time.Minute/time.Duration(perMinute)), perMinute)}
	p.senders[id] = w
	return w
}

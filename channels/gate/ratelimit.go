package gate

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
)

// A rateLimiter limits each sender. For messages it uses the platform's clock: after an outage many
// messages arrive at once that were not written at once.
type rateLimiter struct {
	mu      sync.Mutex
	buckets map[identity]*bucket
	pruneAt int // number of buckets at which full ones are removed
}

// A bucket is the token bucket of one sender.
type bucket struct {
	limiter *rate.Limiter
	latest  time.Time // of the messages
	told    bool      // the sender knows that messages are dropped; reset when one is accepted
}

// maxBuckets is the number of buckets at which full ones are removed for the first time.
const maxBuckets = 4096

// allow reports whether m is within its sender's limit of perMinute messages per minute. If not,
// tell reports whether the sender must still be told. If m or the reply could not be stored, undo
// gives the token back, or makes the next call tell the sender.
func (p *rateLimiter) allow(m bus.InboundMessage, perMinute int) (ok, tell bool, undo func()) {
	if perMinute <= 0 || m.Role.AtLeast(bus.Admin) {
		return true, false, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	every := rate.Every(time.Minute / time.Duration(perMinute))
	b := p.bucket(identity{m.From.Account, m.Sender.ID}, every, perMinute, m.Time)
	ok, undo = b.take(m.Time)
	if tell = !ok && !b.told; tell {
		undo = func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			b.told = false
		}
	}
	b.told = !ok
	return ok, tell, undo
}

// rareTries is how often in pairingTerm a stranger's message may begin a transaction or a query.
const rareTries = 3

// allowRare reports whether a stranger, or somebody in a group, may cause work that is rarely
// needed. If so, undo gives the token back, for work that failed. now is the gateway's time, which
// codes use, too.
func (p *rateLimiter) allowRare(id identity, now time.Time) (ok bool, undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bucket(id, rate.Every(pairingTerm/rareTries), rareTries, now).take(now)
}

// take takes a token. ok reports whether there was one; undo gives it back. A message that is older
// than the one before counts as written with that one: after a step back, the limiter would count
// the time up to the next message a second time.
func (b *bucket) take(now time.Time) (ok bool, undo func()) {
	if now.Before(b.latest) {
		now = b.latest
	}
	b.latest = now
	r := b.limiter.ReserveN(now, 1)
	if r.OK() && r.DelayFrom(now) == 0 {
		return true, func() { r.CancelAt(now) }
	}
	r.CancelAt(now)
	return false, func() {}
}

// bucket returns the bucket of a sender, which holds burst tokens and regains them at the rate
// every. p.mu is held.
func (p *rateLimiter) bucket(id identity, every rate.Limit, burst int, now time.Time) *bucket {
	if w, ok := p.buckets[id]; ok {
		if w.limiter.Burst() != burst { // the configuration has changed since
			w.limiter.SetLimitAt(now, every)
			w.limiter.SetBurstAt(now, burst)
		}
		return w
	}
	if p.buckets == nil {
		p.buckets, p.pruneAt = make(map[identity]*bucket), maxBuckets
	}
	if len(p.buckets) >= p.pruneAt {
		maps.DeleteFunc(p.buckets, func(_ identity, b *bucket) bool {
			return b.limiter.TokensAt(now) >= float64(b.limiter.Burst())
		})
		p.pruneAt = max(maxBuckets, 2*len(p.buckets))
	}
	w := &bucket{limiter: rate.NewLimiter(every, burst)}
	p.buckets[id] = w
	return w
}

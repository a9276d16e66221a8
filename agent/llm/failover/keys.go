package failover

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"gateway/agent/llm"
)

// Keys is one model that can be asked with several keys. It implements [llm.Model].
//
// It stays with a key as long as that works, since providers cache prompts by account. A key that
// is limited, refused or out of money is left alone for a while, and the next one is asked at once.
// Any other failure is not the key's: it is returned, and a [Chain] decides what to do.
type Keys struct {
	name  string
	links []*link       // one per key
	last  atomic.Uint32 // the key that worked last
	log   *slog.Logger
	now   func() time.Time
}

var _ llm.Model = (*Keys)(nil)

// NewKeys returns the model with a name, given as an entry for each key. The names of the entries
// are for the log. It panics if there is none.
func NewKeys(name string, entries []Entry, opts *Options) *Keys {
	c := New(entries, opts)
	return &Keys{name: name, links: c.links, log: c.log, now: c.now}
}

// ofKey reports whether the same call may succeed with another key.
func ofKey(kind llm.Kind) bool {
	switch kind {
	case llm.RateLimited, llm.OutOfQuota, llm.Unauthorized, llm.Forbidden:
		return true
	}
	return false
}

// Efforts returns the efforts that can be asked of the model.
func (k *Keys) Efforts() []llm.Effort { return llm.Efforts(k.links[0].Model) }

// Stream implements [llm.Model].
func (k *Keys) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		t := &try{yield: yield}
		var failure error
		for _, i := range k.order() {
			l := k.links[i]
			if failure != nil && kindOf(failure).Passing() && l.cooling(k.now()) > 0 {
				continue // waiting for that failure to pass is as good
			}
			err := t.run(ctx, l.Model, req)
			switch {
			case t.broken:
				return
			case err == nil:
				l.reset()
				k.last.Store(uint32(i))
				return
			case ctx.Err() != nil || !ofKey(kindOf(err)):
				yield(llm.Event{}, err)
				return
			}
			left := l.failed(kindOf(err), afterOf(err), k.now())
			k.log.WarnContext(ctx, "model's key is left alone", "model", k.name, "key", l.Name,
				"kind", kindOf(err), "after", left.Round(time.Second))
			if failure == nil || sooner(err, failure) {
				failure = err
			}
		}
		yield(llm.Event{}, failure)
	}
}

// sooner reports whether the call can be made again sooner after a than after b.
func sooner(a, b error) bool {
	if p, q := kindOf(a).Passing(), kindOf(b).Passing(); p != q {
		return p
	}
	return afterOf(a) < afterOf(b)
}

// order returns the keys to try: those that are not left alone, beginning with the one that worked
// last, and then the one of the others that is due first.
func (k *Keys) order() []int {
	now := k.now()
	var ready []int
	first := int(k.last.Load())
	soonest, least := -1, time.Duration(0)
	for n := range k.links {
		i := (first + n) % len(k.links)
		left := k.links[i].cooling(now)
		switch {
		case left == 0:
			ready = append(ready, i)
		case soonest < 0 || left < least:
			soonest, least = i, left
		}
	}
	if soonest < 0 {
		return ready
	}
	return append(ready, soonest)
}

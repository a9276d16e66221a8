package failover

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"gateway/agent/llm"
)

// Keys is one model that can be called with several API keys. It implements [llm.Model].
//
// It uses the same key as long as that works, because providers cache prompts per account. If a key
// is rate limited, refused or out of credit, Keys avoids it for a while and tries the next key at
// once. It returns all other errors, because another key would not help; a [Chain] handles them.
type Keys struct {
	name  string
	links []*link       // one for each key
	last  atomic.Uint32 // the key that worked last
	log   *slog.Logger
}

var _ llm.Model = (*Keys)(nil)

// NewKeys returns the model with the given name, which has an entry for each key. The names of the
// entries appear in the log. It panics if there are no entries.
func NewKeys(name string, entries []Entry, opts *Options) *Keys {
	c := New(entries, opts)
	return &Keys{name: name, links: c.links, log: c.log}
}

// ofKey has the errors after which the same call may succeed with another key.
var ofKey = []llm.Kind{llm.RateLimited, llm.OutOfQuota, llm.Unauthorized, llm.Forbidden}

// Efforts returns the efforts that the model supports.
func (k *Keys) Efforts() []llm.Effort { return llm.Efforts(k.links[0].Model) }

// Stream implements [llm.Model].
func (k *Keys) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		t := &try{yield: yield}
		var failure error
		// The last key that worked comes first. Those that are cooling down are left out, except the
		// one whose cool-down ends first; that key comes last.
		first := k.last.Load()
		list, soonest := ready(slices.Concat(k.links[first:], k.links[:first]), time.Now())
		if soonest != nil {
			list = append(list, soonest)
		}
		for _, l := range list {
			if failure != nil && kindOf(failure).Temporary() && l.cooling(time.Now()) > 0 {
				continue // a key that cools down would not help any sooner
			}
			err := t.run(ctx, l.Model, req)
			switch {
			case t.broken:
				return
			case err == nil:
				l.reset()
				k.last.Store(uint32(slices.Index(k.links, l)))
				return
			case ctx.Err() != nil || !slices.Contains(ofKey, kindOf(err)):
				yield(llm.Event{}, err)
				return
			}
			left := l.failed(kindOf(err), afterOf(err), time.Now())
			k.log.WarnContext(ctx, "model's key is left alone", "model", k.name, "key", l.Name,
				"kind", kindOf(err), "after", left.Round(time.Second))
			if failure == nil || sooner(err, failure) {
				failure = err
			}
		}
		yield(llm.Event{}, failure)
	}
}

// sooner reports whether the call may succeed sooner after error a than after error b.
func sooner(a, b error) bool {
	if p, q := kindOf(a).Temporary(), kindOf(b).Temporary(); p != q {
		return p
	}
	return afterOf(a) < afterOf(b)
}

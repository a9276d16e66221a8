package pool

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// Overflow holds the messages for which their sessions had no room. Only the dispatching goroutine
// uses it, except for [Overflow.Counts].
type Overflow struct {
	list []overflowed // messages to drop

	mu     sync.Mutex
	counts map[string]int64 // by account
	all    int64
}

// An overflowed is a message for which its session had no room.
type overflowed struct {
	bus.Received
	tell bool
}

// Add adds a message and returns the number of messages added so far. tell says whether to tell the
// sender.
func (o *Overflow) Add(r bus.Received, tell bool) int64 {
	o.list = append(o.list, overflowed{r, tell})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make(map[string]int64)
	}
	o.counts[r.Message.From.Account]++
	o.all++
	return o.all
}

// Counts returns the number of dropped messages by account.
func (o *Overflow) Counts() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := maps.Clone(o.counts)
	if counts == nil {
		counts = make(map[string]int64)
	}
	return counts
}

// SayFull is the reply to a message for which there is no room.
const SayFull = "I still have %d of your messages to answer, so I could not take this one. " +
	"Please send it again when I have caught up, or use /stop to discard them."

// Drop drops the added messages in one transaction. bound is the maximum number of waiting messages
// in a session, for the reply. Drop returns the messages that get no reply.
func (o *Overflow) Drop(
	ctx context.Context, env *turn.Env, bound int,
) (untold []bus.InboundMessage, err error) {
	if len(o.list) == 0 {
		return nil, nil
	}
	list := o.list
	o.list = nil
	for _, m := range list {
		if !m.tell {
			untold = append(untold, m.Message)
		}
	}
	return untold, env.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		for _, m := range list {
			ok, err := env.Inbox.Drop(tx, m.Seq)
			if err == nil && ok && m.tell {
				err = env.Outbox.Put(tx,
					Reply(m.Message, fmt.Sprintf(SayFull, bound)), env.Now())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Reply returns an answer with the given text to m. In a group it quotes m.
func Reply(m bus.InboundMessage, text string) bus.OutboundMessage {
	return bus.OutboundMessage{To: m.From, ReplyTo: turn.QuoteID(m), Text: text,
		Answers: []string{m.ID}}
}

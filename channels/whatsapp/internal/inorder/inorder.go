// Package inorder keeps each sender's messages in order while one of them is missing.
//
// A message is missing if it can't be decrypted. Its sender's phone sends it again, which takes a
// moment. Until then a [Keeper] holds the sender's later messages.
package inorder

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
)

// A Sender is a person in a chat, by the ids of their messages.
type Sender struct{ Chat, ID string }

// Limits of what a Keeper remembers. A message beyond them is not waited for.
const (
	maxSenders  = 1000 // with a missing message
	maxMessages = 256  // of a sender
	maxDone     = 1000 // messages that have come, or were given up
)

// A Keeper holds messages back while an earlier one of their sender is missing. Its methods are
// safe for concurrent use.
type Keeper struct {
	limit   time.Duration
	publish func(b channels.Batch, late bool) error
	done    *recent.Map[name, bool] // messages that have come, or were given up

	mu    sync.Mutex // also held during publish, so batches keep their order
	waits map[Sender]*wait
}

// A name names a message by its sender and the platform's id. Senders choose the ids.
type name struct {
	sender Sender
	id     string
}

// A wait holds the messages of one sender while at least one of them is missing.
type wait struct {
	sender   Sender
	messages []message // in the order in which they came first
	timer    *time.Timer
}

// A message has the platform's id, and the gateway's unless it is missing or nothing for the agent.
type message struct {
	platform, id string
	missing      bool
}

// New returns a Keeper that stores batches with publish. It waits for the missing messages of a
// sender up to limit, counted from the first one. Then it releases the held ones with late set, on
// a goroutine of its own.
func New(limit time.Duration, publish func(b channels.Batch, late bool) error) *Keeper {
	return &Keeper{limit: limit, publish: publish, done: recent.New[name, bool](maxDone),
		waits: make(map[Sender]*wait)}
}

// Await records that the message with the platform's id is missing.
func (k *Keeper) Await(s Sender, platform string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, done := k.done.Get(name{s, platform}); done {
		return // it has come, or nobody waits any more: this is a further copy of it
	}
	w := k.waits[s]
	switch {
	case w == nil && len(k.waits) >= maxSenders:
		return
	case w == nil:
		w = &wait{sender: s}
		w.timer = time.AfterFunc(k.limit, func() { k.expire(w) })
		k.waits[s] = w
	case w.find(platform) != nil || len(w.messages) >= maxMessages:
		return
	}
	w.messages = append(w.messages, message{platform: platform, missing: true})
}

// Publish stores the message m, which has the platform's id. The message, and those that were held,
// reach the agent once no message of their sender is missing, or at once if urgent is set. After an
// error it may be called again.
func (k *Keeper) Publish(platform string, m bus.InboundMessage, urgent bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := channels.Batch{Messages: []bus.InboundMessage{m}}
	w := k.waits[senderOf(&m)]
	if w == nil {
		return k.publish(b, false)
	}
	if o := w.find(platform); o != nil {
		o.id = m.ID
	} else if len(w.messages) < maxMessages {
		w.messages = append(w.messages, message{platform: platform, id: m.ID})
	}
	b.Hold = true
	return k.came(w, platform, b, urgent)
}

// Skip records that the message with the platform's id has come, and is nothing for the agent.
func (k *Keeper) Skip(s Sender, platform string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waits[s]
	if w == nil || w.find(platform) == nil {
		return nil
	}
	return k.came(w, platform, channels.Batch{}, false)
}

// Waits reports whether a message is missing.
func (k *Keeper) Waits() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.waits) > 0
}

// came stores b, with which the message with the platform's id has come. If no other is missing, or
// end is set, it releases the held ones and ends w. k.mu is held.
func (k *Keeper) came(w *wait, platform string, b channels.Batch, end bool) error {
	end = end || !slices.ContainsFunc(w.messages, func(m message) bool {
		return m.missing && m.platform != platform
	})
	if end {
		b.Release = w.release
	}
	if end || b.Hold {
		if err := k.publish(b, false); err != nil {
			return err
		}
	}
	if m := w.find(platform); m != nil && m.missing {
		m.missing = false
		k.done.Put(name{w.sender, platform}, true)
	}
	if end {
		k.end(w)
	}
	return nil
}

// expire releases the messages of a wait that is over.
func (k *Keeper) expire(w *wait) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waits[w.sender] == w {
		k.end(w)
		_ = k.publish(channels.Batch{Release: w.release}, true) // publish reports its error itself
	}
}

// Stop ends all waits. The held messages stay held.
func (k *Keeper) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.waits {
		k.end(w)
	}
}

// end ends a wait. k.mu is held.
func (k *Keeper) end(w *wait) {
	w.timer.Stop()
	delete(k.waits, w.sender)
	for _, m := range w.messages {
		if m.missing {
			k.done.Put(name{w.sender, m.platform}, true)
		}
	}
}

// find returns the message with the platform's id, or nil.
func (w *wait) find(platform string) *message {
	i := slices.IndexFunc(w.messages, func(m message) bool { return m.platform == platform })
	if i < 0 {
		return nil
	}
	return &w.messages[i]
}

// release returns the held messages of the sender in the order in which they came first. It is the
// function Release of a [channels.Batch].
func (w *wait) release(held []bus.InboundMessage) []bus.InboundMessage {
	own := slices.DeleteFunc(slices.Clone(held), func(m bus.InboundMessage) bool {
		return senderOf(&m) != w.sender
	})
	slices.SortStableFunc(own, func(a, b bus.InboundMessage) int {
		return cmp.Compare(w.place(&a), w.place(&b))
	})
	return own
}

// place returns the position of m among the messages of the sender. Those that are not remembered
// come last.
func (w *wait) place(m *bus.InboundMessage) int {
	i := slices.IndexFunc(w.messages, func(o message) bool { return o.id == m.ID })
	if i < 0 {
		return maxMessages
	}
	return i
}

func senderOf(m *bus.InboundMessage) Sender { return Sender{m.From.Chat, m.Sender.ID} }

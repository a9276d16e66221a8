// Package inorder keeps the order of each sender's messages while one of them is missing.
//
// A message that can't be decrypted is missing: its sender's phone sends it again, which takes a
// moment. A [Keeper] has the sender's later messages held until then.
package inorder

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// A Sender is a person in a chat, by the ids of their messages.
type Sender struct{ Chat, ID string }

// Limits of what a Keeper remembers. A message beyond them is not waited for.
const (
	maxSenders  = 1000 // with a missing message
	maxMessages = 256  // of a sender
)

// A Keeper holds messages back while an earlier one of their sender is missing. Its methods are
// safe for concurrent use.
type Keeper struct {
	limit   time.Duration
	publish func(b channels.Batch, late bool) error

	mu      sync.Mutex // also held during publish, so batches keep their order
	waits   map[Sender]*wait
	missing map[string]*wait // by the platform's id
}

// A wait holds the messages of a sender, of which at least one is missing.
type wait struct {
	sender   Sender
	messages []message // in the order in which they came first
	missing  int       // number of missing messages
	timer    *time.Timer
}

// A message is named by the platform and, unless it is missing, by the gateway.
type message struct{ platform, id string }

// New returns a Keeper that stores batches with publish. It waits for the missing messages of a
// sender up to limit, counted from the first one. Then it releases the held ones with late set, on
// a goroutine of its own.
func New(limit time.Duration, publish func(b channels.Batch, late bool) error) *Keeper {
	return &Keeper{limit: limit, publish: publish,
		waits: make(map[Sender]*wait), missing: make(map[string]*wait)}
}

// Await records that the message with the platform's id is missing.
func (k *Keeper) Await(s Sender, platform string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waits[s]
	switch {
	case k.missing[platform] != nil:
		return // it was sent again, and can't be decrypted again
	case w == nil && len(k.waits) >= maxSenders || w != nil && len(w.messages) >= maxMessages:
		return
	case w == nil:
		w = &wait{sender: s}
		w.timer = time.AfterFunc(k.limit, func() { k.expire(w) })
		k.waits[s] = w
	}
	k.missing[platform] = w
	w.messages = append(w.messages, message{platform: platform})
	w.missing++
}

// Publish stores the message with the platform's id as m, or nothing if m is nil. The message, and
// those that were held for it, reach the agent once no message of the sender is missing. After an
// error it may be called again.
func (k *Keeper) Publish(platform string, m *bus.InboundMessage) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b channels.Batch
	w := k.missing[platform]
	found := w != nil
	if m != nil {
		b.Messages = []bus.InboundMessage{*m}
		if w == nil || w.sender != senderOf(m) {
			w, found = k.waits[senderOf(m)], false
		}
	}
	if w == nil {
		return k.store(b)
	}
	w.add(platform, m)
	missing := w.missing
	if found {
		missing--
	}
	if b.Hold = true; missing == 0 {
		b.Release = w.release
	}
	if err := k.store(b); err != nil {
		return err
	}
	if found {
		delete(k.missing, platform)
	}
	if w.missing = missing; missing == 0 {
		k.end(w)
	}
	return nil
}

// store publishes b, unless there is nothing to publish. k.mu is held.
func (k *Keeper) store(b channels.Batch) error {
	if len(b.Messages) == 0 && b.Release == nil {
		return nil
	}
	return k.publish(b, false)
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
		if k.missing[m.platform] == w {
			delete(k.missing, m.platform)
		}
	}
}

// add records that a message has come, in its place if it was missing.
func (w *wait) add(platform string, m *bus.InboundMessage) {
	if m == nil {
		return
	}
	i := slices.IndexFunc(w.messages, func(o message) bool { return o.platform == platform })
	switch {
	case i >= 0:
		w.messages[i].id = m.ID
	case len(w.messages) < maxMessages:
		w.messages = append(w.messages, message{platform, m.ID})
	}
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

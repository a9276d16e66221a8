package channeltest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"gateway/bus"
	"gateway/channels"
)

// An Inbox is a [channels.Intake] in memory. The zero value is empty and ready for use.
type Inbox struct {
	// OnPublish, if not nil, is called before a batch is stored, unless the batch has no message and
	// only releases held ones. If it returns an error, Publish returns that error and stores nothing.
	// It must not be changed while Run runs.
	OnPublish func() error
	// Admit, if not nil, reports whether a message is admitted. It must not be changed while Run runs.
	Admit func(bus.InboundMessage) bool
	// Open, if not nil, is what Flushed returns. A test closes it to end sending.
	Open chan struct{}

	// Sturdy makes Recover survive panics, as the gateway does.
	Sturdy bool

	mu       sync.Mutex
	messages []bus.InboundMessage
	held     []bus.InboundMessage
	seen     map[[2]string]bool // by chat and message id
	cursors  map[string]string  // by key
	states   []string
	ids      []string // passed to Identify
}

// Identify implements [channels.Publisher].
func (in *Inbox) Identify(_ context.Context, id string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ids = append(in.ids, id)
	return nil
}

// Recover implements [channels.Publisher]. It does not recover a panic unless Sturdy is set.
func (in *Inbox) Recover(_ context.Context, f func()) (ok bool) {
	if in.Sturdy {
		defer func() { ok = recover() == nil }()
	}
	f()
	return true
}

// Identified returns the ids that were passed to Identify.
func (in *Inbox) Identified() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.ids)
}

// Cursors implements [channels.Publisher].
func (in *Inbox) Cursors(context.Context) (map[string]string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.cursors), nil
}

// Report implements [channels.Intake].
func (in *Inbox) Report(_ channels.State, text string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.states = append(in.states, text)
}

// Flushed implements [channels.Intake]. Unless Open is set, nothing is sent after Run's context is
// done.
func (in *Inbox) Flushed() <-chan struct{} {
	if in.Open != nil {
		return in.Open
	}
	return flushed
}

// flushed is a closed channel.
var flushed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// States returns the texts of all reports, oldest first.
func (in *Inbox) States() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.states)
}

// Publish implements [channels.Publisher].
func (in *Inbox) Publish(ctx context.Context, b channels.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if in.OnPublish != nil && (b.Release == nil || len(b.Messages) > 0) {
		if err := in.OnPublish(); err != nil {
			return err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.seen == nil {
		in.seen = make(map[[2]string]bool)
		in.cursors = make(map[string]string)
	}
	admitted := 0
	for _, m := range b.Messages {
		if in.Admit != nil && !in.Admit(m) {
			continue
		}
		admitted++
		key := [2]string{m.From.Chat, m.ID}
		if !in.seen[key] {
			in.seen[key] = true
			if b.Hold {
				in.held = append(in.held, m)
			} else {
				in.messages = append(in.messages, m)
			}
		}
	}
	if b.Release != nil {
		released := b.Release(slices.Clone(in.held))
		in.messages = append(in.messages, released...)
		in.held = slices.DeleteFunc(in.held, func(m bus.InboundMessage) bool {
			return slices.ContainsFunc(released, func(r bus.InboundMessage) bool {
				return r.From == m.From && r.ID == m.ID
			})
		})
	}
	switch {
	case b.Forget:
		if b.Cursor == "" || b.Cursor == in.cursors[b.CursorKey] {
			delete(in.cursors, b.CursorKey)
		}
	case b.Cursor != "" && (admitted > 0 || b.Keep):
		in.cursors[b.CursorKey] = b.Cursor
	}
	return nil
}

// Messages returns the published messages, oldest first, each once.
func (in *Inbox) Messages() []bus.InboundMessage {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.messages)
}

// wait waits until n messages are published.
func (in *Inbox) wait(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the messages are published", func() bool { return len(in.Messages()) >= n })
}

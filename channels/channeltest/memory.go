package channeltest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest/notifier"
)

var (
	_ channels.Channel = (*Memory)(nil)
	_ channels.Editor  = (*Full)(nil)
	_ channels.Remover = (*Full)(nil)
	_ channels.Typer   = (*Full)(nil)
	_ channels.Limiter = (*Full)(nil)
)

// A Memory is a channel without a platform and without optional interfaces. The zero value is ready
// for use.
type Memory struct {
	mu       sync.Mutex
	batches  [][]bus.InboundMessage
	acked    int // number of published batches
	sent     []Sent
	failures []failure
	blocked  chan struct{} // closed to release; nil if calls don't block
	typed    int
	limits   channels.Limits
	changed  notifier.Notifier // notified at each change
}

// A Sent is a message that a Memory has accepted, in its current state.
type Sent struct {
	ID      string
	Part    bus.Part // Text is the newest text
	Edits   int
	Deleted bool
}

// A failure is the result of one call of Send, Edit or Remove.
type failure struct {
	err  error
	lost bool // the call takes effect all the same
}

// Fail makes the next n calls of Send, Edit and Remove return err without effect.
func (m *Memory) Fail(n int, err error) { m.fail(n, failure{err: err}) }

// Lose makes the next n calls of Send, Edit and Remove take effect but report
// [channels.ErrUncertain].
func (m *Memory) Lose(n int) { m.fail(n, failure{channels.ErrUncertain, true}) }

func (m *Memory) fail(n int, f failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append(m.failures, slices.Repeat([]failure{f}, n)...)
}

// Block makes Send, Edit and Remove wait until release is called.
func (m *Memory) Block() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	blocked := make(chan struct{})
	m.blocked = blocked
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(blocked)
		if m.blocked == blocked {
			m.blocked = nil
		}
	})
}

// Deliver passes messages to Run, which publishes them as one batch.
func (m *Memory) Deliver(messages ...bus.InboundMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, messages)
	m.changed.Notify()
}

// Pending returns the number of delivered messages that were not published.
func (m *Memory) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, b := range m.batches[m.acked:] {
		n += len(b)
	}
	return n
}

// Sent returns the sent messages, oldest first, including deleted ones.
func (m *Memory) Sent() []Sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sent)
}

// Delete deletes a sent message.
func (m *Memory) Delete(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.find(id); s != nil {
		s.Deleted = true
	}
}

// Wait waits until cond returns true, and returns nil, or ctx's error if ctx is done first. It
// calls cond immediately and after each change.
func (m *Memory) Wait(ctx context.Context, cond func() bool) error {
	return m.changed.Wait(ctx, cond)
}

// Run implements [channels.Channel]. Its cursor is the number of published batches.
func (m *Memory) Run(ctx context.Context, in channels.Intake) error {
	cursors, err := in.Cursors(ctx)
	if err != nil {
		return err
	}
	in.Report(channels.Connected, "connected")
	next, _ := strconv.Atoi(cursors[""]) // "" means from the beginning
	for {
		var batch []bus.InboundMessage
		err := m.changed.Wait(ctx, func() (ok bool) {
			batch, ok = m.batch(next)
			return ok
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		next++
		b := channels.Batch{Messages: batch, Cursor: strconv.Itoa(next)}
		if err := in.Publish(ctx, b); err != nil {
			return fmt.Errorf("channeltest: publish: %w", err)
		}
		m.acknowledge(next)
	}
}

func (m *Memory) batch(i int) ([]bus.InboundMessage, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i >= len(m.batches) {
		return nil, false
	}
	return m.batches[i], true
}

func (m *Memory) acknowledge(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked = max(m.acked, n)
	m.changed.Notify()
}

// Send implements [channels.Channel]. Ids count from 1.
func (m *Memory) Send(ctx context.Context, part bus.Part) (string, error) {
	f, err := m.enter(ctx)
	if err != nil {
		return "", err
	}
	if f.err != nil && !f.lost {
		return "", f.err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := strconv.Itoa(len(m.sent) + 1)
	m.sent = append(m.sent, Sent{ID: id, Part: part})
	m.changed.Notify()
	if f.lost {
		return "", f.err
	}
	return id, nil
}

// enter waits while calls are blocked, and returns the result that the call must report.
func (m *Memory) enter(ctx context.Context) (failure, error) {
	m.mu.Lock()
	blocked := m.blocked
	m.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return failure{}, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) == 0 {
		return failure{}, ctx.Err()
	}
	f := m.failures[0]
	m.failures = m.failures[1:]
	return f, nil
}

// find returns the message with the given id unless it was deleted. m.mu is held.
func (m *Memory) find(id string) *Sent {
	for i := range m.sent {
		if m.sent[i].ID == id && !m.sent[i].Deleted {
			return &m.sent[i]
		}
	}
	return nil
}

// A Full is a [Memory] that is also an Editor, a Remover, a Typer and a Limiter.
type Full struct{ Memory }

// Edit implements [channels.Editor].
func (f *Full) Edit(ctx context.Context, to bus.Address, id, text string) error {
	fail, err := f.enter(ctx)
	if err != nil {
		return err
	}
	if fail.err != nil && !fail.lost {
		return fail.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.find(id)
	if s == nil || s.Part.To != to {
		return fmt.Errorf("channeltest: edit %s in %s: %w", id, to, channels.ErrRefused)
	}
	if s.Part.Text != text {
		s.Part.Text = text
		s.Edits++
		f.changed.Notify()
	}
	return fail.err
}

// Remove implements [channels.Remover].
func (f *Full) Remove(ctx context.Context, to bus.Address, id string) error {
	fail, err := f.enter(ctx)
	if err != nil {
		return err
	}
	if fail.err != nil && !fail.lost {
		return fail.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.find(id)
	if s == nil || s.Part.To != to {
		return fmt.Errorf("channeltest: remove %s in %s: %w", id, to, channels.ErrRefused)
	}
	s.Deleted = true
	f.changed.Notify()
	return fail.err
}

// Type implements [channels.Typer].
func (f *Full) Type(ctx context.Context, _ bus.Address) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.typed++
	f.changed.Notify()
	return ctx.Err()
}

// Typed returns how often Type was called.
func (f *Full) Typed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.typed
}

// SetLimits sets the result of Limits. The default is 4096 characters, one edit per second and no
// rate.
func (f *Full) SetLimits(l channels.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = l
}

// Limits implements [channels.Limiter].
func (f *Full) Limits(bus.Address) channels.Limits {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limits.Measure == nil {
		return channels.Limits{
			Text: 4096, Measure: utf8.RuneCountInString, EditInterval: time.Second,
		}
	}
	return f.limits
}

// Package channeltest has the conformance suite that every channel must pass, and a channel in
// memory for tests of other packages.
//
// [Run] checks an adapter against the contract of [channels.Channel], with a [Fixture]: the adapter
// and the fake platform behind it. [Memory] and [Full] are channels without a platform that can
// fail, block and limit. [Inbox] is a [channels.Intake] in memory.
package channeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/channels"
)

// A Fixture is an adapter and the fake platform to which it is connected.
type Fixture struct {
	Channel  channels.Channel
	Platform Platform
	Chat     bus.Address   // a direct conversation that the platform knows
	Secret   string        // must not appear in errors or logs; or ""
	Log      func() string // everything that the adapter has logged, at any level

	Group   string      // the group that Leave leaves; "" if the channel is not a Leaver
	InGroup func() bool // reports whether the account is a member of Group

	// NoAck says that the platform has no acknowledgements: after a gap the adapter reads again
	// from its cursor. Pending is not called then.
	NoAck bool
	// Ours matches goroutines of the fake platform, which may outlive Run.
	Ours []goleak.Option
}

// A Platform is the fake behind an adapter. Its methods are safe for concurrent use.
type Platform interface {
	Deliver(text string)           // a person writes to the chat
	Pending() int                  // delivered messages that the adapter has not acknowledged
	Texts() []string               // our messages in the chat as people see them, oldest first
	Delete(id string)              // a person deletes one of our messages
	RateLimit(after time.Duration) // the platform refuses the next send for that long
	Refuse()                       // the platform refuses each send permanently
	Hang()                         // current and later calls get no answer
	SetOutage(on bool)             // whether calls fail as if the platform were down
}

// patience is the time limit of each wait of the suite. Only failing tests reach it.
const patience = 3 * time.Minute

// prompt is the time limit for shutting down. It is shorter than the time-outs of the platforms'
// calls, and longer than the pauses of a busy machine.
const prompt = 25 * time.Second

// Leaked is like [goleak.Find] for a busy machine: it gives goroutines time to end.
func Leaked(opts ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(opts...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Run runs the suite. It calls fixture for each test. The fixture registers its clean-up with
// t.Cleanup.
func Run(t *testing.T, fixture func(t *testing.T) Fixture) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"receives in order", testOrder},
		{"acknowledges what is stored", testAcknowledge},
		{"keeps what is not stored", testRedeliver},
		{"sends concurrently", testConcurrent},
		{"reports rate limits", testRateLimit},
		{"reports refusals", testRefusal},
		{"survives an outage", testOutage},
		{"edits", testEdit},
		{"removes", testRemove},
		{"leaves", testLeave},
		{"types", testType},
		{"takes its longest text", testLongest},
		{"sends until it is flushed", testFlush},
		{"ends promptly", testCancel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fixture(t)
			tt.test(t, f)
			if f.Secret != "" && f.Log != nil && strings.Contains(f.Log(), f.Secret) {
				t.Error("the log shows the secret")
			}
		})
	}
}

// start runs the channel until the test ends or stop is called. stop returns Run's error.
func (f Fixture) start(t *testing.T, in channels.Intake) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Channel.Run(ctx, in) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("channeltest: Run did not return")
		}
	})
	t.Cleanup(func() {
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	return stop
}

func (f Fixture) send(t *testing.T, text string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	id, err := f.Channel.Send(ctx, bus.Part{Key: text, To: f.Chat, Text: text})
	f.checkSecret(t, err)
	return id, err
}

func (f Fixture) checkSecret(t *testing.T, err error) {
	t.Helper()
	if err != nil && f.Secret != "" && strings.Contains(err.Error(), f.Secret) {
		t.Error("an error shows the secret")
	}
}

func testOrder(t *testing.T, f Fixture) {
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint("message ", i))
	}
	for _, text := range want[:20] {
		f.Platform.Deliver(text)
	}
	in := new(Inbox)
	f.start(t, in)
	in.wait(t, 20)
	for _, text := range want[20:] {
		f.Platform.Deliver(text)
	}
	in.wait(t, 30)
	ids := make(map[string]bool)
	var got []string
	for _, m := range in.Messages() {
		got = append(got, m.Text)
		ids[m.ID] = true
		if m.From != f.Chat || m.Sender.ID == "" || m.Time.IsZero() || m.Group || !m.Addressed {
			t.Errorf("received %+v, want a direct message of %v", m, f.Chat)
		}
	}
	if !slices.Equal(got, want) || len(ids) != len(want) {
		t.Errorf("received %q with %d ids, want %q", got, len(ids), want)
	}
}

func testAcknowledge(t *testing.T, f Fixture) {
	if f.NoAck {
		return
	}
	entered, release := make(chan struct{}), make(chan struct{})
	in := &Inbox{OnPublish: sync.OnceValue(func() error {
		close(entered)
		<-release
		return nil
	})}
	f.Platform.Deliver("hello")
	f.start(t, in)
	select {
	case <-entered:
	case <-time.After(patience):
		t.Fatal("the message was not published")
	}
	if n := f.Platform.Pending(); n != 1 {
		t.Errorf("%d messages are pending while one is being stored, want 1", n)
	}
	close(release)
	eventually(t, "the message is acknowledged", func() bool { return f.Platform.Pending() == 0 })
}

func testRedeliver(t *testing.T, f Fixture) {
	full := errors.New("disk full")
	in := new(Inbox)
	stop := f.start(t, in)
	f.Platform.Deliver("first") // so that the conversation is known
	in.wait(t, 1)
	if !f.NoAck { // otherwise the platform may deliver it again
		eventually(t, "the message is acknowledged", func() bool { return f.Platform.Pending() == 0 })
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want context.Canceled", err)
	}
	in.OnPublish = func() error { return full }
	f.Platform.Deliver("hello")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.Channel.Run(ctx, in); !errors.Is(err, full) {
		t.Fatalf("Run = %v, want %v", err, full)
	}
	if !f.NoAck {
		if n := f.Platform.Pending(); n != 1 {
			t.Errorf("%d messages are pending after one could not be stored, want 1", n)
		}
	}
	in.OnPublish = nil
	f.start(t, in)
	in.wait(t, 2)
	if got := in.Messages(); len(got) != 2 || got[1].Text != "hello" {
		t.Errorf("received %+v, want first and hello", got)
	}
}

func testConcurrent(t *testing.T, f Fixture) {
	f.start(t, new(Inbox))
	const n = 50
	ids := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id, err := f.send(t, fmt.Sprint("message ", i))
			if err != nil {
				t.Errorf("Send = %v", err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	if got := len(f.Platform.Texts()); got != n {
		t.Errorf("%d messages arrived, want %d", got, n)
	}
	slices.Sort(ids)
	if got := len(slices.Compact(ids)); got != n {
		t.Errorf("%d messages have %d ids", n, got)
	}
}

func testRateLimit(t *testing.T, f Fixture) {
	f.Platform.RateLimit(7 * time.Second)
	_, err := f.send(t, "hello")
	if limit, ok := errors.AsType[*channels.RateError](err); !ok || limit.After != 7*time.Second {
		t.Errorf("Send = %v, want a RateError of 7s", err)
	}
	if _, err := f.send(t, "hello"); err != nil {
		t.Errorf("Send after the limit = %v", err)
	}
}

func testRefusal(t *testing.T, f Fixture) {
	f.Platform.Refuse()
	if _, err := f.send(t, "hello"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send = %v, want %v", err, channels.ErrRefused)
	}
}

func testOutage(t *testing.T, f Fixture) {
	f.Platform.SetOutage(true)
	if _, err := f.send(t, "hello"); err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send during an outage = %v, want an error that may be tried again", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := f.Channel.Run(ctx, new(Inbox)) // may return or wait
	f.checkSecret(t, err)
	if _, ok := errors.AsType[*channels.AccountError](err); ok {
		t.Errorf("Run during an outage = %v, which blames the account", err)
	}
	f.Platform.SetOutage(false)
	if _, err := f.send(t, "hello again"); err != nil {
		t.Errorf("Send after the outage = %v", err)
	}
	in := new(Inbox)
	f.start(t, in)
	f.Platform.Deliver("still there?")
	in.wait(t, 1)
}

func testEdit(t *testing.T, f Fixture) {
	e, ok := f.Channel.(channels.Editor)
	if !ok {
		return // the channel can't edit
	}
	id, err := f.send(t, "one")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same text again is not an error
		if err := e.Edit(t.Context(), f.Chat, id, "two"); err != nil {
			t.Errorf("Edit = %v", err)
		}
	}
	if got := f.Platform.Texts(); !slices.Equal(got, []string{"two"}) {
		t.Errorf("people read %q, want two", got)
	}
	f.Platform.Delete(id)
	if err := e.Edit(t.Context(), f.Chat, id, "three"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Edit of a deleted message = %v, want %v", err, channels.ErrRefused)
	}
}

func testRemove(t *testing.T, f Fixture) {
	r, ok := f.Channel.(channels.Remover)
	if !ok {
		return // the channel can't remove
	}
	id, err := f.send(t, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.send(t, "two"); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), f.Chat, id); err != nil {
		t.Errorf("Remove = %v", err)
	}
	if got := f.Platform.Texts(); !slices.Equal(got, []string{"two"}) {
		t.Errorf("people read %q, want two", got)
	}
	if err := r.Remove(t.Context(), f.Chat, id); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("second Remove = %v, want %v", err, channels.ErrRefused)
	}
}

func testLeave(t *testing.T, f Fixture) {
	l, ok := f.Channel.(channels.Leaver)
	if !ok {
		return // the channel can't leave
	}
	f.Platform.SetOutage(true)
	err := l.Leave(t.Context(), f.Group)
	if err == nil || errors.Is(err, channels.ErrRefused) || !f.InGroup() {
		t.Errorf("Leave during an outage = %v, want an error that may be tried again", err)
	}
	f.checkSecret(t, err)
	f.Platform.SetOutage(false)
	eventually(t, "the group is left", func() bool { return l.Leave(t.Context(), f.Group) == nil })
	if f.InGroup() {
		t.Error("the account is still in the group")
	}
	if err := l.Leave(t.Context(), f.Group); err != nil {
		t.Errorf("Leave of a group that was left = %v", err)
	}
}

func testType(t *testing.T, f Fixture) {
	if typer, ok := f.Channel.(channels.Typer); ok {
		if err := typer.Type(t.Context(), f.Chat); err != nil {
			t.Errorf("Type = %v", err)
		}
	}
}

func testLongest(t *testing.T, f Fixture) {
	l, ok := f.Channel.(channels.Limiter)
	if !ok || l.Limits(f.Chat).Text == 0 {
		return // the channel has no limit
	}
	limits := l.Limits(f.Chat)
	text := strings.Repeat("x", limits.Text)
	for limits.Measure(text) > limits.Text {
		text = text[1:]
	}
	if _, err := f.send(t, text); err != nil {
		t.Errorf("Send of %d bytes = %v", len(text), err)
	}
}

func testFlush(t *testing.T, f Fixture) {
	in := &Inbox{Open: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Channel.Run(ctx, in) }()
	f.Platform.Deliver("hello")
	in.wait(t, 1)
	if !f.NoAck {
		eventually(t, "the message is acknowledged", func() bool { return f.Platform.Pending() == 0 })
	}
	cancel()
	f.Platform.Deliver("late")
	answers := []string{"one", "two"}
	for _, text := range answers {
		if _, err := f.send(t, text); err != nil {
			t.Errorf("Send after the end of Run's context = %v", err)
		}
	}
	if got := f.Platform.Texts(); !slices.Equal(got, answers) {
		t.Errorf("people see %q, want %q", got, answers)
	}
	if n := len(in.Messages()); n != 1 {
		t.Errorf("%d messages are published, one of them after the end of Run's context", n)
	}
	if !f.NoAck {
		if n := f.Platform.Pending(); n != 1 {
			t.Errorf("%d messages are pending after the end of Run's context, want 1", n)
		}
	}
	close(in.Open)
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	case <-time.After(prompt):
		t.Fatalf("Run has not ended %v after everything was sent", prompt)
	}
	in.Open = nil
	f.start(t, in)
	in.wait(t, 2)
	if got := in.Messages(); len(got) != 2 || got[1].Text != "late" {
		t.Errorf("received %+v, want hello and late", got)
	}
}

func testCancel(t *testing.T, f Fixture) {
	before := goleak.IgnoreCurrent()
	in := new(Inbox)
	stop := f.start(t, in)
	f.Platform.Deliver("hello")
	in.wait(t, 1)
	start := time.Now()
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	if took := time.Since(start); took > prompt {
		t.Errorf("Run took %v to end", took)
	}
	if err := Leaked(append(slices.Clone(f.Ours), before,
		// These belong to a fake platform that speaks HTTP.
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
	)...); err != nil {
		t.Errorf("after Run: %v", err)
	}
	f.Platform.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start = time.Now()
	_, err := f.Channel.Send(ctx, bus.Part{To: f.Chat, Text: "hello"})
	if err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send that was ended = %v, want an error that may be tried again", err)
	}
	f.checkSecret(t, err)
	if took := time.Since(start); took > prompt {
		t.Errorf("Send took %v to end", took)
	}
}

// eventually waits until cond returns true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

package discord_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
)

// BenchmarkEcho measures the time from a message to the answer, including the fake server.
func BenchmarkEcho(b *testing.B) {
	w := start(b, nil, &discord.Options{Queue: b.N + 10})
	const chats = 1000
	for i := range chats {
		w.AddDM(fmt.Sprint(7000+i), fmt.Sprint(9000+i))
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx, echo{w.c}) }()
	if err := w.Wait(ctx, func() bool { return w.Connected() == 1 }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N { // not b.Loop, which would stop the clock before the answers have come
		w.Say(fmt.Sprint(9000+i%chats), fmt.Sprint(7000+i%chats), "Hello, how are you today?")
	}
	sent := func() bool { return w.Calls("createMessage") >= b.N }
	if err := w.Wait(ctx, sent); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	cancel()
	<-done
}

// An echo is an intake that answers each message with its own text.
type echo struct{ c *discord.Channel }

func (echo) Identify(context.Context, string) error { return nil }

func (echo) Recover(_ context.Context, f func()) bool { f(); return true }

func (echo) Cursors(context.Context) (map[string]string, error) { return nil, nil }

func (echo) Report(channels.State, string) {}

func (echo) Flushed() <-chan struct{} { return nil }

func (e echo) Publish(ctx context.Context, b channels.Batch) error {
	var wg sync.WaitGroup
	for _, m := range b.Messages {
		wg.Go(func() {
			part := bus.Part{Key: m.ID, To: m.From, Text: m.Text}
			_, _ = e.c.Send(ctx, part) // the server counts
		})
	}
	wg.Wait()
	return nil
}

func BenchmarkSend(b *testing.B) {
	w := start(b, nil, nil)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		part := bus.Part{Key: fmt.Sprint(n), To: ada, Text: "Hello there"}
		if _, err := w.c.Send(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceive measures how fast messages of one chat are stored.
func BenchmarkReceive(b *testing.B) {
	w := start(b, nil, &discord.Options{Queue: b.N + 10})
	ctx, cancel := context.WithCancel(b.Context())
	in := &counter{left: b.N, all: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx, in) }()
	if err := w.Wait(ctx, func() bool { return w.Connected() == 1 }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		w.Say(direct, person, "Hello, how are you today?")
	}
	<-in.all
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	cancel()
	<-done
}

// A counter is an intake that only counts.
type counter struct {
	echo
	left int
	all  chan struct{} // closed when nothing is left
}

func (c *counter) Publish(_ context.Context, b channels.Batch) error {
	if c.left -= len(b.Messages); c.left == 0 {
		close(c.all)
	}
	return nil
}

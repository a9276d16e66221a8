package whatsapp_test

import (
	"context"
	"sync/atomic"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
)

// An echo is an intake that answers each message with its own text.
type echo struct {
	channeltest.Inbox
	ch    *whatsapp.Channel
	work  chan bus.InboundMessage
	count atomic.Int64
}

func (e *echo) Publish(_ context.Context, b channels.Batch) error {
	for _, m := range b.Messages {
		e.work <- m
	}
	return nil
}

// BenchmarkEcho measures the time from a message to the answer, including the fake server and
// the person.
func BenchmarkEcho(b *testing.B) {
	w := start(b)
	e := &echo{ch: w.ch, work: make(chan bus.InboundMessage, 1000)}
	ctx, cancel := context.WithCancel(b.Context())
	stop := w.runTo(w.ch, e)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case m := <-e.work:
				_, err := w.ch.Send(ctx, bus.Part{Key: m.ID, To: m.From, Text: m.Text})
				if err != nil {
					b.Error(err)
				}
				e.count.Add(1)
			case <-ctx.Done():
				return
			}
		}
	}()
	b.ReportAllocs()
	for range b.N { // not b.Loop, which would stop the clock before the answers have come
		w.say("Hello there, how are you today?")
	}
	w.wait("the answers", func() bool { return e.count.Load() == int64(b.N) })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	cancel()
	<-done
	_ = stop() // its error is context.Canceled
}

// BenchmarkPair measures the time of a link.
func BenchmarkPair(b *testing.B) {
	s, _ := newServer(b)
	for b.Loop() {
		if err := s.PairFile(b.Context(), b.TempDir()+"/wa.db"); err != nil {
			b.Fatal(err)
		}
	}
}

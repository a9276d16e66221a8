package agent

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/store"
)

// instant is a model that answers at once and remembers nothing.
type instant struct{}

func (instant) Stream(context.Context, llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		m := llm.Message{Role: llm.Assistant, Text: "hi"}
		_ = yield(llm.Event{Text: m.Text}, nil) &&
			yield(llm.Event{Response: &llm.Response{Message: m, Finish: llm.FinishStop}}, nil)
	}
}

// A bench is a running dispatcher. It hands each answer to the benchmark that waits for it.
type bench struct {
	w    *world
	done map[bus.Address]chan struct{}
	ids  atomic.Int64
}

// benchChats is the number of chats that take turns. With so many, their transcripts stay as
// short as usual.
const benchChats = 256

// newBench starts a dispatcher with a model that answers at once.
func newBench(b *testing.B) *bench {
	w := newWorld(b)
	w.deps.Model = instant{}
	w.opts.Slots = benchChats
	bench := &bench{w: w, done: make(map[bus.Address]chan struct{}, benchChats)}
	for c := range benchChats {
		bench.done[at(fmt.Sprint(c))] = make(chan struct{}, 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	w.live()
	go func() { ended <- NewDispatcher(w.deps, &w.opts).Run(ctx) }()
	go func() { ended <- bench.deliver(ctx) }()
	b.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				b.Error(err)
			}
		}
	})
	return bench
}

// deliver reads the outbox until ctx ends. It acts as a router that needs no time.
func (bench *bench) deliver(ctx context.Context) error {
	out, last := bench.w.deps.Outbox, int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-out.C():
		}
		for more := true; more; {
			list, err := out.Open(bench.w.read(), last)
			if err != nil {
				return err
			}
			for _, d := range list {
				bench.done[d.Message.To] <- struct{}{}
				last = d.ID
			}
			more = len(list) == bus.ReadLimit
		}
	}
}

// turn puts a message into a chat and waits for its answer.
func (bench *bench) turn(b *testing.B, chat bus.Address) {
	m := bus.InboundMessage{ID: fmt.Sprint(bench.ids.Add(1)), From: chat, Text: "hello",
		Time: messageTime, Sender: bus.Sender{ID: "7"}}
	err := bench.w.deps.DB.Tx(context.Background(), func(tx *store.Tx) error {
		_, err := bench.w.deps.Inbox.Put(tx, m, time.Now())
		return err
	})
	if err != nil {
		b.Error(err)
	}
	bench.w.deps.Inbox.Wake()
	<-bench.done[chat]
}

// BenchmarkTurn runs one turn after the other, each from the inbox to the outbox. A turn makes
// three commits.
func BenchmarkTurn(b *testing.B) {
	bench := newBench(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		bench.turn(b, at(fmt.Sprint(i%benchChats)))
	}
}

// BenchmarkTurnsParallel runs turns in all chats at once. Their transactions share commits.
func BenchmarkTurnsParallel(b *testing.B) {
	bench := newBench(b)
	var next atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(max(benchChats/runtime.GOMAXPROCS(0), 1)) // each goroutine has its own chat
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		chat := at(fmt.Sprint((next.Add(1) - 1) % benchChats))
		for pb.Next() {
			bench.turn(b, chat)
		}
	})
}

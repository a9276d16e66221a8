package router_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/store"
)

var errDown = errors.New("connection refused")

// The messages of one conversation are sent in order. Conversations are served concurrently.
func TestOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		busy, most := make(map[bus.Address]bool), 0
		w.fail = func(ctx context.Context, c call) error {
			mu.Lock()
			if busy[c.to] {
				t.Errorf("two calls for %v at once", c.to)
			}
			busy[c.to] = true
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			delete(busy, c.to)
			mu.Unlock()
			return nil
		}
		w.start()
		to := []bus.Address{chatA, thread("b", "1"), thread("b", "2")}
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint("message ", i))
			for _, to := range to {
				w.put(to, want[i])
			}
		}
		w.sleep(2 * time.Second) // one after another, they would take 6 s
		for _, to := range to {
			w.wantRead(to, want...)
		}
		if most != len(to) {
			t.Errorf("%d conversations were served at once, want %d", most, len(to))
		}
		if n := w.router.Stats().Sent.Load(); n != 60 {
			t.Errorf("Stats.Sent = %d, want 60", n)
		}
	})
}

// Retries or an outage of one chat don't block other chats.
func TestTroubleOfOneChat(t *testing.T) {
	for name, trouble := range map[string]func(ctx context.Context) error{
		"rate limit": func(context.Context) error { return &channels.RateError{After: time.Hour} },
		"outage":     func(context.Context) error { return errDown },
		"refused":    func(context.Context) error { return channels.ErrRefused },
		"hangs":      func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fail = func(ctx context.Context, c call) error {
					if c.to == chatA {
						return trouble(ctx)
					}
					return nil
				}
				w.start()
				w.put(chatA, "troubled")
				for i := range 10 {
					other := thread(fmt.Sprint(i), "")
					w.put(other, "one")
					w.put(other, "two")
					w.wantRead(other, "one", "two")
				}
				if took := time.Since(w.began); took > 0 {
					t.Errorf("other chats waited %v", took)
				}
			})
		})
	}
}

// A part that failed is sent again alone, with its own key.
func TestPartFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		failures := 2
		w.fail = func(_ context.Context, c call) error {
			if strings.HasPrefix(c.text, "second") && failures > 0 {
				failures--
				return errDown
			}
			return nil
		}
		w.start()
		id := w.store(bus.OutboundMessage{
			To: chatA, Text: "the first\n\nsecond\n\nthird", ReplyTo: "7"})
		w.put(chatA, "next")
		w.wantRead(chatA, "the first")
		w.sleep(time.Minute)
		w.wantRead(chatA, "the first", "second", "third", "next")
		w.wantState(id, bus.Sent)
		byText := make(map[string][]string)
		var keys []string
		for _, c := range w.asked("send") {
			byText[c.text] = append(byText[c.text], c.id)
			keys = append(keys, c.id)
		}
		if k := byText["second"]; len(k) != 3 || k[0] != k[1] || k[1] != k[2] {
			t.Errorf("the failing part was tried with keys %q, want one key three times", k)
		}
		slices.Sort(keys)
		if n := len(slices.Compact(keys)); n != 4 {
			t.Errorf("4 parts have %d keys", n)
		}
		for i, s := range w.Sent() {
			if want := map[int]string{0: "7"}[i]; s.Part.ReplyTo != want {
				t.Errorf("part %d quotes %q, want %q", i, s.Part.ReplyTo, want)
			}
		}
	})
}

// errKilled is the error of calls in a process that was killed meanwhile. The process can't use
// it any more.
var errKilled = errors.New("killed")

// kill makes the platform's nth call the last action of the process, before or after the
// platform executes the call. It returns a copy of the home directory at that moment.
func (w *world) kill(nth int, executed bool) (dir string) {
	dir = w.t.TempDir()
	killed := false
	w.fail = func(ctx context.Context, c call) error {
		if !killed && len(w.asked("send", "edit", "remove")) == nth {
			killed = true
			copyFiles(w.t, w.dir, dir)
			if executed {
				w.execute(c)
			}
		}
		if killed {
			<-ctx.Done()
			return errKilled
		}
		return nil
	}
	return dir
}

func (w *world) execute(c call) {
	var err error
	switch ctx := w.t.Context(); c.kind {
	case "send":
		_, err = w.Full.Send(ctx, bus.Part{Key: c.id, To: c.to, Text: c.text})
	case "edit":
		err = w.Full.Edit(ctx, c.to, c.id, c.text)
	case "remove":
		err = w.Full.Remove(ctx, c.to, c.id)
	}
	if err != nil {
		w.t.Error(err)
	}
}

func copyFiles(t *testing.T, from, to string) {
	if err := os.RemoveAll(to); err != nil { // CopyFS does not overwrite files
		t.Error(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
}

// revive continues with the files that a killed process left.
func (w *world) revive(dir string) {
	w.fail = nil
	w.dir, w.db = dir, openStore(w.t, dir)
	w.outbox, w.live = bus.NewOutbox(), bus.NewLive()
}

// A process is killed at any call for a message in three parts. No part is lost, and only the
// part of that call can arrive twice.
func TestKilled(t *testing.T) {
	parts := []string{"the first", "second", "third"}
	for nth := 1; nth <= len(parts); nth++ {
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprint("call ", nth, " executed ", executed), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.SetLimits(small)
					dir := w.kill(nth, executed)
					stop := w.start()
					next := w.store( // both at once: the process ends while it sends the first one
						bus.OutboundMessage{To: chatA, Text: strings.Join(parts, "\n\n")},
						bus.OutboundMessage{To: chatA, Text: "next"})
					id := next - 1
					synctest.Wait()
					stop()
					before := len(w.asked("send"))
					w.revive(dir)
					w.start()
					want := slices.Clone(parts)
					if executed { // nobody can know that, and a duplicate is better than a loss
						want = slices.Insert(want, nth, parts[nth-1])
					}
					w.wantRead(chatA, append(want, "next")...)
					w.wantState(id, bus.Sent)
					w.wantState(next, bus.Sent)
					d := w.delivery(id)
					if n := w.router.Stats().Uncertain.Load(); n != 1 || d.Uncertain != 1 {
						t.Errorf("%d counted, %d noted as uncertain, want 1", n, d.Uncertain)
					}
					calls := w.asked("send")
					if a, b := calls[before-1], calls[before]; a.id != b.id || a.text != b.text {
						t.Errorf("after the restart came %v, want %v again", b, a)
					}
				})
			})
		}
	}
}

// deduplicating is a platform that shows a message once, even if it is sent again.
type deduplicating struct{ *platform }

func (deduplicating) Deduplicates() {}

// On a platform that shows no message twice, no attempt counts as uncertain.
func TestKilledDeduplicating(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := w.kill(1, true)
		same := func(a *router.Account) { a.Channel = deduplicating{w.platform} }
		stop := w.start(same)
		id := w.put(chatA, "hello")
		stop()
		w.revive(dir)
		w.start(same)
		w.wantState(id, bus.Sent)
		if n, d := w.router.Stats().Uncertain.Load(), w.delivery(id); n != 0 || d.Uncertain != 0 {
			t.Errorf("%d counted, %d noted as uncertain, want none", n, d.Uncertain)
		}
	})
}

// A message that can be sent at once is stored in the state "sending", so that nothing is
// written before it is sent. A message that must wait is not, and neither is the one after it. A
// kill then has the same effects as in [TestKilled].
func TestSentAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.state <> 'sent'
			BEGIN SELECT RAISE(ABORT, 'written'); END`)
		w.put(chatA, "first")
		w.put(chatA, "second")
		w.wantRead(chatA, "first", "second")
		w.exec("DROP TRIGGER broken")
		w.fail = func(context.Context, call) error { return &channels.RateError{After: time.Hour} }
		limited := w.put(chatA, "limited")
		w.wantState(limited, bus.Waiting)
		w.fail = nil
		next := w.store(bus.OutboundMessage{To: chatA, Text: "next"})
		w.wantState(next, bus.Waiting)
		w.sleep(time.Hour)
		w.wantRead(chatA, "first", "second", "limited", "next")
		if n := w.router.Stats().Uncertain.Load(); n != 0 {
			t.Errorf("%d counted as uncertain, want none", n)
		}
	})
}

// A router that was stopped, not killed, continues with the part that failed last.
func TestStoppedBetweenParts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.fail = func(_ context.Context, c call) error {
			if c.text == "second" {
				return errDown
			}
			return nil
		}
		stop := w.start()
		id := w.put(chatA, "the first\n\nsecond")
		w.put(chatA, "next")
		stop()
		w.wantState(id, bus.Waiting)
		w.fail = nil
		w.start()
		w.wantRead(chatA, "the first", "second", "next")
		if n := w.router.Stats().Uncertain.Load(); n != 0 {
			t.Errorf("%d counted as uncertain, want none", n)
		}
	})
}

// A message that was sent, but whose row could not be updated, is not sent again while the
// process lives.
func TestStoreFailsAfterSend(t *testing.T) {
	for _, text := range []string{"short", "the first\n\nsecond"} {
		inWorld(t, func(w *world) {
			w.SetLimits(small)
			w.start()
			w.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.state = 'sent'
				BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
			id := w.put(chatA, text)
			w.sleep(5 * time.Second)
			w.wantState(id, bus.Sending)
			w.exec("DROP TRIGGER broken")
			w.sleep(5 * time.Second)
			w.wantState(id, bus.Sent)
			w.wantRead(chatA, strings.Split(text, "\n\n")...)
			if n := w.router.Stats().Sent.Load(); n != 1 {
				t.Errorf("Stats.Sent = %d, want 1", n)
			}
		})
	}
}

// A message is not sent before the store records that it is being sent.
func TestStoreFailsBeforeSend(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.state = 'sending'
			BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
		id := w.storeBy(bus.NewOutbox(), bus.OutboundMessage{To: chatA, Text: "hello"})
		w.sleep(5 * time.Second)
		w.wantRead(chatA)
		w.exec("DROP TRIGGER broken")
		w.sleep(5 * time.Second)
		w.wantRead(chatA, "hello")
		w.wantState(id, bus.Sent)
	})
}

// A message for an account that is not configured waits until it is.
func TestUnknownAccount(t *testing.T) {
	inWorld(t, func(w *world) {
		other := bus.Address{Account: "other", Chat: "a"}
		id := w.store(bus.OutboundMessage{To: other, Text: "hello"})
		stop := w.start()
		w.progress(bus.Progress{To: other, Stream: "s", Text: "hel"})
		w.sleep(time.Hour)
		w.put(chatA, "mine")
		w.wantRead(chatA, "mine")
		w.wantState(id, bus.Waiting)
		stop()
		w.startWith(router.Account{Name: "other", Channel: w.platform})
		w.wantRead(other, "hello")
	})
}

// A lost wake-up delays a message only for a moment, also a message from another process.
func TestWakeUpLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.storeBy(bus.NewOutbox(), bus.OutboundMessage{To: chatA, Text: "one"},
			bus.OutboundMessage{To: chatA, Text: "two"})
		synctest.Wait()
		w.wantRead(chatA)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "one", "two")
	})
}

// The outbox may hold more messages than are read at once.
func TestManyMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 2*bus.ReadLimit + 10
		var messages []bus.OutboundMessage
		for i := range n {
			to := thread(fmt.Sprint(i%7), "")
			messages = append(messages, bus.OutboundMessage{To: to, Text: fmt.Sprint(i)})
		}
		w.store(messages...)
		w.start()
		if got := len(w.Sent()); got != n {
			t.Errorf("%d messages arrived, want %d", got, n)
		}
	})
}

// A stop (SIGTERM) loses no messages. Messages that can be sent at once are still sent, and
// those that must wait stay in the outbox.
func TestStop(t *testing.T) {
	inWorld(t, func(w *world) {
		waiting, slow := thread("waiting", ""), thread("slow", "")
		w.fail = func(_ context.Context, c call) error {
			switch c.to {
			case waiting:
				return &channels.RateError{After: time.Minute}
			case slow:
				time.Sleep(time.Second)
			}
			return nil
		}
		stop := w.start()
		stays := []int64{w.put(waiting, "one"), w.put(waiting, "two")}
		w.put(slow, "one")
		w.put(slow, "two")
		goes := w.store(bus.OutboundMessage{To: chatA, Text: "hello"}) // just before the stop
		stop()
		if took := time.Since(w.began); took > 2*time.Second {
			t.Errorf("Run took %v to end", took)
		}
		w.wantRead(slow, "one", "two")
		w.wantRead(chatA, "hello")
		w.wantState(goes, bus.Sent)
		for _, id := range stays {
			w.wantState(id, bus.Waiting)
		}
		if n := len(w.asked("send")); n != 4 {
			t.Errorf("%d calls, want 4: none for what must wait", n)
		}
	})
}

// A call that gets no answer delays the stop of the gateway for at most ten seconds.
func TestStopWhileHanging(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Block()
		stop := w.start()
		id := w.put(chatA, "hello")
		stop()
		if took := time.Since(w.began); took != 10*time.Second {
			t.Errorf("Run took %v to end, want 10s", took)
		}
		if s := w.delivery(id).State; s != bus.Waiting && s != bus.Sending {
			t.Errorf("the message is %s", s)
		}
	})
}

// If the store can't be read, Run returns and leaves no goroutines.
func TestStoreGone(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	db := openStore(t, dir)
	w := &world{platform: new(platform), t: t, dir: dir, db: db, outbox: bus.NewOutbox(),
		live: bus.NewLive()}
	w.Block()
	w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
	r := router.New(router.Options{
		DB: db, Outbox: w.outbox, Live: w.live, Owners: gate.People{}, Logger: discard,
		Poll:     10 * time.Millisecond,
		Accounts: []router.Account{{Name: "full", Channel: w.platform}},
	})
	done := make(chan error, 1)
	go func() { done <- r.Run(t.Context()) }()
	for len(w.asked("send")) == 0 {
		runtime.Gosched()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("Run = nil, want an error")
	}
	if err := channeltest.Leaked(before); err != nil {
		t.Error(err)
	}
}

// When Run has returned, none of its goroutines is left.
func TestRunLeavesNothing(t *testing.T) {
	db := openStore(t, t.TempDir())
	outbox, live := bus.NewOutbox(), bus.NewLive()
	before := goleak.IgnoreCurrent()
	p := new(channeltest.Full)
	r := router.New(router.Options{
		DB: db, Outbox: outbox, Live: live, Owners: gate.People{}, Logger: discard,
		Accounts: []router.Account{{Name: "full", Channel: p, Streaming: true}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for i := range 20 {
		to := thread(fmt.Sprint(i), "")
		live.Publish(bus.Progress{To: to, Stream: fmt.Sprint(i), Text: "hel"})
		err := db.Tx(ctx, func(tx *store.Tx) error {
			return outbox.Put(tx, bus.OutboundMessage{To: to, Text: "hello"}, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if err := channeltest.Leaked(before,
		// This goroutine ends some time after its statement's context
		goleak.IgnoreAnyFunction("database/sql.(*Rows).awaitDone"),
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener")); err != nil {
		t.Error(err)
	}
	if n := len(p.Sent()); n != 20 {
		t.Errorf("%d messages arrived, want 20", n)
	}
}

func TestOpenCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Block()
		w.start()
		w.put(chatA, "one")
		w.put(chatA, "two")
		w.put(thread("b", ""), "three")
		if n := w.router.Pending("full"); n != 3 {
			t.Errorf("Open = %d, want 3", n)
		}
		if n := w.router.Pending("other"); n != 0 {
			t.Errorf("Open of another account = %d, want 0", n)
		}
	})
}

package router_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
)

// maxUnrecorded equals the constant in package router.
const maxUnrecorded = 5

// lock keeps the database from being written until unlock is called.
func (w *world) lock() (unlock func()) {
	locked, end := make(chan struct{}), make(chan struct{})
	go func() {
		// Only the end of the lock matters, not the error.
		_ = w.db.Tx(context.Background(), func(*store.Tx) error {
			close(locked)
			<-end
			return nil
		})
	}()
	<-locked
	return func() { close(end) }
}

// Only a few calls may be under way, and only a few sent messages may not be recorded yet, however
// many conversations there are and however long the table can't be written. After a kill, these
// messages would be sent again. A log of sent messages records the others.
func TestFewAreUnnoted(t *testing.T) {
	const chats = 50
	for _, tt := range []struct {
		name string
		log  bool
		sent int // while the table can't be written
	}{{"table", false, maxUnrecorded}, {"log", true, chats}} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				answer := make(chan struct{})
				w.fail = func(context.Context, call) error {
					<-answer
					return nil
				}
				if tt.log {
					w.openSentLog()
				}
				w.start()
				for i := range chats {
					w.put(thread(fmt.Sprint(i), ""), "hello")
				}
				synctest.Wait()
				if n := len(w.asked("send")); n != maxUnrecorded {
					w.t.Errorf("%d calls are under way, want %d", n, maxUnrecorded)
				}
				unlock := w.lock()
				close(answer)
				synctest.Wait()
				w.sleep(time.Hour)
				if n := len(w.Sent()); n != tt.sent {
					w.t.Errorf("%d messages are sent while the table can't be written, want %d", n, tt.sent)
				}
				unlock()
				w.sleep(time.Minute)
				if n := len(w.asked("send")); n != chats || len(w.Sent()) != chats {
					w.t.Errorf("%d messages are sent in %d calls, want %d", len(w.Sent()), n, chats)
				}
			})
		})
	}
}

// openSentLog gives w the log of sent messages.
func (w *world) openSentLog() {
	w.t.Helper()
	log, _, err := bus.OpenSentLog(w.t.Context(), filepath.Join(w.dir, "sent"), w.db, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := log.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.sentLog = log
}

// A message that an earlier process has recorded in the log is not sent again. The router ends it
// as if it had sent it itself, and sends the parts that are left.
func TestSentByEarlierProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.openSentLog()
		whole, long := w.put(chatA, "hello"), w.put(thread("b", ""), "the first\n\nsecond")
		w.exec("UPDATE outbox SET state = 'sending', crashes = 2")
		w.exec("UPDATE outbox SET parts = $1 WHERE id = $2", `["the first","second"]`, long)
		for _, id := range []int64{whole, long} {
			d := w.delivery(id)
			if _, err := w.sentLog.Record(&d, "sent before"); err != nil {
				w.t.Fatal(err)
			}
		}
		w.openSentLog() // as the next process does
		w.start()
		w.sleep(time.Minute)
		w.wantCalls([]string{"send"}, `send "second" at 0s`)
		w.wantState(whole, bus.Sent)
		w.wantState(long, bus.Sent)
		if d := w.delivery(whole); len(d.IDs) != 1 || d.IDs[0] != "sent before" {
			w.t.Errorf("the message has the ids %q, want the earlier process's", d.IDs)
		}
	})
}

// A slow platform gets the messages of all conversations concurrently. Messages that it has
// accepted are recorded before others are sent.
func TestSlowPlatform(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(context.Context, call) error {
			time.Sleep(10 * time.Second)
			return nil
		}
		const chats = 50
		w.start()
		for i := range chats {
			w.put(thread(fmt.Sprint(i), ""), "hello")
		}
		w.sleep(time.Second)
		if n := len(w.asked("send")); n != chats {
			w.t.Errorf("%d calls are under way, want %d", n, chats)
		}
		unlock := w.lock()
		w.sleep(20 * time.Second)
		unlock()
		w.sleep(time.Minute)
		if n := len(w.Sent()); n != chats {
			w.t.Errorf("%d messages are sent, want %d", n, chats)
		}
	})
}

// Each part of a long message is recorded before the next part waits for its turn.
func TestPartsAreNoted(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := small
		slow.Chat = channels.Rate{Every: time.Hour, Burst: 1}
		w.SetLimits(slow)
		w.start()
		w.put(chatA, "the first\n\nsecond")
		w.sleep(time.Minute)
		list, err := bus.NewOutbox().Open(w.db.Read(w.t.Context()), 0)
		if err != nil || len(list) != 1 || len(list[0].IDs) != 1 {
			w.t.Errorf("the table says %+v, %v; want one part with an id", list, err)
		}
	})
}

// The parts that an earlier process has sent may be more than the platform needs now, because a
// later version or setting makes a text the caption of a file. The message is sent then.
func TestSentInMoreParts(t *testing.T) {
	inWorld(t, func(w *world) {
		limits := small
		limits.File = 100
		w.SetLimits(limits)
		w.openSentLog()
		id := w.store(bus.OutboundMessage{To: chatA, Text: "hello",
			Attachments: []bus.Attachment{{Kind: bus.Document, Name: "a.txt", Size: 1}}})
		d := w.delivery(id)
		for _, part := range []string{"text", "file"} {
			if _, err := w.sentLog.Record(&d, part); err != nil {
				w.t.Fatal(err)
			}
			d.IDs = append(d.IDs, part)
		}
		w.openSentLog() // as the next process does
		limits.Caption = 10
		w.SetLimits(limits)
		w.start()
		w.sleep(time.Minute)
		w.wantState(id, bus.Sent)
		w.wantCalls([]string{"send"})
	})
}

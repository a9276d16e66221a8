package router

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/channeltest"
	"gateway/channels/gate"
	"gateway/store"
)

// While a conversation can't show anything, it keeps only the newest progress of each answer,
// also if several answers grow at the same time.
func TestUpdatesAreBounded(t *testing.T) {
	c := &worker{wake: make(chan struct{}, 1)}
	for range 100 {
		for _, stream := range []string{"a", "b"} {
			c.update(bus.Progress{Stream: stream, Text: "old"})
		}
	}
	c.update(bus.Progress{Stream: "a", Text: "new"})
	if len(c.updates) != 2 || c.updates[0].Text != "new" || c.updates[1].Text != "old" {
		t.Errorf("%d updates wait, want the newest one of each answer", len(c.updates))
	}
}

// A message that the outbox hands over and that a pass over the table finds, too, is sent once.
// It does not matter whether the pass or the handover reaches the conversation first, or whether
// the message is already sent.
func TestFreshOnce(t *testing.T) {
	to := bus.Address{Account: "full", Chat: "a"}
	for name, order := range map[string]struct{ tableFirst, sent bool }{
		"table, sent, handover": {true, true},
		"table, handover":       {true, false},
		"handover, sent, table": {false, true},
		"handover, table":       {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, migrations := t.Context(), []store.Migration{bus.Migration, gate.Migration}
			db, err := store.Open(ctx, filepath.Join(t.TempDir(), "g.db"), migrations, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			platform, outbox := new(channeltest.Full), bus.NewOutbox()
			r := New(Options{DB: db, Outbox: outbox, Live: bus.NewLive(),
				Logger:   slog.New(slog.DiscardHandler),
				Accounts: []Account{{Name: "full", Channel: platform, Unlimited: true}}})
			if err := r.begin(ctx); err != nil {
				t.Fatal(err)
			}
			if list, _, _, err := outbox.Next(db.Read(ctx), 0); err != nil || len(list) > 0 {
				t.Fatalf("%d messages in a new outbox, error %v", len(list), err)
			}
			err = db.Tx(ctx, func(tx *store.Tx) error {
				return outbox.Put(tx, bus.OutboundMessage{To: to, Text: "hello"}, time.Now())
			})
			if err != nil {
				t.Fatal(err)
			}
			found, err := outbox.NextConversations(db.Read(ctx), bus.Address{Account: "full"})
			if err != nil || len(found) != 1 || found[0].Fresh {
				t.Fatalf("the table has %+v, error %v", found, err)
			}
			list, _, _, err := outbox.Next(db.Read(ctx), 0)
			if err != nil || len(list) != 1 || !list[0].Fresh {
				t.Fatalf("handed over: %+v, error %v", list, err)
			}
			steps := []func(){
				func() {
					a := r.accounts["full"]
					r.mu.Lock()
					a.backlog.add()
					r.mu.Unlock()
					a.addAhead(r, found)
					r.assignAhead(ctx, context.WithoutCancel(ctx), a)
				},
				func() { r.dispatch(ctx, context.WithoutCancel(ctx), &list[0]) },
			}
			if !order.tableFirst {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps {
				step()
				if order.sent {
					r.wg.Wait()
				}
			}
			r.wg.Wait()
			if n := len(platform.Sent()); n != 1 {
				t.Errorf("sent %d times, want once", n)
			}
			if n := r.Stats().Uncertain.Load(); n != 0 {
				t.Errorf("%d counted as uncertain, want none", n)
			}
		})
	}
}

// A pass may find a delivery that its conversation's worker changes before the pass uses it. The
// outdated copy is not used: a part that the worker has sent is not sent again.
func TestFoundOutdated(t *testing.T) {
	to := bus.Address{Account: "full", Chat: "a"}
	ctx, migrations := t.Context(), []store.Migration{bus.Migration, gate.Migration}
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "g.db"), migrations, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	platform, outbox := new(channeltest.Full), bus.NewOutbox()
	r := New(Options{DB: db, Outbox: outbox, Live: bus.NewLive(),
		Logger:   slog.New(slog.DiscardHandler),
		Accounts: []Account{{Name: "full", Channel: platform, Unlimited: true}}})
	if err := r.begin(ctx); err != nil {
		t.Fatal(err)
	}
	err = db.Tx(ctx, func(tx *store.Tx) error {
		return outbox.Put(tx, bus.OutboundMessage{To: to, Text: "one two"}, time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := outbox.NextConversations(db.Read(ctx), bus.Address{Account: "full"})
	if err != nil || len(found) != 1 {
		t.Fatalf("the table has %+v, error %v", found, err)
	}
	a, d := r.accounts["full"], found[0]
	r.mu.Lock()
	a.backlog.add()
	r.mu.Unlock()
	a.addAhead(r, found)
	r.mu.Lock()
	r.worker(ctx, ctx, a, to) // a preview would create it, too
	r.mu.Unlock()
	r.wg.Wait()
	d.State, d.Parts, d.IDs = bus.Sending, []string{"one", "two"}, []string{"9"}
	err = db.Tx(ctx, func(tx *store.Tx) error {
		_, err := outbox.Save(tx, &d, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.assignAhead(ctx, ctx, a)
	r.wg.Wait()
	if sent := platform.Sent(); len(sent) != 1 || sent[0].Part.Text != "two" {
		t.Errorf("sent %+v, want only the second part", sent)
	}
}

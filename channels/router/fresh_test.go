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

// A message that the outbox hands over, and that a pass over the table has found before, is sent
// once: whether the pass comes to its conversation before the handover or after it, and whether the
// message is sent already or not.
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
			found, err := outbox.NextFirst(db.Read(ctx), bus.Address{Account: "full"})
			if err != nil || found == nil || found.Fresh {
				t.Fatalf("the table has %+v, error %v", found, err)
			}
			list, _, _, err := outbox.Next(db.Read(ctx), 0)
			if err != nil || len(list) != 1 || !list[0].Fresh {
				t.Fatalf("handed over: %+v, error %v", list, err)
			}
			steps := []func(){
				func() { r.assignLoaded(ctx, context.WithoutCancel(ctx), r.accounts["full"], found) },
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

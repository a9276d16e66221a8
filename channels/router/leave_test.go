package router_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
	"gateway/store"
)

// A guest is a platform whose account can leave groups.
type guest struct {
	*platform
	errs []error // of the next calls
	left []string
}

func (g *guest) Leave(_ context.Context, id string) (err error) {
	g.left = append(g.left, id)
	if len(g.errs) > 0 {
		err, g.errs = g.errs[0], g.errs[1:]
	}
	return err
}

// outcomes are the deliveries that were over, each as state and error.
type outcomes struct{ list []string }

func (o *outcomes) HasLeft(_ store.Queryer, a bus.Address) (bool, error) {
	return a.Chat == "left", nil
}

func (o *outcomes) Leave(_ *store.Tx, d *bus.Delivery) error {
	o.list = append(o.list, fmt.Sprintf("%s %s %s", d.State, d.Message.To.Chat, d.Error))
	return nil
}

// startGuest starts a router for a guest. The first calls fail with errs.
func (w *world) startGuest(errs ...error) (*guest, *outcomes) {
	g, o := &guest{platform: w.platform, errs: errs}, new(outcomes)
	w.groups = o
	w.startWith(router.Account{Name: "full", Channel: g})
	return g, o
}

var leaves = bus.OutboundMessage{To: chatA, Leave: &bus.Leave{ID: "server of a"}}

// The account leaves a group with its server's id, after what was to be sent there, and tries that
// again until the platform answers.
func TestLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		g, o := w.startGuest(errors.New("down"), &channels.RateError{After: time.Hour},
			fmt.Errorf("%w: lost", channels.ErrUncertain), nil)
		w.store(bus.OutboundMessage{To: chatA, Text: "before"})
		id := w.store(leaves)
		w.sleep(time.Minute)
		w.wantRead(chatA, "before")
		if len(g.left) != 2 || len(o.list) != 0 {
			t.Errorf("%d calls within the limit: %q", len(g.left), o.list)
		}
		w.sleep(2 * time.Hour)
		w.wantState(id, bus.Sent)
		if len(g.left) != 4 || g.left[3] != "server of a" || len(o.list) != 1 || o.list[0] != "sent a " {
			t.Errorf("calls %q, outcomes %q", g.left, o.list)
		}
		if d := w.delivery(id); d.Uncertain != 0 {
			t.Errorf("%d attempts count as uncertain", d.Uncertain)
		}
		w.wantRead(chatA, "before")
	})
}

// The account is told to leave a group of a platform that refuses, or that has no groups.
func TestLeaveRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		_, o := w.startGuest(fmt.Errorf("full: %w: not now", channels.ErrRefused))
		w.wantState(w.deliver(leaves), bus.Dead)
		if want := "dead a full: " + channels.ErrRefused.Error() + ": not now"; len(o.list) != 1 ||
			o.list[0] != want {
			t.Errorf("outcomes are %q, want %q", o.list, want)
		}
		if n := w.rows("outbox"); n != 1 {
			t.Errorf("%d further messages about it", n-1)
		}
	})
	inWorld(t, func(w *world) {
		w.groups = new(outcomes)
		w.start()
		w.wantState(w.deliver(leaves), bus.Dead)
	})
}

// What a platform refuses in a group that was left is dropped, and nobody is told.
func TestRefusedInLeftGroup(t *testing.T) {
	inWorld(t, func(w *world) {
		w.groups = new(outcomes)
		w.fail = func(context.Context, call) error { return errBroken }
		w.start()
		id := w.deliver(bus.OutboundMessage{To: bus.Address{Account: "full", Chat: "left"}, Text: "late"})
		w.wantState(id, bus.Dropped)
		w.wantState(w.deliver(bus.OutboundMessage{To: chatA, Text: "late"}), bus.Dead)
	})
}

// deliver stores a message and waits until the router has nothing to do now.
func (w *world) deliver(m bus.OutboundMessage) (id int64) {
	id = w.store(m)
	w.sleep(time.Second)
	return id
}

// A person may drop the decision to leave a group while it is tried again.
func TestLeaveDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		down := errors.New("down")
		g, o := w.startGuest(down, down, down, down, down, down)
		id := w.deliver(leaves)
		w.sleep(5 * time.Second)
		calls := len(g.left)
		err := w.db.Tx(t.Context(), func(tx *store.Tx) error {
			n, err := w.outbox.DropAll(tx, chatA, id)
			if n != 1 {
				t.Errorf("dropped %d messages, want 1", n)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Hour)
		w.wantState(id, bus.Dropped)
		if len(g.left) > calls+1 || len(o.list) != 0 {
			t.Errorf("%d calls after that, outcomes %q", len(g.left)-calls, o.list)
		}
	})
}

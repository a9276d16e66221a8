package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	errs chan error // errors of the next calls
	left lines      // ids of all calls
}

func (g *guest) Leave(_ context.Context, id string) error {
	g.left.add(id)
	select {
	case err := <-g.errs:
		return err
	default:
		return nil
	}
}

// outcomes records the finished deliveries, each as state and error.
type outcomes struct{ lines }

// lines is a list of texts that is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, line)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (o *outcomes) HasLeft(_ store.Queryer, a bus.Address) (bool, error) {
	return a.Chat == "left", nil
}

func (o *outcomes) Leave(_ *store.Tx, d *bus.Delivery) error {
	o.add(fmt.Sprintf("%s %s %s", d.State, d.Message.To.Chat, d.Error))
	return nil
}

// startGuest starts a router for a guest. The guest's first calls fail with errs.
func (w *world) startGuest(errs ...error) (*guest, *outcomes) {
	g, o := &guest{platform: w.platform, errs: make(chan error, len(errs))}, new(outcomes)
	for _, err := range errs {
		g.errs <- err
	}
	w.groups = o
	w.startWith(router.Account{Name: "full", Channel: g})
	return g, o
}

var leaves = bus.OutboundMessage{To: chatA, Leave: &bus.Leave{ID: "server of a"}}

// The account leaves a group by its server's id, after earlier messages to the group are sent.
// It tries again until the platform answers.
func TestLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		g, o := w.startGuest(errors.New("down"), &channels.RateError{After: time.Hour},
			fmt.Errorf("%w: lost", channels.ErrUncertain), nil)
		w.store(bus.OutboundMessage{To: chatA, Text: "before"})
		id := w.store(leaves)
		w.sleep(time.Minute)
		w.wantRead(chatA, "before")
		if left, out := g.left.all(), o.all(); len(left) != 2 || len(out) != 0 {
			t.Errorf("calls within the limit %q, outcomes %q", left, out)
		}
		w.sleep(2 * time.Hour)
		w.wantState(id, bus.Sent)
		left, out := g.left.all(), o.all()
		if len(left) != 4 || left[3] != "server of a" || !slices.Equal(out, []string{"sent a "}) {
			t.Errorf("calls %q, outcomes %q", left, out)
		}
		if d := w.delivery(id); d.Uncertain != 0 {
			t.Errorf("%d attempts count as uncertain", d.Uncertain)
		}
		w.wantRead(chatA, "before")
	})
}

// A process may die while the account leaves a group. The next one tries again, and does not report
// that a message may come twice.
func TestLeaveInterrupted(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.store(leaves)
		w.exec("UPDATE outbox SET state = 'sending'")
		_, o := w.startGuest(nil)
		w.wantState(id, bus.Sent)
		n, d := w.router.Stats().Uncertain.Load(), w.delivery(id)
		if out := o.all(); n != 0 || d.Uncertain != 0 || !slices.Contains(out, "sent a ") {
			t.Errorf("%d counted, %d noted as uncertain; outcomes %q", n, d.Uncertain, out)
		}
	})
}

// The account can't leave a group if the platform refuses, or if the platform has no groups.
func TestLeaveRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		_, o := w.startGuest(fmt.Errorf("full: %w: not now", channels.ErrRefused))
		w.wantState(w.deliver(leaves), bus.Dead)
		want := []string{"dead a full: " + channels.ErrRefused.Error() + ": not now"}
		if got := o.all(); !slices.Equal(got, want) {
			t.Errorf("outcomes are %q, want %q", got, want)
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

// A message that the platform refuses in a group that was left is dropped, and nobody is told.
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

// deliver stores a message and waits until the router is idle.
func (w *world) deliver(m bus.OutboundMessage) (id int64) {
	id = w.store(m)
	w.sleep(time.Second)
	return id
}

// A person may drop the decision to leave a group while the router still tries.
func TestLeaveDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		down := errors.New("down")
		g, o := w.startGuest(down, down, down, down, down, down)
		id := w.deliver(leaves)
		w.sleep(5 * time.Second)
		calls := len(g.left.all())
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
		if left, out := g.left.all(), o.all(); len(left) > calls+1 || len(out) != 0 {
			t.Errorf("%d calls after that, outcomes %q", len(left)-calls, out)
		}
	})
}

package gate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

// leave stores the decision to leave the group g, and returns the delivery that the router gets.
func (d *gateFixture) leave() *bus.Delivery {
	d.t.Helper()
	err := d.do(func(tx *store.Tx) error {
		_, err := d.gate.StartLeaving(tx,
			[]gate.Group{{Account: "tg", Chat: "g", Title: "Garden"}}, bus.Leave{
				ID: "g", Name: "the group Garden",
				Tell: []bus.Address{{Account: "tg", Chat: "chat of ann"}},
			})
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	list, err := d.outbox.Open(d.db.Read(d.t.Context()), 0)
	if err != nil || len(list) == 0 || list[len(list)-1].Message.Leave == nil {
		d.t.Fatalf("the outbox has %+v, %v; want the group to be left", list, err)
	}
	return &list[len(list)-1]
}

// over stores the state of a delivery that leaves a group: its outcome, or the beginning of an
// attempt.
func (d *gateFixture) over(left *bus.Delivery, s bus.DeliveryState, reason string) {
	d.t.Helper()
	left.State, left.Error = s, reason
	err := d.do(func(tx *store.Tx) error {
		if _, err := d.outbox.Save(tx, left, time.Now()); err != nil {
			return err
		}
		if s == bus.Sending {
			return nil
		}
		return d.gate.Leave(tx, left)
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// join publishes the event that bob has added the account to the group g.
func (d *gateFixture) join(at time.Time) {
	d.t.Helper()
	m := inGroup("g", true, message("", "bob", ""))
	m.Time = at
	b := channels.Batch{Joined: []bus.InboundMessage{m}}
	if err := d.gate.Intake("tg", owned).Publish(d.t.Context(), b); err != nil {
		d.t.Fatal(err)
	}
}

// A group that the account is leaving is ignored. After that it counts as a new group, but not
// because of an older event.
func TestLeftGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.publish(owned, message("1", "ann", "hello"))
		d.publish(owned, inGroup("g", true, message("2", "bob", "hey")))
		left := d.leave()
		early := time.Now()
		time.Sleep(time.Minute + 300*time.Millisecond)
		d.publish(owned, inGroup("g", true, message("3", "bob", "still there?")))
		d.publish(owned, inGroup("g", true, message("4", "ann", "still there?")))
		d.over(left, bus.Sent, "")
		second := time.Now().Truncate(time.Second) // some platforms report times in whole seconds
		for i, at := range []time.Time{early, second} {
			late := inGroup("g", true, message(fmt.Sprint("5", i), "bob", "still there?"))
			late.Time = at
			d.publish(owned, late)
			d.join(at)
		}
		if n := d.questions(); n != 1 {
			t.Errorf("the owner was asked %d times, want once", n)
		}
		if got := d.outboxed("chat of ann"); got[len(got)-1].Text != "I have left the group Garden." {
			t.Errorf("the owner was told %q", got[len(got)-1].Text)
		}
		time.Sleep(time.Minute)
		d.join(time.Now())
		d.publish(owned, inGroup("g", true, message("6", "bob", "hey")))
		if n := d.questions(); n != 2 {
			t.Errorf("the owner was asked %d times, want 2", n)
		}
		if n := len(d.outboxed("g")); n != 0 {
			t.Errorf("the group gets %d messages", n)
		}
		d.wantInbox("owner hello")
	})
}

// A group that the configuration lists is ignored while the account leaves it. The account
// answers there again when it is back.
func TestLeftListedGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := owned
		p.Groups = []string{"g"}
		d.publish(p, message("1", "ann", "hello"))
		job := inGroup("g", true, message("", "ann", "a job"))
		job.Time = time.Time{}
		standing := func() bool {
			ok, err := d.gate.MayWrite(d.db.Read(d.t.Context()), &job)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if !standing() {
			t.Error("jobs of the group are paused")
		}
		left := d.leave()
		d.publish(p, inGroup("g", true, message("2", "bob", "still there?")))
		if standing() {
			t.Error("a job goes on in a group that is being left")
		}
		d.over(left, bus.Sent, "")
		if standing() {
			t.Error("a job goes on in a group that was left")
		}
		got := d.outboxed("chat of ann")
		if text := got[len(got)-1].Text; !strings.Contains(text, "The configuration still lists `g`") {
			t.Errorf("the owner was told %q", text)
		}
		time.Sleep(time.Second)
		d.publish(p, inGroup("g", true, message("3", "bob", "back?")))
		if !standing() {
			t.Error("the job is paused although the account is back")
		}
		d.wantInbox("owner hello", "guest back?")
	})
}

// A group that the account could not leave is ignored.
func TestGroupNotLeft(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.publish(owned, message("1", "ann", "hello"))
		d.over(d.leave(), bus.Dead, "tg: leave g: "+channels.ErrRefused.Error()+": not now")
		got := d.outboxed("chat of ann")
		if text := got[len(got)-1].Text; !strings.Contains(text, "leave the group Garden: not now.") ||
			!strings.Contains(text, "Until then I ignore it. `gateway outbox retry 1`") {
			t.Errorf("the owner was told %q", text)
		}
		d.publish(owned, inGroup("g", true, message("2", "bob", "hey")))
		if n := d.questions(); n != 0 {
			t.Errorf("the owner was asked %d times", n)
		}
		d.publish(owned, inGroup("g", true, message("3", "ann", "hey")))
		if got := d.outboxed("g"); !strings.Contains(got[len(got)-1].Text, "I don't answer in this") {
			t.Errorf("the group was told %q", got[len(got)-1].Text)
		}
	})
}

// A choice that somebody made in a group before the decision to leave it does not admit the
// group again.
func TestActivateLeftGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.Open}
		activate := func() {
			t.Helper()
			err := d.do(func(tx *store.Tx) error {
				ok, err := gate.Groups{}.Activate(tx,
					gate.Group{Account: "tg", Chat: "g", State: gate.GroupMention}, time.Now())
				if ok {
					t.Error("the choice was stored")
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		left := d.leave()
		activate()
		d.publish(p, inGroup("g", true, message("1", "bob", "still there?")))
		d.over(left, bus.Sent, "")
		activate()
		d.publish(p, inGroup("g", true, message("2", "bob", "still there?")))
		d.wantInbox()
	})
}

// server is a server with three groups. Owners have decided about two of them.
var server = []gate.Group{
	{Account: "tg", Chat: "g", Title: "Garden"},
	{Account: "tg", Chat: "h", Title: "House", State: gate.GroupAlways},
	{Account: "tg", Chat: "k", Title: "Kitchen", State: gate.GroupIgnored},
}

// leaveServer stores the decision to leave the server of the group g, and returns the delivery
// that the router gets.
func (d *gateFixture) leaveServer() bus.Delivery {
	d.t.Helper()
	var list []bus.Delivery
	err := d.do(func(tx *store.Tx) (err error) {
		l := bus.Leave{ID: "s", Name: "the server"}
		if _, err := d.gate.StartLeaving(tx, server, l); err != nil {
			return err
		}
		list, err = d.gate.Leaving(tx, server[0])
		return err
	})
	if err != nil || len(list) != 1 {
		d.t.Fatalf("the account is to leave %+v, %v; want one server", list, err)
	}
	return list[0]
}

// wantGroups compares the states of all groups with want, each as chat and state.
func (d *gateFixture) wantGroups(want ...string) {
	d.t.Helper()
	list, err := gate.Groups{}.List(d.db.Read(d.t.Context()))
	if err != nil {
		d.t.Fatal(err)
	}
	var got []string
	for _, g := range list {
		got = append(got, g.Chat+" "+string(g.State))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		d.t.Errorf("the groups are %q, want %q", got, want)
	}
}

// atServer runs test with the groups of the server.
func atServer(t *testing.T, test func(d *gateFixture)) {
	atDoor(t, func(d *gateFixture) {
		err := d.do(func(tx *store.Tx) error {
			err := gate.Groups{}.Set(tx, server[1], time.Now())
			return errors.Join(err, gate.Groups{}.Set(tx, server[2], time.Now()))
		})
		if err != nil {
			t.Fatal(err)
		}
		test(d)
	})
}

// Another decision about any group of a server cancels the decision to leave the server. The
// other groups get back their earlier states.
func TestCancelLeaving(t *testing.T) {
	for chat, want := range map[string][]string{
		"g": {"g mention", "h always", "k ignore"},
		"h": {"h mention", "k ignore"},
		"k": {"h always", "k mention"},
	} {
		atServer(t, func(d *gateFixture) {
			d.leaveServer()
			left := d.leaveServer() // replaces the first decision
			d.wantGroups("g leaving", "h leaving", "k leaving")
			err := d.do(func(tx *store.Tx) error {
				g := gate.Group{Account: "tg", Chat: chat, State: gate.GroupMention}
				dropped, err := d.gate.CancelLeaving(tx, g)
				if len(dropped) != 1 || dropped[0].ID != left.ID {
					t.Errorf("%+v was dropped, want delivery %d", dropped, left.ID)
				}
				return errors.Join(err, gate.Groups{}.Set(tx, g, time.Now()))
			})
			open, failed := d.outbox.IsOpen(d.db.Read(d.t.Context()), left.ID)
			if err != nil || failed != nil || open {
				t.Errorf("the server is left anyway: %v, %v, %v", open, err, failed)
			}
			d.wantGroups(want...)
		})
	}
}

// If a leave is cancelled while the router carries it out, the account may have left already.
// Then the groups count as left.
func TestStayTooLate(t *testing.T) {
	atServer(t, func(d *gateFixture) {
		left := d.leaveServer()
		d.over(&left, bus.Sending, "")
		err := d.do(func(tx *store.Tx) error {
			dropped, err := d.gate.CancelLeaving(tx, server[1])
			if len(dropped) != 1 || dropped[0].State != bus.Sending {
				t.Errorf("%+v was dropped, want what is being sent", dropped)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		d.wantGroups("h always", "k ignore")
		d.over(&left, bus.Sent, "")
		d.wantGroups("g left", "h left", "k left")
	})
}

// An operator drops the decision to leave a server. A second drop, or the drop of a failed
// delivery, changes no group.
func TestDropLeave(t *testing.T) {
	atServer(t, func(d *gateFixture) {
		drop := func(id int64) {
			t.Helper()
			err := d.do(func(tx *store.Tx) error {
				_, err := gate.DropDelivery(tx, id, time.Now())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		first := d.leaveServer()
		drop(first.ID)
		d.wantGroups("h always", "k ignore")
		second := d.leaveServer()
		drop(first.ID)
		d.wantGroups("g leaving", "h leaving", "k leaving")
		d.over(&second, bus.Dead, "not now")
		drop(second.ID)
		d.wantGroups("g ignore", "h ignore", "k ignore")
	})
}

package gate_test

import (
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

// move publishes messages together with the event that the group "old" now has the id "new".
func (d *gateFixture) move(p gate.Policy, messages ...bus.InboundMessage) {
	d.t.Helper()
	b := channels.Batch{Migrated: map[string]string{"new": "old"}, Messages: messages}
	if err := d.gate.Intake("tg", p).Publish(d.t.Context(), b); err != nil {
		d.t.Fatal(err)
	}
}

// decided stores a decision about the group "old".
func (d *gateFixture) decided(s gate.GroupState) {
	d.t.Helper()
	err := d.do(func(tx *store.Tx) error {
		return gate.Groups{}.Set(tx, gate.Group{Account: "tg", Chat: "old", State: s}, time.Now())
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// A list of groups for voice messages also applies to a group's new id, and owners are told the
// id.
func TestOverheardInMovedGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.exec("INSERT INTO identities (account, sender, person, chat) VALUES ('tg', 'ann', 1, '9')")
		p := gate.Policy{Groups: []string{gate.AnyGroup}, Overhear: []string{"old"}}
		voice := inGroup("new", false, message("1", "bob", ""))
		voice.Attachments = []bus.Attachment{{Kind: bus.Voice, Seconds: 5}}
		d.move(p, voice)
		d.wantInbox("guest ")
		if told := d.outboxed("9"); len(told) != 1 || !strings.Contains(told[0].Text, "`new`") {
			t.Errorf("the owner was told %+v", told)
		}
	})
}

// An owner is told at an account that is still configured, not at one that was removed.
func TestMoveIsToldAtConfiguredAccount(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		for i, account := range []string{"away", "tg"} {
			d.exec("INSERT INTO identities (account, sender, person, chat) VALUES ($1, 'ann', 1, $2)",
				account, []string{"8", "9"}[i])
		}
		d.move(gate.Policy{Groups: []string{"old"}})
		if away, here := d.outboxed("8"), d.outboxed("9"); len(away) > 0 || len(here) != 1 {
			t.Errorf("the owner was told %+v at the removed account and %+v here", away, here)
		}
	})
}

// In a group that has moved, people can choose which messages are answered, and the group stays
// admitted.
func TestActivateMovedGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.decided(gate.GroupMention)
		d.move(owned)
		err := d.do(func(tx *store.Tx) error {
			ok, err := gate.Groups{}.Activate(tx, gate.Group{Account: "tg", Chat: "new",
				State: gate.GroupAlways}, time.Now())
			if !ok {
				t.Error("the choice was refused")
			}
			tx.After(d.gate.Invalidate)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		d.publish(owned, inGroup("new", false, message("1", "bob", "not addressed")))
		d.wantInbox("guest not addressed")
	})
}

// A message may come in the same batch as the event that its group has moved. It is answered if
// owners admitted the group, and they are not asked again.
func TestDecidedGroupMovesAtOnce(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.publish(owned, message("1", "ann", "hello"))
		d.decided(gate.GroupMention)
		d.move(owned, inGroup("new", true, message("2", "bob", "hey")))
		if n := d.questions(); n != 0 {
			t.Errorf("the owner was asked %d times", n)
		}
		d.wantInbox("owner hello", "guest hey")
	})
}

// leaveMoved stores the decision to leave the group under one of its ids. It returns how many
// messages that dropped.
func (d *gateFixture) leaveMoved(chat string) (dropped int64) {
	d.t.Helper()
	err := d.do(func(tx *store.Tx) (err error) {
		dropped, err = d.gate.StartLeaving(tx, []gate.Group{{Account: "tg", Chat: chat}},
			bus.Leave{ID: chat, Name: "the group"})
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return dropped
}

// The decision to leave a group that has moved applies to both of its ids, no matter which one
// it names. The same is true for the decision to stay.
func TestLeaveMovedGroup(t *testing.T) {
	const earlier, present = "old", "new"
	for _, ids := range [][2]string{{earlier, present}, {present, earlier}} {
		atDoor(t, func(d *gateFixture) {
			d.decided(gate.GroupAlways)
			d.move(owned)
			err := d.do(func(tx *store.Tx) error {
				for _, chat := range ids {
					to := bus.Address{Account: "tg", Chat: chat}
					err := d.outbox.Put(tx, bus.OutboundMessage{To: to, Text: "an answer"}, time.Now())
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := d.leaveMoved(ids[0]); n != 2 {
				t.Errorf("%v: %d messages were dropped, want those to both ids", ids, n)
			}
			left, err := d.gate.HasLeft(d.db.Read(d.t.Context()), bus.Address{Account: "tg", Chat: ids[1]})
			if err != nil || !left {
				t.Errorf("%v: HasLeft = %v, %v", ids, left, err)
			}
			d.publish(owned, inGroup(present, true, message("1", "bob", "still there?")))
			err = d.do(func(tx *store.Tx) error {
				list, err := d.gate.CancelLeaving(tx, gate.Group{Account: "tg", Chat: ids[1]})
				if len(list) != 1 {
					t.Errorf("%v: Stay dropped %d decisions, want one", ids, len(list))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			d.publish(owned, inGroup(present, false, message("2", "bob", "hey")))
			d.wantInbox("guest hey")
		})
	}
}

// A group moves while the account leaves it. A message from before the leave does not mean that
// the account is back in the group.
func TestGroupMovesWhileLeft(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := owned
		p.Groups = []string{gate.AnyGroup}
		d.leaveMoved("old")
		list, err := bus.OpenLeaves(d.db.Read(d.t.Context()), "tg")
		if err != nil || len(list) != 1 {
			t.Fatalf("the outbox has %+v, %v; want one decision", list, err)
		}
		late := inGroup("new", true, message("1", "bob", "too late"))
		late.Time = time.Now()
		d.move(p)
		time.Sleep(time.Minute)
		d.over(&list[0], bus.Sent, "")
		d.publish(p, late)
		d.wantInbox()
		time.Sleep(time.Minute)
		d.publish(p, inGroup("new", true, message("2", "bob", "welcome back")))
		d.publish(p, inGroup("new", true, message("3", "bob", "hey")))
		d.wantInbox("guest welcome back", "guest hey")
	})
}

// Telegram reports a move with each message to the earlier id. The gate stores it once, also after
// a restart.
func TestRepeatedMove(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.move(owned)
		again := gate.New(d.db, d.inbox, d.outbox, discard)
		if err := again.Load(d.t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, g := range []*gate.Gate{d.gate, again} {
			err := d.do(func(*store.Tx) error { // no other transaction can begin meanwhile
				return g.Intake("tg", owned).Publish(d.t.Context(),
					channels.Batch{Migrated: map[string]string{"new": "old"}})
			})
			if err != nil {
				t.Errorf("the move is stored again: %v", err)
			}
		}
	})
}

// The gate knows both ids of a group that has moved, also after a restart.
func TestIDsOfMovedGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.move(owned)
		again := gate.New(d.db, d.inbox, d.outbox, discard)
		if err := again.Load(d.t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, g := range []*gate.Gate{d.gate, again} {
			for chat, want := range map[string]string{"old": "new", "new": "old", "another": ""} {
				if got := g.OtherID(bus.Address{Account: "tg", Chat: chat}); got != want {
					t.Errorf("the other id of %q is %q, want %q", chat, got, want)
				}
				if got := g.OtherID(bus.Address{Account: "tg2", Chat: chat}); got != "" {
					t.Errorf("on another account, the other id of %q is %q", chat, got)
				}
			}
			to := bus.Address{Account: "tg", Chat: "old", Thread: "1"}
			if got := gate.Present(g, to); got.Chat != "new" || got.Thread != "1" {
				t.Errorf("the present address of %v is %v", to, got)
			}
		}
	})
}

package channels_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
)

// do runs one of the changes to people.
func (d *door) do(change func(tx *store.Tx) error) error {
	d.t.Helper()
	return d.db.Tx(d.t.Context(), change)
}

// outboxed returns the open messages to a chat.
func (d *door) outboxed(chat string) (list []bus.OutboundMessage) {
	d.t.Helper()
	open, err := d.outbox.Open(d.db.Read(d.t.Context()), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, o := range open {
		if o.Message.To.Chat == chat {
			list = append(list, o.Message)
		}
	}
	return list
}

// What is said in a listed group and not to the agent is context; elsewhere it leaves no trace.
func TestHeardInGroups(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.ByList, Groups: []string{"listed"}}
		d.publish(p, inGroup("listed", false, message("1", "eve", "hello all")),
			inGroup("other", false, message("2", "eve", "hello others")),
			inGroup("listed", false, message("1", "eve", "hello all")))
		d.wantInbox()
		heard, err := d.inbox.Heard(d.db.Read(d.t.Context()),
			inGroup("listed", false, message("1", "eve", "")).From, 1000, time.Now())
		if err != nil || len(heard) != 1 || heard[0].Message.Text != "hello all" ||
			heard[0].Message.Role != bus.Guest {
			t.Errorf("heard %+v, %v", heard, err)
		}
		var rows int
		err = d.db.Read(d.t.Context()).QueryRow("SELECT count(*) FROM inbox").Scan(&rows)
		if err != nil || rows != 1 {
			t.Errorf("the inbox has %d rows, %v", rows, err)
		}
	})
}

// Who writes too fast is told once; owners are not bounded, nor is what waited at the platform.
func TestPace(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.Open, Owners: []string{"olga"}, PerMinute: 3}
		n := 0
		write := func(who string, count int, apart time.Duration) {
			at := time.Now()
			for i := range count {
				m := message(fmt.Sprint(n), who, fmt.Sprint(who, n))
				m.Time = at.Add(time.Duration(i) * apart)
				n++
				d.publish(p, m)
			}
		}
		write("olga", 9, 0)
		write("ann", 5, 0)
		write("bob", 9, 20*time.Second) // in an outage
		got := d.inboxed()
		counts := make(map[string]int)
		for _, m := range got {
			counts[strings.TrimRight(m, "0123456789")]++
		}
		if counts["owner olga"] != 9 || counts["user ann"] != 3 || counts["user bob"] != 9 {
			t.Errorf("inbox has %v", counts)
		}
		if told := d.outboxed("chat of ann"); len(told) != 1 {
			t.Errorf("ann was told %+v, want one message", told)
		}
		time.Sleep(time.Minute)
		write("ann", 1, 0)
		if got := d.inboxed(); len(got) != 22 {
			t.Errorf("inbox has %d messages, want one more of ann's", len(got))
		}
	})
}

// The owner is told of strangers, with buttons, where he has written before.
func TestOwnerIsTold(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.ByPairing, Owners: []string{"olga"}}
		if _, _, err := d.approve(d.ask("first")); err != nil { // an owner by pairing
			t.Fatal(err)
		}
		hostile := message("1", "eve", "hello")
		hostile.Sender.Name = "**Eve** [x](http://evil)\n`/pair`"
		d.publish(p, hostile)
		told := d.outboxed("chat of first")
		if len(told) != 2 || len(told[1].Buttons) != 2 { // the first is his own code
			t.Fatalf("the owner was told %+v", told)
		}
		if text := told[1].Text; strings.Contains(text, "**Eve**") || strings.Contains(text, "\n") {
			t.Errorf("the owner was told %q", text)
		}
		code := strings.TrimPrefix(told[1].Buttons[0].Text, "/pair ")
		if _, _, err := d.approve(code); err != nil {
			t.Errorf("Approve of the button's code = %v", err)
		}
		time.Sleep(time.Second)
		// An owner by the configuration is known from the first message on, and no owner without it.
		d.publish(p, message("2", "olga", "hi"), message("3", "olga", "again"))
		var known []string
		list, err := people.List(d.db.Read(d.t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			known = append(known, p.Sender+" "+string(p.Role))
		}
		if !slices.Equal(known, []string{"first owner", "eve user", "olga user"}) {
			t.Errorf("people are %q", known)
		}
		// She is told from now on, and no more once the configuration does not name her.
		d.publish(p, message("4", "mallory", "hello"))
		if told := d.outboxed("chat of olga"); len(told) != 1 {
			t.Errorf("the owner by the configuration was told %+v", told)
		}
		time.Sleep(10 * time.Minute)
		p.Owners = nil
		d.publish(p, message("5", "olga", "hi"))
		d.publish(p, message("6", "trudy", "hello"))
		if told := d.outboxed("chat of olga"); len(told) != 1 {
			t.Errorf("who is no owner any more was told %+v", told)
		}
	})
}

func TestDeny(t *testing.T) {
	atDoor(t, func(d *door) {
		code := d.ask("eve")
		deny := func(tx *store.Tx) error {
			_, err := people.Deny(tx, strings.ToLower(code), time.Now())
			return err
		}
		if err := d.do(deny); err != nil {
			t.Errorf("Deny = %v", err)
		}
		if err := d.do(deny); !errors.Is(err, channels.ErrNoPairing) {
			t.Errorf("second Deny = %v, want %v", err, channels.ErrNoPairing)
		}
		if _, _, err := d.approve(code); !errors.Is(err, channels.ErrNoPairing) {
			t.Errorf("Approve = %v, want %v", err, channels.ErrNoPairing)
		}
	})
}

// Roles change within a second, links make one person of two, and who is revoked is a stranger.
func TestCircle(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.ByList}
		for _, who := range []string{"ann", "bob", "cid"} {
			if _, _, err := d.approve(d.ask(who)); err != nil {
				t.Fatal(err)
			}
		}
		persons := func() (list []string) {
			all, err := people.List(d.db.Read(d.t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				list = append(list, fmt.Sprint(p.ID, p.Sender, p.Role))
			}
			slices.Sort(list)
			return list
		}
		for _, change := range []func(tx *store.Tx) error{
			func(tx *store.Tx) error { return people.SetRole(tx, 2, bus.Admin) },
			func(tx *store.Tx) error { return people.Link(tx, 2, 3) },
			func(tx *store.Tx) error { return people.Revoke(tx, 1) },
		} {
			if err := d.do(change); err != nil {
				t.Error(err)
			}
		}
		if got := persons(); !slices.Equal(got, []string{"2bobadmin", "2cidadmin"}) {
			t.Errorf("people are %q", got)
		}
		for _, change := range []func(tx *store.Tx) error{
			func(tx *store.Tx) error { return people.SetRole(tx, 9, bus.Admin) },
			func(tx *store.Tx) error { return people.Link(tx, 2, 9) },
			func(tx *store.Tx) error { return people.Link(tx, 2, 2) },
			func(tx *store.Tx) error { return people.Revoke(tx, 1) },
		} {
			if err := d.do(change); !errors.Is(err, channels.ErrNobody) {
				t.Errorf("a change of nobody = %v, want %v", err, channels.ErrNobody)
			}
		}
		time.Sleep(time.Second)
		d.publish(p, message("9", "ann", "hi"), message("9", "bob", "hi"), message("9", "cid", "hi"))
		d.wantInbox("admin hi", "admin hi")
	})
}

// A group that goes on under another id stays the one that is listed.
func TestMovedGroup(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.ByList, Groups: []string{"old"}}
		d.publish(p, inGroup("new", true, message("1", "eve", "too early")))
		err := d.gate.Intake("tg", p).Publish(d.t.Context(),
			channels.Batch{Moved: map[string]string{"new": "old"}})
		if err != nil {
			t.Fatal(err)
		}
		other := message("3", "eve", "elsewhere")
		other.From.Account = "other"
		d.publish(p, inGroup("new", true, message("2", "eve", "hello")),
			inGroup("third", true, message("2", "eve", "no")), inGroup("new", true, other))
		d.wantInbox("guest hello")
		list, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
		if err != nil || len(list) != 1 || list[0].Message.Before != "old" {
			t.Errorf("the inbox holds %+v, %v, want a message that names the old group", list, err)
		}
	})
}

// What is written in a group that has moved comes in one batch with the news of that, too: all that
// came while nobody asked for it does.
func TestMovedGroupAtOnce(t *testing.T) {
	atDoor(t, func(d *door) {
		p := channels.Policy{Access: channels.ByList, Groups: []string{"old"}}
		batch := channels.Batch{Moved: map[string]string{"new": "old"},
			Messages: []bus.InboundMessage{message("9", "eve", "alone"),
				inGroup("new", true, message("1", "eve", "hello"))}}
		if err := d.gate.Intake("tg", p).Publish(d.t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		d.wantInbox("guest hello")
		list, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
		if err != nil || len(list) != 1 || list[0].Message.Before != "old" {
			t.Errorf("the inbox holds %+v, %v, want a message that names the old group", list, err)
		}
	})
}

// Where the configuration names an owner, nobody becomes one by being the first.
func TestOwnedGateway(t *testing.T) {
	atDoor(t, func(d *door) {
		d.owned = true
		if p, _, err := d.approve(d.ask("ann")); err != nil || p.Role != bus.User {
			t.Errorf("Approve = %+v, %v, want a user", p, err)
		}
	})
}

// A policy that is replaced holds for the next message, and for what somebody has asked for before.
func TestSetPolicy(t *testing.T) {
	atDoor(t, func(d *door) {
		closed := channels.Policy{Access: channels.ByList, Allow: []string{"bob"}}
		in := d.gate.Intake("tg", open)
		publish := func(id string) {
			b := channels.Batch{Messages: []bus.InboundMessage{message(id, "ann", id)}}
			if err := in.Publish(d.t.Context(), b); err != nil {
				t.Error(err)
			}
		}
		standing := func(sender string) string {
			m := message("job", sender, "")
			m.Person, m.Role = 7, bus.Owner
			ok, err := d.gate.Standing(d.db.Read(d.t.Context()), &m)
			if err != nil {
				t.Error(err)
			}
			return fmt.Sprintf("%t %s %d", ok, m.Role, m.Person)
		}
		publish("1")
		if got := standing("ann"); got != "true user 0" {
			t.Errorf("ann's standing is %s", got)
		}
		d.gate.SetPolicy("tg", closed)
		publish("2")
		if got := standing("ann"); got != "false guest 0" {
			t.Errorf("ann's standing is %s when only bob may write", got)
		}
		if got := standing("bob"); got != "true user 0" {
			t.Errorf("bob's standing is %s", got)
		}
		d.gate.SetPolicy("tg", channels.Policy{Access: channels.ByList, Owners: []string{"ann"}})
		publish("3")
		if got := standing("ann"); got != "true owner 0" {
			t.Errorf("ann's standing is %s as an owner", got)
		}
		d.wantInbox("user 1", "owner 3")
	})
}

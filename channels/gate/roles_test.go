package gate_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

// do runs one change to people in a transaction.
func (d *gateFixture) do(change func(tx *store.Tx) error) error {
	d.t.Helper()
	return d.db.Tx(d.t.Context(), change)
}

// outboxed returns the open messages to a chat.
func (d *gateFixture) outboxed(chat string) (list []bus.OutboundMessage) {
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

// A message in a listed group that is not addressed to the agent is stored as context. In
// another group, such a message leaves no trace.
func TestAmbientInGroups(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Groups: []string{"listed"}}
		d.publish(p, inGroup("listed", false, message("1", "eve", "hello all")),
			inGroup("other", false, message("2", "eve", "hello others")),
			inGroup("listed", false, message("1", "eve", "hello all")))
		d.wantInbox()
		heard, err := d.inbox.Ambient(d.db.Read(d.t.Context()),
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

// A note that somebody writes to themselves, with the account that the gateway uses, is admitted
// only if they are its owner, no matter who else may write.
func TestSelf(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		note := func(id string) bus.InboundMessage {
			m := message(id, "me", "note")
			m.Self = true
			return m
		}
		d.publish(gate.Policy{Access: gate.Open}, note("1"))
		d.publish(gate.Policy{Access: gate.ByPairing}, note("2"))
		d.publish(gate.Policy{Access: gate.ByList, Allow: []string{"me"}}, note("3"))
		d.wantInbox()
		if told := d.outboxed(note("2").From.Chat); len(told) > 0 {
			t.Errorf("somebody is told %+v when they write to themselves", told)
		}
		d.publish(gate.Policy{Owners: []string{"me"}}, note("4"))
		d.wantInbox("owner note")
	})
}

// A person who writes too fast is told so once. Owners have no limit. Messages that waited at
// the platform don't count as too fast.
func TestPace(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.Open, Owners: []string{"olga"}, PerMinute: 3}
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
		write("bob", 9, 20*time.Second) // as if they had waited during an outage
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

// A new rate takes effect at once, also for people who have written before.
func TestPaceChanges(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		n := 0
		for _, step := range []struct{ perMinute, writes, want int }{
			{30, 1, 1}, {2, 10, 3}, {20, 2, 5}, {20, 30, 25},
		} {
			p := gate.Policy{Access: gate.Open, PerMinute: step.perMinute}
			for range step.writes {
				n++
				d.publish(p, message(fmt.Sprint(n), "ann", "hello"))
			}
			if got := len(d.inboxed()); got != step.want {
				t.Errorf("with %d a minute the inbox has %d messages, want %d",
					step.perMinute, got, step.want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Messages whose times go back and forth, as those of two clocks do, gain nothing.
func TestPaceOfTwoClocks(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.Open, PerMinute: 2}
		for n := range 10 {
			m := message(fmt.Sprint(n), "ann", "hello")
			m.Time = time.Now().Add(-time.Duration(n%2) * 5 * time.Minute)
			d.publish(p, m)
		}
		if got := d.inboxed(); len(got) != 2 {
			t.Errorf("the inbox has %q, want two messages", got)
		}
	})
}

// The owner is told of strangers, with buttons, in a chat where the owner has written before.
func TestOwnerIsTold(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByPairing, Owners: []string{"olga"}}
		if _, _, err := d.approve(d.ask("first")); err != nil { // becomes the owner by pairing
			t.Fatal(err)
		}
		hostile := message("1", "eve", "hello")
		hostile.Sender.Name = "**Eve** [x](http://evil)\n`/pair`"
		d.publish(p, hostile)
		told := d.outboxed("chat of first")
		if len(told) != 2 || len(told[1].Buttons) != 2 { // the first message is the owner's own code
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
		// olga, an owner by the configuration, is stored as a user at the first message. Only the
		// configuration makes such a person an owner.
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
		// Olga is told of strangers from now on, until the configuration no longer names her.
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
	atDoor(t, func(d *gateFixture) {
		code := d.ask("eve")
		deny := func(tx *store.Tx) error {
			_, err := people.Deny(tx, strings.ToLower(code), time.Now())
			return err
		}
		if err := d.do(deny); err != nil {
			t.Errorf("Deny = %v", err)
		}
		if err := d.do(deny); !errors.Is(err, gate.ErrNoPairing) {
			t.Errorf("second Deny = %v, want %v", err, gate.ErrNoPairing)
		}
		if _, _, err := d.approve(code); !errors.Is(err, gate.ErrNoPairing) {
			t.Errorf("Approve = %v, want %v", err, gate.ErrNoPairing)
		}
		time.Sleep(10 * time.Minute) // a denial does not expire like a code
		d.publish(pairing, message("later", "eve", "let me in"))
		d.wantOffers(1)
		denied, err := people.Denied(d.db.Read(d.t.Context()))
		if err != nil || len(denied) != 1 || denied[0].Account != "tg" || denied[0].Sender != "eve" ||
			denied[0].Name != "Name of eve" {
			t.Errorf("Denied = %+v, %v", denied, err)
		}
		undeny := func(tx *store.Tx) error { return people.Undeny(tx, "tg", "eve") }
		if err := d.do(undeny); err != nil {
			t.Errorf("Undeny = %v", err)
		}
		if err := d.do(undeny); !errors.Is(err, gate.ErrNotDenied) {
			t.Errorf("second Undeny = %v, want %v", err, gate.ErrNotDenied)
		}
		d.publish(pairing, message("at last", "eve", "let me in"))
		d.wantOffers(2)
	})
}

// A changed role takes effect within a second. A link makes one person of two. A person who is
// revoked is a stranger again.
func TestCircle(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList}
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
			if err := d.do(change); !errors.Is(err, gate.ErrNoPerson) {
				t.Errorf("a change of nobody = %v, want %v", err, gate.ErrNoPerson)
			}
		}
		time.Sleep(time.Second)
		d.publish(p, message("9", "ann", "hi"), message("9", "bob", "hi"), message("9", "cid", "hi"))
		d.wantInbox("admin hi", "admin hi")
	})
}

// After an unlink, the second person is a person of their own, without the rights of the first.
func TestUnlink(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		for _, who := range []string{"ann", "bob"} {
			if _, _, err := d.approve(d.ask(who)); err != nil {
				t.Fatal(err)
			}
		}
		var bob gate.Person
		unlink := func(who string) error {
			return d.do(func(tx *store.Tx) (err error) {
				bob, _, err = people.Unlink(tx, "tg", who, 0, time.Now())
				return err
			})
		}
		if err := unlink("bob"); !errors.Is(err, gate.ErrNotLinked) {
			t.Errorf("Unlink of somebody with one account = %v, want %v", err, gate.ErrNotLinked)
		}
		if err := unlink("eve"); !errors.Is(err, gate.ErrNoPerson) {
			t.Errorf("Unlink of a stranger = %v, want %v", err, gate.ErrNoPerson)
		}
		err := d.do(func(tx *store.Tx) error { return people.Link(tx, 1, 2) })
		if err != nil {
			t.Fatal(err)
		}
		if err := unlink("bob"); err != nil || bob.Role != bus.User || bob.ID == 1 {
			t.Errorf("Unlink = %v, and bob is %+v", err, bob)
		}
		all, err := people.List(d.db.Read(d.t.Context()))
		if err != nil || len(all) != 2 || all[0].Sender != "ann" || all[0].Role != bus.Owner ||
			all[1].Sender != "bob" || all[1].Role != bus.User {
			t.Errorf("people are %+v, %v", all, err)
		}
		time.Sleep(time.Second)
		p := gate.Policy{Access: gate.ByList}
		d.publish(p, message("9", "ann", "hi"), message("9", "bob", "hi"))
		d.wantInbox("owner hi", "user hi")
	})
}

// A listed group stays listed when it gets another id.
func TestMovedGroup(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Groups: []string{"old"}}
		d.publish(p, inGroup("new", true, message("1", "eve", "too early")))
		moved := channels.Batch{Migrated: map[string]string{"new": "old"}}
		for range 2 { // both the old and the new chat report it
			if err := d.gate.Intake("tg", p).Publish(d.t.Context(), moved); err != nil {
				t.Fatal(err)
			}
		}
		next := gate.New(d.db, d.inbox, d.outbox, discard)
		if err := next.Load(d.t.Context()); err != nil {
			t.Fatal(err)
		}
		for chat, want := range map[string]string{"new": "old", "old": "", "third": ""} {
			if got := next.PreviousID(bus.Address{Account: "tg", Chat: chat}); got != want {
				t.Errorf("the next process knows %s as %q, want %q", chat, got, want)
			}
			if got := d.gate.PreviousID(bus.Address{Account: "tg", Chat: chat}); got != want {
				t.Errorf("%s was %q before, want %q", chat, got, want)
			}
		}
		other := message("3", "eve", "elsewhere")
		other.From.Account = "other"
		d.publish(p, inGroup("new", true, message("2", "eve", "hello")),
			inGroup("third", true, message("2", "eve", "no")), inGroup("new", true, other))
		d.wantInbox("guest hello")
		list, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
		if err != nil || len(list) != 1 || list[0].Message.PreviousChat != "old" {
			t.Errorf("the inbox holds %+v, %v, want a message that names the old group", list, err)
		}
	})
}

// Owners are told of a group's new id if the configuration has rules for the old id.
func TestMovedGroupIsTold(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.exec("INSERT INTO identities (account, sender, person, chat) VALUES ('tg', 'ann', 1, '9')")
		for i, p := range []gate.Policy{
			{Groups: []string{"*"}}, {Groups: []string{"*"}, Ruled: []string{"old"}},
			{Groups: []string{"old"}},
		} {
			chat := fmt.Sprint("new", i)
			err := d.gate.Intake("tg", p).Publish(d.t.Context(),
				channels.Batch{Migrated: map[string]string{chat: "old"}})
			if err != nil {
				t.Fatal(err)
			}
			told := d.outboxed("9")
			if len(told) != i || i > 0 && !strings.Contains(told[i-1].Text, "`"+chat+"`") {
				t.Errorf("%+v: owners are told %+v", p, told)
			}
		}
	})
}

// After a pause, messages in a moved group come in the same batch as the event that it has
// moved. They are admitted as well.
func TestMovedGroupAtOnce(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Groups: []string{"old"}}
		batch := channels.Batch{Migrated: map[string]string{"new": "old"},
			Messages: []bus.InboundMessage{message("9", "eve", "alone"),
				inGroup("new", true, message("1", "eve", "hello"))}}
		if err := d.gate.Intake("tg", p).Publish(d.t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		d.wantInbox("guest hello")
		list, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
		if err != nil || len(list) != 1 || list[0].Message.PreviousChat != "old" {
			t.Errorf("the inbox holds %+v, %v, want a message that names the old group", list, err)
		}
	})
}

// If the configuration names an owner, the first person who is approved does not become an
// owner.
func TestOwnedGateway(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.owned = true
		if p, _, err := d.approve(d.ask("ann")); err != nil || p.Role != bus.User {
			t.Errorf("Approve = %+v, %v, want a user", p, err)
		}
	})
}

// A new policy applies to the next message, and also to jobs that somebody created before.
func TestSetPolicy(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		closed := gate.Policy{Access: gate.ByList, Allow: []string{"bob"}}
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
			ok, err := d.gate.MayWrite(d.db.Read(d.t.Context()), &m)
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
		d.gate.SetPolicy("tg", gate.Policy{Access: gate.ByList, Owners: []string{"ann"}})
		publish("3")
		if got := standing("ann"); got != "true owner 0" {
			t.Errorf("ann's standing is %s as an owner", got)
		}
		d.wantInbox("user 1", "owner 3")
	})
}

// When too many messages wait, only those of owners are admitted. Each other chat is told so
// once.
func TestFullInbox(t *testing.T) {
	t.Parallel()
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.Open, Owners: []string{"olga"}}
		fill := func(n int) {
			err := d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
						WHERE i < $1)
					INSERT INTO inbox (account, chat, thread, message, state, body, received_ms)
					SELECT 'tg', 'many', '', 'm' || i, 'waiting', '{}', 0 FROM n`, n)
				return err
			})
			if err != nil {
				d.t.Fatal(err)
			}
		}
		waiting := func() int {
			b, err := bus.ReadBacklog(d.db.Read(d.t.Context()))
			if err != nil {
				d.t.Fatal(err)
			}
			return b.Messages
		}
		fill(49_998)
		time.Sleep(time.Minute)
		for i := range 5 { // there is room for two
			d.publish(p, message(fmt.Sprint("a", i), "ann", "hello"))
		}
		d.publish(p, message("b", "bob", "hello"), message("c", "olga", "what is it?"))
		if n := waiting(); n != 50_001 {
			t.Errorf("%d messages wait, want two of ann's and one of olga's more", n)
		}
		if told := d.outboxed("chat of ann"); len(told) != 1 {
			t.Errorf("ann was told %+v, want one message", told)
		}
		if told := d.outboxed("chat of bob"); len(told) != 1 {
			t.Errorf("bob was told %+v, want one message", told)
		}
		if n := d.gate.Stats("tg").Dropped.Load(); n != 4 {
			t.Errorf("%d messages are counted as dropped, want 4", n)
		}
		err := d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE inbox SET state = 'done'")
			return err
		})
		if err != nil {
			d.t.Fatal(err)
		}
		time.Sleep(time.Minute)
		d.publish(p, message("a9", "ann", "hello"))
		if n := waiting(); n != 1 {
			t.Errorf("%d messages wait, want ann's", n)
		}
	})
}

// The gate queries only the sender of a message. The damaged row of another person does not
// matter.
func TestGateAsksForOne(t *testing.T) {
	t.Parallel()
	atDoor(t, func(d *gateFixture) {
		var log strings.Builder
		d.gate = gate.New(d.db, d.inbox, d.outbox, slog.New(slog.NewTextHandler(&log, nil)))
		p := gate.Policy{Access: gate.ByPairing, Owners: []string{"olga"}}
		err := d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
			for i := range 2 {
				_, err := tx.Exec("INSERT INTO people (id, name, role, created_ms) "+
					"VALUES ($1, '', $2, 0)", i+1, []string{"user", "king"}[i])
				if err == nil {
					_, err = tx.Exec("INSERT INTO identities (account, sender, person) "+
						"VALUES ('tg', $1, $2)", []string{"ann", "eve"}[i], i+1)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			d.t.Fatal(err)
		}
		d.publish(p, message("1", "ann", "hello"))
		d.wantInbox("user hello")
		if log.Len() > 0 {
			t.Errorf("the log says %s", log.String())
		}
		d.publish(p, message("2", "eve", "open"))
		d.wantInbox("user hello")
		if !strings.Contains(log.String(), "role=king") {
			t.Errorf("the log says %q, want that eve's row is damaged", log.String())
		}
	})
}

// A group that is forgotten keeps its old id, so that rules for that id still apply after a
// restart.
func TestForgottenGroupKeepsItsMove(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		err := d.gate.Intake("tg", gate.Policy{}).Publish(d.t.Context(),
			channels.Batch{Migrated: map[string]string{"new": "old"}})
		if err == nil {
			err = d.do(func(tx *store.Tx) error {
				return gate.Forget(tx, []bus.Address{{Account: "tg", Chat: "new"},
					{Account: "tg", Chat: "old"}})
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		moves, err := gate.Moves(d.db.Read(d.t.Context()))
		if err != nil || len(moves) != 1 || moves[0].Before != "old" {
			t.Errorf("the moves are %+v, %v; want that of the group", moves, err)
		}
	})
}

package gate_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

// A gateFixture is a gate with its store.
type gateFixture struct {
	owned  bool // the configuration names an owner
	t      *testing.T
	db     *store.DB
	inbox  *bus.Inbox
	outbox *bus.Outbox
	gate   *gate.Gate
}

// atDoor runs test in a synctest bubble.
func atDoor(t *testing.T, test func(d *gateFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &gateFixture{t: t, db: openStore(t, t.TempDir()), inbox: bus.NewInbox(),
			outbox: bus.NewOutbox()}
		d.gate = gate.New(d.db, d.inbox, d.outbox, discard)
		test(d)
	})
}

func message(id, sender, text string) bus.InboundMessage {
	return bus.InboundMessage{
		ID: id, From: bus.Address{Account: "tg", Chat: "chat of " + sender},
		Sender: bus.Sender{ID: sender, Name: "Name of " + sender, Username: "boss"},
		Text:   text, Time: time.Now(), Addressed: true,
	}
}

// inGroup turns m into a message in a group.
func inGroup(group string, addressed bool, m bus.InboundMessage) bus.InboundMessage {
	m.From.Chat, m.Group, m.Addressed = group, true, addressed
	return m
}

// claim gives m the role of an owner, as if the channel had said so.
func claim(m bus.InboundMessage) bus.InboundMessage {
	m.Role = bus.Owner
	return m
}

func (d *gateFixture) publish(p gate.Policy, messages ...bus.InboundMessage) {
	d.t.Helper()
	b := channels.Batch{Messages: messages}
	if err := d.gate.Intake("tg", p).Publish(d.t.Context(), b); err != nil {
		d.t.Fatal(err)
	}
}

// inboxed returns the waiting messages, each as role and text.
func (d *gateFixture) inboxed() (list []string) {
	d.t.Helper()
	received, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, r := range received {
		list = append(list, string(r.Message.Role)+" "+r.Message.Text)
	}
	return list
}

func (d *gateFixture) wantInbox(want ...string) {
	d.t.Helper()
	if got := d.inboxed(); !slices.Equal(got, want) {
		d.t.Errorf("inbox has %q, want %q", got, want)
	}
}

func (d *gateFixture) cursor() string {
	d.t.Helper()
	c, err := d.gate.Intake("tg", open).Cursors(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return c[""]
}

func (d *gateFixture) exec(query string, args ...any) {
	d.t.Helper()
	err := d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

var open = gate.Policy{Access: gate.Open}

// A message that the platform delivers again is stored once.
func TestRedelivery(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", open)
		batch := channels.Batch{Cursor: "2",
			Messages: []bus.InboundMessage{message("1", "ann", "one"), message("2", "ann", "two")}}
		later := channels.Batch{Cursor: "3", Messages: []bus.InboundMessage{
			message("2", "ann", "two"), message("3", "ann", "three"), message("1", "bob", "other")}}
		for _, b := range []channels.Batch{batch, batch, later} {
			if err := in.Publish(d.t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		d.wantInbox("user one", "user two", "user three", "user other")
		d.exec("UPDATE inbox SET state = 'done'") // also after the messages were answered
		if err := in.Publish(d.t.Context(), later); err != nil {
			t.Fatal(err)
		}
		d.wantInbox()
		if c := d.cursor(); c != "3" {
			t.Errorf("cursor is %q, want 3", c)
		}
	})
}

// The cursor is never stored before its messages, so that a failure loses none of them.
func TestCursorWithMessages(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", open)
		if c := d.cursor(); c != "" {
			t.Errorf("cursor is %q at the beginning", c)
		}
		first := channels.Batch{Cursor: "1",
			Messages: []bus.InboundMessage{message("1", "ann", "one")}}
		if err := in.Publish(d.t.Context(), first); err != nil {
			t.Fatal(err)
		}
		<-d.inbox.C()
		d.exec("DELETE FROM inbox")
		d.exec(`CREATE TRIGGER broken BEFORE INSERT ON inbox WHEN NEW.message = '3'
			BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
		b := channels.Batch{Cursor: "2",
			Messages: []bus.InboundMessage{message("2", "ann", "two"), message("3", "ann", "three")}}
		if err := in.Publish(d.t.Context(), b); err == nil {
			t.Error("Publish = nil, want an error")
		}
		d.wantInbox()
		if c := d.cursor(); c != "1" {
			t.Errorf("cursor is %q after a failure, want 1", c)
		}
		select {
		case <-d.inbox.C():
			t.Error("the reader of the inbox was woken for nothing")
		default:
		}
		d.exec("DROP TRIGGER broken")
		if err := in.Publish(d.t.Context(), b); err != nil {
			t.Error(err)
		}
		d.wantInbox("user two", "user three")
		if c := d.cursor(); c != "2" {
			t.Errorf("cursor is %q, want 2", c)
		}
		select {
		case <-d.inbox.C():
		default:
			t.Error("the reader of the inbox was not woken")
		}
		b = channels.Batch{Messages: []bus.InboundMessage{message("4", "ann", "four")}}
		if err := in.Publish(d.t.Context(), b); err != nil { // without a cursor
			t.Error(err)
		}
		if c := d.cursor(); c != "2" {
			t.Errorf("cursor is %q, want 2", c)
		}
	})
}

// If a place no longer exists, its cursor is deleted. The other cursors are kept.
func TestPlaceIsGone(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", open)
		for _, b := range []channels.Batch{
			{CursorKey: "a", Cursor: "1", Messages: []bus.InboundMessage{message("1", "ann", "one")}},
			{CursorKey: "b", Cursor: "2", Messages: []bus.InboundMessage{message("2", "bob", "two")}},
			{CursorKey: "a", Forget: true},
		} {
			if err := in.Publish(d.t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		cursors, err := in.Cursors(d.t.Context())
		if err != nil || len(cursors) != 1 || cursors["b"] != "2" {
			t.Errorf("the cursors are %v, %v; want that of b", cursors, err)
		}
		d.wantInbox("user one", "user two")
	})
}

// A cursor can be stored without a message, and deleted unless a message has replaced it.
func TestKeptCursor(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", open)
		for _, b := range []channels.Batch{
			{CursorKey: "a", Cursor: "~1", Keep: true},
			{CursorKey: "b", Cursor: "~1", Keep: true},
			{CursorKey: "c", Cursor: "~1", Keep: true},
			{CursorKey: "d", Cursor: "1"},
			{CursorKey: "a", Cursor: "1", Messages: []bus.InboundMessage{message("1", "ann", "one")}},
			{CursorKey: "a", Cursor: "~1", Forget: true},
			{CursorKey: "b", Cursor: "~1", Forget: true},
		} {
			if err := in.Publish(d.t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		cursors, err := in.Cursors(d.t.Context())
		want := map[string]string{"a": "1", "c": "~1"}
		if err != nil || !maps.Equal(cursors, want) {
			t.Errorf("the cursors are %v, %v; want %v", cursors, err, want)
		}
	})
}

// If the cursor can't be written, its messages are not stored either.
func TestMessagesWithCursor(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.exec(`CREATE TRIGGER broken BEFORE INSERT ON places
			BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
		err := d.gate.Intake("tg", open).Publish(d.t.Context(), channels.Batch{Cursor: "1",
			Messages: []bus.InboundMessage{message("1", "ann", "one")}})
		if err == nil {
			t.Error("Publish = nil, want an error")
		}
		d.wantInbox()
	})
}

func withName(m bus.InboundMessage, username string) bus.InboundMessage {
	m.Sender.Username = username
	return m
}

func TestAdmission(t *testing.T) {
	allow := gate.Policy{Access: gate.ByList, Allow: []string{"ann"},
		Owners: []string{"olga"}, Groups: []string{"listed"}}
	pairing := allow
	pairing.Access = gate.ByPairing
	openListed := gate.Policy{Access: gate.Open, Groups: []string{"listed"}}
	always := allow
	always.Always = true
	noPhones := gate.Policy{Access: gate.ByList, Owners: []string{"+4912345"},
		Allow: []string{"+4954321"}}
	phones := noPhones
	phones.Phones = true
	ann, eve := message("1", "ann", "hello"), message("1", "eve", "hello")
	olga := message("1", "olga", "hello")
	for _, tt := range []struct {
		name   string
		policy gate.Policy
		m      bus.InboundMessage
		want   string // role, or "" if it is not admitted
	}{
		{"open", open, eve, "user"},
		{"open, owner", gate.Policy{Access: gate.Open, Owners: []string{"eve"}}, eve, "owner"},
		{"open, any group", open, inGroup("g", true, eve), "user"},
		{"open, any group, not addressed", open, inGroup("g", false, eve), ""},
		{"open, listed group", openListed, inGroup("listed", true, eve), "user"},
		{"open, another group", openListed, inGroup("g", true, eve), ""},
		{"listed", allow, ann, "user"},
		{"owner", allow, olga, "owner"},
		{"stranger", allow, eve, ""},
		{"stranger in a listed group", allow, inGroup("listed", true, eve), "guest"},
		{"listed group, not addressed", allow, inGroup("listed", false, ann), ""},
		{"listed in another group", allow, inGroup("g", true, ann), ""},
		{"always, listed group, not addressed", always, inGroup("listed", false, ann), "user"},
		{"always, another group", always, inGroup("g", false, ann), ""},
		{"owner by phone", phones, withName(eve, "+4912345"), "owner"},
		{"listed by phone", phones, withName(eve, "+4954321"), "user"},
		{"phone without a plus", phones, withName(eve, "4912345"), ""},
		{"a username like a phone", noPhones, withName(eve, "+4912345"), ""},
		{"owner in another group", allow, inGroup("g", true, olga), ""},
		{"owner in a listed group", allow, inGroup("listed", true, olga), "owner"},
		{"pairing, listed", pairing, ann, "user"},
		{"pairing, owner", pairing, olga, "owner"},
		{"pairing, stranger", pairing, eve, ""},
		{"pairing, listed group", pairing, inGroup("listed", true, eve), "guest"},
		{"pairing, another group", pairing, inGroup("g", true, eve), ""},
		{"nothing set", gate.Policy{}, eve, ""},
		{"nothing set, group", gate.Policy{}, inGroup("g", true, eve), ""},
		{"unknown access", gate.Policy{Access: "Open"}, eve, ""},
		// People choose their names themselves, so names prove nothing.
		{"listed by username", gate.Policy{Access: gate.ByList,
			Allow: []string{"boss"}, Owners: []string{"boss"}}, eve, ""},
		{"listed by name", gate.Policy{Access: gate.ByList,
			Allow: []string{"Name of eve"}, Owners: []string{"Name of eve"}}, eve, ""},
		{"chat listed as a sender", gate.Policy{Access: gate.ByList,
			Allow: []string{eve.From.Chat}}, eve, ""},
		{"claims a role", allow, claim(eve), ""},
		{"claims a role in a group", allow, claim(inGroup("listed", true, eve)), "guest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			atDoor(t, func(d *gateFixture) {
				d.publish(tt.policy, tt.m)
				if tt.want == "" {
					d.wantInbox()
				} else {
					d.wantInbox(tt.want + " hello")
				}
			})
		})
	}
}

// A person who is not admitted leaves no trace. The cursor still moves on, and the other
// people's messages are stored.
func TestStrangersAmongOthers(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Allow: []string{"ann"}}
		err := d.gate.Intake("tg", p).Publish(d.t.Context(), channels.Batch{Cursor: "9",
			Messages: []bus.InboundMessage{message("1", "eve", "x"), message("2", "ann", "hello"),
				message("3", "eve", "y")}})
		if err != nil {
			t.Fatal(err)
		}
		d.wantInbox("user hello")
		if c := d.cursor(); c != "9" {
			t.Errorf("cursor is %q, want 9", c)
		}
		for _, table := range []string{"outbox", "people", "identities", "pairings"} {
			var n int
			err := d.db.Read(d.t.Context()).QueryRow("SELECT count(*) FROM " + table).Scan(&n)
			if err != nil || n != 0 {
				t.Errorf("%d rows in %s, %v", n, table, err)
			}
		}
	})
}

// Accounts publish concurrently, each with its own cursor and order.
func TestPublishConcurrently(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		const accounts, batches = 8, 20
		var wg sync.WaitGroup
		for a := range accounts {
			in := d.gate.Intake(fmt.Sprint(a), open)
			wg.Go(func() {
				for i := range batches {
					m := message(fmt.Sprint(i), "ann", fmt.Sprintf("%d %02d", a, i))
					m.From.Account = fmt.Sprint(a)
					b := channels.Batch{Messages: []bus.InboundMessage{m}, Cursor: fmt.Sprint(i + 1)}
					if err := in.Publish(d.t.Context(), b); err != nil {
						t.Errorf("Publish = %v", err)
					}
				}
			})
		}
		wg.Wait()
		got := d.inboxed()
		for a := range accounts {
			var own []string
			for _, m := range got {
				if strings.HasPrefix(m, fmt.Sprintf("user %d ", a)) {
					own = append(own, m)
				}
			}
			if len(own) != batches || !slices.IsSorted(own) {
				t.Errorf("account %d published %q", a, own)
			}
			c, err := d.gate.Intake(fmt.Sprint(a), open).Cursors(d.t.Context())
			if err != nil || c[""] != fmt.Sprint(batches) {
				t.Errorf("cursor of account %d is %q, %v", a, c, err)
			}
		}
	})
}

// If the store is broken, nobody is admitted and nothing is acknowledged.
func TestStoreClosed(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", open)
		if err := d.db.Close(); err != nil {
			t.Fatal(err)
		}
		b := channels.Batch{Messages: []bus.InboundMessage{message("1", "ann", "one")}}
		if err := in.Publish(d.t.Context(), b); err == nil {
			t.Error("Publish = nil, want an error")
		}
		if _, err := in.Cursors(d.t.Context()); err == nil {
			t.Error("Cursors = nil, want an error")
		}
	})
}

// Another bot with the same account name counts its messages from 1, too. These messages must
// not be taken for those that the first bot received.
func TestAnotherBot(t *testing.T) {
	inWorld(t, func(w *world) {
		inbox := bus.NewInbox()
		g := gate.New(w.db, inbox, w.outbox, discard)
		in := g.Intake("full", gate.Policy{Access: gate.Open})
		ctx := w.t.Context()
		say := func(text string) {
			err := in.Publish(ctx, channels.Batch{Cursor: "77", Messages: []bus.InboundMessage{
				{ID: "1", From: chatA, Sender: bus.Sender{ID: "ann"}, Text: text, Addressed: true}}})
			if err != nil {
				w.t.Fatal(err)
			}
		}
		identify := func(id, cursor string) {
			if err := in.Identify(ctx, id); err != nil {
				w.t.Fatal(err)
			}
			if got, err := in.Cursors(ctx); err != nil || got[""] != cursor {
				w.t.Errorf("the cursor of %s is %q, %v, want %q", id, got[""], err, cursor)
			}
		}
		identify("first", "")
		say("to the first")
		w.exec(`INSERT INTO inbox (account, chat, message, state, body, received_ms, origin)
			VALUES ('full', 'a', 'task:1', 'waiting', '{"id":"task:1","origin":{"kind":"task"}}', 1,
				'task')`)
		identify("first", "77")
		say("to the first again")
		identify("second", "")
		say("to the second")
		identify("first", "")
		say("to the first as it is back")
		list, err := inbox.Waiting(w.db.Read(ctx), 0)
		if err != nil {
			w.t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, r.Message.Text)
		}
		want := []string{"to the first", "", "to the second", "to the first as it is back"}
		if !slices.Equal(got, want) {
			w.t.Errorf("in the inbox are %q, want %q", got, want)
		}
		var n int
		err = w.db.Read(ctx).QueryRow("SELECT count(*) FROM inbox WHERE message = 'task:1'").Scan(&n)
		if err != nil || n != 1 {
			w.t.Errorf("%d notes have their ID, %v, want one", n, err)
		}
	})
}

// If a channel's code panics, the item is skipped and counted.
func TestRecoverPanic(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		g := gate.New(w.db, bus.NewInbox(), w.outbox, slog.New(slog.NewTextHandler(&log, nil)))
		in := g.Intake("full", open)
		if in.Recover(w.t.Context(), func() { panic("a bug with PRIVATE words") }) {
			w.t.Error("Try of what panics = true")
		}
		if !strings.Contains(log.String(), "panic=string") || strings.Contains(log.String(), "PRIVATE") {
			w.t.Errorf("the log shows what the panic said, or not what it was: %s", &log)
		}
		done := false
		if !in.Recover(w.t.Context(), func() { done = true }) || !done {
			w.t.Error("Try of what works = false")
		}
		if n := g.Stats("full").Skipped.Load(); n != 1 {
			w.t.Errorf("%d were counted, want 1", n)
		}
	})
}

// A person whom a transaction admitted is not admitted if that transaction fails.
func TestStandingOfRolledBack(t *testing.T) {
	inWorld(t, func(w *world) {
		g := gate.New(w.db, bus.NewInbox(), w.outbox, discard)
		g.SetPolicy("full", gate.Policy{Access: gate.ByList})
		standing := func(q store.Queryer) bool {
			m := bus.InboundMessage{From: chatA, Sender: bus.Sender{ID: "ann"}}
			ok, err := g.MayWrite(q, &m)
			if err != nil {
				w.t.Fatal(err)
			}
			return ok
		}
		mine := errors.New("mine")
		err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("INSERT INTO people (id, name, role, created_ms) VALUES (1, 'A', 'user', 1)")
			if err != nil {
				return err
			}
			_, err = tx.Exec("INSERT INTO identities (account, sender, person) VALUES ('full', 'ann', 1)")
			if err == nil && !standing(tx) {
				w.t.Error("a transaction does not see whom it has let in")
			}
			return errors.Join(err, mine)
		})
		if !errors.Is(err, mine) {
			w.t.Fatal(err)
		}
		if standing(w.db.Read(w.t.Context())) {
			w.t.Error("somebody is let in whom nobody has let in")
		}
	})
}

// A message that could not be stored is delivered again. It counts only once for its sender's
// rate.
func TestRateAfterFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		inbox := bus.NewInbox()
		p := open
		p.PerMinute = 1
		in := gate.New(w.db, inbox, w.outbox, discard).Intake("full", p)
		batch := channels.Batch{Messages: []bus.InboundMessage{{ID: "1", From: chatA, Text: "hello",
			Sender: bus.Sender{ID: "ann"}, Addressed: true, Time: time.Now()}}}
		w.exec(`CREATE TRIGGER broken BEFORE INSERT ON inbox
			BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		if err := in.Publish(w.t.Context(), batch); err == nil {
			w.t.Fatal("Publish = nil where nothing can be stored")
		}
		w.exec("DROP TRIGGER broken")
		if err := in.Publish(w.t.Context(), batch); err != nil {
			w.t.Fatal(err)
		}
		list, err := inbox.Waiting(w.db.Read(w.t.Context()), 0)
		if err != nil || len(list) != 1 {
			w.t.Errorf("%d messages are in the inbox, %v, want one", len(list), err)
		}
	})
}

// Repeated deliveries are counted, and the debug log names them.
func TestRepeated(t *testing.T) {
	t.Parallel()
	atDoor(t, func(d *gateFixture) {
		var log strings.Builder
		d.gate = gate.New(d.db, d.inbox, d.outbox, slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug})))
		p := gate.Policy{Access: gate.Open}
		d.publish(p, message("1", "ann", "hello"))
		d.publish(p, message("1", "ann", "hello"), message("2", "ann", "you"))
		d.wantInbox("user hello", "user you")
		s := d.gate.Stats("tg")
		if n, m := s.Received.Load(), s.Repeated.Load(); n != 2 || m != 1 {
			t.Errorf("%d are counted as received and %d as repeated, want 2 and 1", n, m)
		}
		if !strings.Contains(log.String(), `it is already in the inbox" from="tg/chat of ann" id=1`) {
			t.Errorf("the log says\n%s", log.String())
		}
	})
}

package gate_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
)

// fragile makes a gate panic with some messages. It is the handler of its log, and a listener.
type fragile struct{ slog.Handler }

// Handle panics while the gate decides about a message with the ID "undecided".
func (f fragile) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "id" && a.Value.String() == "undecided" {
			panic("a bug in the decision")
		}
		return true
	})
	return nil
}

func (f fragile) Enabled(context.Context, slog.Level) bool { return true }

// Admitted panics after the gate has stored a message with the ID "stored".
func (f fragile) Admitted(messages []bus.InboundMessage) {
	for _, m := range messages {
		if m.ID == "stored" {
			panic("a bug after the commit")
		}
	}
}

// TestPublishPanics checks that a message with which the gate panics delays no other message of its
// batch, that the platform does not deliver the batch again, and that the gate and the database
// still work.
func TestPublishPanics(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		f := fragile{slog.DiscardHandler}
		d.gate = gate.New(d.db, d.inbox, d.outbox, slog.New(f))
		d.gate.Notify(f)
		p := gate.Policy{Access: gate.ByList, Allow: []string{"ann"}, PerMinute: 7}
		b := channels.Batch{Cursor: "2", Messages: []bus.InboundMessage{
			message("1", "ann", "one"), message("undecided", "eve", "two"),
			message("stored", "ann", "three"), message("4", "ann", "four"),
		}}
		for range 2 {
			if err := d.gate.Intake("tg", p).Publish(d.t.Context(), b); err != nil {
				d.t.Fatal(err)
			}
			d.wantInbox("user one", "user three", "user four")
			if got := d.cursor(); got != "2" {
				d.t.Errorf("the cursor is %q, want 2", got)
			}
		}
		if n := d.gate.Stats("tg").Skipped.Load(); n != 3 {
			d.t.Errorf("%d are counted, want 3: one of the panics does not come again", n)
		}
		d.publish(p, message("5", "ann", "five"), message("6", "ann", "six"))
		d.wantInbox("user one", "user three", "user four", "user five", "user six")
	})
}

// TestUnansweredOnce checks that a sender without a reply is told so once, even if the gate panics.
func TestUnansweredOnce(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.gate.Notify(fragile{})
		told := 0
		err := d.gate.Intake("tg", gate.Policy{Access: gate.ByList, Allow: []string{"ann"}}).Publish(
			d.t.Context(), channels.Batch{
				Messages: []bus.InboundMessage{
					message("1", "eve", "one"), message("stored", "ann", "two"),
				},
				Unanswered: func(string, string) { told++ },
			})
		if err != nil || told != 1 {
			d.t.Errorf("Publish = %v, with %d texts; want 1", err, told)
		}
		d.wantInbox("user two")
	})
}

// TestRefusalsNameReason checks what people read who are refused: in a chat it is about them, in a
// group about the group. A reply in a group quotes their message.
func TestRefusalsNameReason(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Allow: []string{"ann"}, PerMinute: 1,
			Groups: []string{"listed"}}
		told := make(map[string]string)
		err := d.gate.Intake("tg", p).Publish(d.t.Context(), channels.Batch{
			Messages: []bus.InboundMessage{
				message("1", "eve", "hello"), inGroup("other", true, message("2", "ann", "hello")),
				inGroup("listed", true, message("3", "ann", "one")),
				inGroup("listed", true, message("4", "ann", "two")),
			},
			Unanswered: func(id, text string) { told[id] = text },
		})
		if err != nil || len(told) != 2 || !strings.HasPrefix(told["1"], "I answer only people") ||
			!strings.HasPrefix(told["2"], "I don't answer in this channel") {
			d.t.Errorf("Publish = %v; told %q", err, told)
		}
		list, err := bus.NewOutbox().Open(d.db.Read(d.t.Context()), 0)
		if err != nil || len(list) != 1 || list[0].Message.ReplyTo != "4" {
			d.t.Errorf("the outbox has %+v, %v; want a reply to the message that came too fast", list, err)
		}
	})
}

// TestHold checks that held messages reach the inbox when a batch releases them, in the order that
// it says. The gate holds no message that it refuses or stores as context.
func TestHold(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Allow: []string{"ann"}, PerMinute: 9,
			Groups: []string{"listed"}}
		in := d.gate.Intake("tg", p)
		publish := func(b channels.Batch) {
			if err := in.Publish(d.t.Context(), b); err != nil {
				d.t.Fatal(err)
			}
		}
		hold := func(m bus.InboundMessage) channels.Batch {
			return channels.Batch{Messages: []bus.InboundMessage{m}, Hold: true}
		}
		publish(hold(message("2", "ann", "two")))
		publish(hold(message("2", "ann", "two"))) // again
		publish(hold(message("9", "eve", "hello")))
		publish(hold(inGroup("listed", false, message("8", "ann", "aside"))))
		d.wantInbox()
		room := bus.Address{Account: "tg", Chat: "listed"}
		aside, err := d.inbox.Ambient(d.db.Read(d.t.Context()), room, 1<<40, time.Now())
		if err != nil || len(aside) != 1 {
			d.t.Errorf("%d messages are context, %v; want the one in the group", len(aside), err)
		}
		if n := d.gate.Stats("tg").Refused.Load(); n != 1 {
			d.t.Errorf("%d messages were refused, want Eve's", n)
		}
		last := hold(message("1", "ann", "one"))
		last.Release = func(held []bus.InboundMessage) []bus.InboundMessage {
			slices.Reverse(held)
			return held
		}
		publish(last)
		d.wantInbox("user one", "user two")
		publish(last)
		d.publish(p, message("2", "ann", "two"))
		d.wantInbox("user one", "user two")
		s := d.gate.Stats("tg")
		if received, repeated := s.Received.Load(), s.Repeated.Load(); received != 2 || repeated != 1 {
			d.t.Errorf("%d messages received and %d repeated, want 2 and 1", received, repeated)
		}
	})
}

// TestHoldPanics checks that the gate holds and releases messages also if it panics with one.
func TestHoldPanics(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.gate.Notify(fragile{})
		in := d.gate.Intake("tg", gate.Policy{Access: gate.ByList, Allow: []string{"ann"}})
		held := message("stored", "ann", "two")
		for _, b := range []channels.Batch{
			{Messages: []bus.InboundMessage{held}, Hold: true},
			{Messages: []bus.InboundMessage{message("1", "ann", "one")},
				Release: func(held []bus.InboundMessage) []bus.InboundMessage { return held }},
		} {
			if err := in.Publish(d.t.Context(), b); err != nil {
				d.t.Fatal(err)
			}
		}
		d.wantInbox("user one", "user two")
	})
}

// TestReleasePanics checks that a panic while a message is released keeps no other from being
// released, and does not end the process.
func TestReleasePanics(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", gate.Policy{Access: gate.ByList, Allow: []string{"ann"}})
		bad := true
		for _, b := range []channels.Batch{
			{Hold: true, Messages: []bus.InboundMessage{
				message("1", "ann", "one"), message("2", "ann", "two"), message("3", "ann", "three")}},
			{Release: func(held []bus.InboundMessage) []bus.InboundMessage {
				if len(held) == 3 && bad {
					bad = false
					panic("a bug in the channel")
				}
				return held
			}},
		} {
			if err := in.Publish(d.t.Context(), b); err != nil {
				d.t.Fatal(err)
			}
		}
		d.wantInbox("user one", "user two", "user three")
	})
}

// TestReleaseUnreadable checks that a held message that can't be read is set aside, and keeps no
// other from being released.
func TestReleaseUnreadable(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		in := d.gate.Intake("tg", gate.Policy{Access: gate.ByList, Allow: []string{"ann"}})
		publish := func(b channels.Batch) {
			if err := in.Publish(d.t.Context(), b); err != nil {
				d.t.Fatal(err)
			}
		}
		publish(channels.Batch{Hold: true, Messages: []bus.InboundMessage{
			message("1", "ann", "one"), message("2", "ann", "two")}})
		d.exec("UPDATE inbox SET body = '{' WHERE message = '1'")
		publish(channels.Batch{
			Release: func(held []bus.InboundMessage) []bus.InboundMessage { return held }})
		d.wantInbox("user two")
		var state string
		row := d.db.Read(d.t.Context()).QueryRow("SELECT state FROM inbox WHERE message = '1'")
		if err := row.Scan(&state); err != nil || state != "bad" {
			d.t.Errorf("the message is %q, %v; want it set aside", state, err)
		}
	})
}

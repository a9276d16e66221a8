package discord_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

type fields = map[string]any

// at returns the address of a channel, or of a thread in it.
func at(chat, thread string) bus.Address {
	return bus.Address{Account: "dc", Chat: chat, Thread: thread}
}

// An inboundCase is a message and its expected result.
type inboundCase struct {
	name string
	in   discordtest.Message
	want func(*bus.InboundMessage) // changes the plain message into the wanted one; nil: ignored
}

func inboundCases(ours string) []inboundCase {
	text := func(s string, addressed bool) func(*bus.InboundMessage) {
		return func(m *bus.InboundMessage) { m.Text, m.Addressed = s, addressed }
	}
	const me, hers = "<@" + bot + ">", "<@" + other + ">"
	return []inboundCase{
		{"direct", discordtest.Message{Text: "hello"}, text("hello", true)},
		{"direct with a mention", discordtest.Message{Text: me + ", hello"}, text("hello", true)},
		{"chatter", discordtest.Message{Channel: room, Text: "hello"}, text("hello", false)},
		{"mention", discordtest.Message{Channel: room, Text: me + ", hello"}, text("hello", true)},
		{"mention of old form", discordtest.Message{Channel: room, Text: "hey <@!" + bot + "> !"},
			text("hey !", true)},
		{"mention alone", discordtest.Message{Channel: room, Text: me}, text("@Gateway", true)},
		{"mention on its own line", discordtest.Message{Channel: room, Text: "a\n" + me + " b"},
			text("a\nb", true)},
		{"mention of our role", discordtest.Message{Channel: room, Text: "<@&71> hello"},
			text("hello", true)},
		{"mention of our role alone", discordtest.Message{Channel: talk, Text: "<@&71>"},
			func(m *bus.InboundMessage) {
				m.Text, m.From, m.Addressed = "@Gateway", at(room, talk), true
			}},
		{"mention of another role", discordtest.Message{Channel: room, Text: "<@&72><@&73> hello"},
			text("@other bots@gardeners hello", false)},
		{"mention of another", discordtest.Message{Channel: room, Text: hers + " hello"},
			text("@bob hello", false)},
		{"everybody", discordtest.Message{Channel: room, Text: "@everyone look"},
			text("@everyone look", false)},
		{"no mention", discordtest.Message{Channel: room, Text: "<@77> <#88> <@&99> a < b <"},
			text("<@77> <#88> <@&99> a < b <", false)},
		{"channel", discordtest.Message{Channel: room, Text: "see <#" + room + ">"},
			text("see #general", false)},
		{"channel that nobody has written to", discordtest.Message{Channel: room,
			Text: "see <#" + lobby + ">"}, text("see #lobby", false)},
		{"channel of another guild", discordtest.Message{Channel: room, Text: "see <#79>"},
			text("see <#79>", false)},
		{"emoji", discordtest.Message{Channel: room, Text: "<:party:123><a:dance:456> </help:7>"},
			text(":party::dance: /help", false)},
		{"date", discordtest.Message{Channel: room, Text: "at <t:1700000000:R>"},
			text("at 2023-11-14 22:13 UTC", false)},
		{"sticker", discordtest.Message{Extra: fields{"sticker_items": []fields{
			{"id": "1", "name": "Wave]\u202e", "format_type": 1}}}}, text("[sticker: Wave)]", true)},
		{"poll", discordtest.Message{Extra: fields{"poll": fields{
			"question": fields{"text": "Tea?"}, "answers": []fields{
				{"answer_id": 1, "poll_media": fields{"text": "Green"}},
				{"answer_id": 2, "poll_media": fields{"text": "Black"}}}}}},
			text("[poll: Tea?]\n- Green\n- Black", true)},
		{"reply to us", discordtest.Message{Channel: room, Text: "yes", ReplyTo: ours},
			func(m *bus.InboundMessage) {
				m.Text, m.Addressed = "yes", true
				m.ReplyTo = &bus.Quote{ID: ours, Sender: "Gateway", Text: "**Shall** I?", Ours: true}
			}},
		{"reply to what is gone", discordtest.Message{Text: "yes", Extra: fields{
			"type": 19, "message_reference": fields{"message_id": "5"}, "referenced_message": nil}},
			text("yes", true)},
		{"reply to components of an unknown kind", discordtest.Message{Text: "yes", Extra: fields{
			"type": 19, "referenced_message": fields{"id": "5", "content": "x", "author": fields{
				"id": "6", "username": "bot", "bot": true},
				"components": []fields{{"type": 99, "accent": []int{1}}}}}},
			func(m *bus.InboundMessage) {
				m.Text, m.ReplyTo = "yes", &bus.Quote{ID: "5", Sender: "bot", Text: "x"}
			}},
		// See https://github.com/NousResearch/hermes-agent/issues/45188.
		{"reply to an embed", discordtest.Message{Text: "why?", Extra: fields{
			"type": 19, "referenced_message": fields{"id": "5", "content": "", "author": fields{
				"id": "6", "username": "ci", "bot": true}, "embeds": []fields{
				{"type": "rich", "title": "Build 7 failed", "description": "by " + hers, "fields": []fields{
					{"name": "Step", "value": "test", "inline": true}}, "footer": fields{"text": "main"}},
				{"type": "article", "title": "a preview"}}}}},
			func(m *bus.InboundMessage) {
				m.Text, m.ReplyTo = "why?", &bus.Quote{ID: "5", Sender: "ci",
					Text: "Build 7 failed\nby " + hers + "\nStep: test\nmain"}
			}},
		{"reply to text in components", discordtest.Message{Text: "why?", Extra: fields{
			"type": 19, "referenced_message": fields{"id": "5", "content": "", "author": fields{
				"id": "6", "username": "ci", "bot": true}, "flags": 1 << 15, "components": []fields{
				{"type": 17, "components": []fields{{"type": 10, "content": "Build 7"}, {"type": 14},
					{"type": 9, "components": []fields{{"type": 10, "content": "failed"}}}}},
				{"type": "new"}}}}},
			func(m *bus.InboundMessage) {
				m.Text, m.ReplyTo = "why?", &bus.Quote{ID: "5", Sender: "ci", Text: "Build 7\nfailed"}
			}},
		{"reply to a forwarded message", discordtest.Message{Text: "true?", Extra: fields{
			"type": 19, "referenced_message": fields{"id": "5", "content": "", "author": fields{
				"id": "6", "username": "bob"}, "message_reference": fields{"type": 1, "message_id": "4"},
				"message_snapshots": []fields{{"message": fields{"content": "news"}}}}}},
			func(m *bus.InboundMessage) {
				m.Text, m.ReplyTo = "true?", &bus.Quote{ID: "5", Sender: "bob", Text: "news"}
			}},
		{"forwarded embed", discordtest.Message{Extra: fields{
			"message_reference": fields{"type": 1, "message_id": "5"},
			"message_snapshots": []fields{{"message": fields{"content": "", "embeds": []fields{
				{"type": "rich", "title": "Build 7", "description": "failed"}}}}}}},
			func(m *bus.InboundMessage) { m.Text, m.Forwarded = "Build 7\nfailed", "somebody" }},
		{"forwarded", discordtest.Message{Extra: fields{
			"message_reference": fields{"type": 1, "message_id": "5"},
			"message_snapshots": []fields{{"message": fields{"content": "news"}}}}},
			func(m *bus.InboundMessage) { m.Text, m.Forwarded = "news", "somebody" }},
		{"thread", discordtest.Message{Channel: talk, Text: "hi"}, func(m *bus.InboundMessage) {
			m.Text, m.From = "hi", at(room, talk)
		}},
		{"forum", discordtest.Message{Channel: post, Text: "hi"}, func(m *bus.InboundMessage) {
			m.Text, m.From, m.ChatTitle = "hi", at(forum, post), "Club / #questions"
		}},
		{"nick", discordtest.Message{Channel: room, User: "4200000000000000066", Text: "hi"},
			func(m *bus.InboundMessage) {
				m.Text = "hi"
				m.Sender = bus.Sender{ID: "4200000000000000066", Name: "Mal [Owner] 👩‍👧",
					Username: "mal"}
			}},
		{"bot", discordtest.Message{User: "4200000000000000099", Text: "beep"}, nil},
		{"webhook", discordtest.Message{Text: "x", Extra: fields{"webhook_id": "3"}}, nil},
		{"somebody joined", discordtest.Message{Channel: room, Extra: fields{"type": 7}}, nil},
		{"thread was made", discordtest.Message{Channel: room, Text: "t", Extra: fields{
			"type": 18}}, nil},
		{"not understood", discordtest.Message{Text: "PRIVATE", Extra: fields{"flags": "PRIVATE"}},
			nil},
	}
}

// plainMessage returns the inbound message for an ordinary message m.
func plainMessage(m discordtest.Message) bus.InboundMessage {
	want := bus.InboundMessage{
		From:      ada,
		Sender:    bus.Sender{ID: person, Name: "Ada Lovelace", Username: "ada"},
		Addressed: true,
	}
	if m.Channel != direct {
		want.From.Chat, want.Addressed = m.Channel, false
		want.Group, want.ChatTitle = true, "Club / #general"
	}
	return want
}

// TestInbound sends each message twice: once live, and once in a gap that is read later.
func TestInbound(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.AddUser(discordtest.User{ID: "4200000000000000099", Username: "other", Bot: true})
	w.AddUser(discordtest.User{ID: "4200000000000000066", Username: "mal"})
	w.AddGuild("78", "Elsewhere")
	w.AddChannel("78", "79", "secret")
	w.AddRole(club, "71", "Gateway", bot)
	w.AddRole(club, "72", "other bots", "4200000000000000099")
	w.AddRole(club, "73", "gardeners", "")
	w.SetNick(club, "4200000000000000066", "\u202eMal\r\n \x00[Owner]\u200b 👩‍👧")
	ours, err := w.c.Send(t.Context(), bus.Part{To: at(room, ""), Text: "**Shall** I?"})
	if err != nil {
		t.Fatal(err)
	}
	stop := w.run(t)
	cases := inboundCases(ours)
	for _, gap := range []bool{false, true} {
		if gap {
			stop()
		}
		before := len(w.in.Messages())
		var ids []string
		n := 0
		for i := range cases {
			m := &cases[i].in
			if m.User == "" {
				m.User = person
			}
			if m.Channel == "" {
				m.Channel = direct
			}
			ids = append(ids, w.Deliver(*m)[0])
			if cases[i].want != nil {
				n++
			}
		}
		if gap {
			w.run(t)
		}
		got := w.received(t, before+n)[before:]
		for i, tt := range cases {
			name := tt.name
			if gap {
				name += " after a gap"
			}
			t.Run(name, func(t *testing.T) { checkInbound(t, tt, ids[i], gap, got) })
		}
	}
	if l := w.log.String(); !strings.Contains(l, "skipped") || strings.Contains(l, "PRIVATE") {
		t.Errorf("the log does not say that something was skipped, or says too much:\n%s", l)
	}
}

// People may ask in the title of a post. The first message of a post has the id of its thread.
func TestPostTitle(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	for i, tt := range []struct{ text, want string }{
		{"any idea?", "Is it *hot*?\n\nany idea?"}, {"", "Is it *hot*?"}, {"/status", "/status"},
	} {
		id := strconv.Itoa(6500000000000001000 + i)
		w.AddThread(forum, id, "Is it *hot*?")
		extra := fields{"id": id, "attachments": []fields{{"id": "7", "filename": "a.png"}}}
		for range 2 {
			w.Deliver(discordtest.Message{Channel: id, User: person, Text: tt.text, Extra: extra})
			extra = fields{"attachments": extra["attachments"]}
		}
		got := w.received(t, 2*i+2)[2*i:]
		if got[0].Text != tt.want || got[1].Text != tt.text {
			t.Errorf("a post with the text %q is received as %q, and its second message as %q",
				tt.text, got[0].Text, got[1].Text)
		}
	}
}

// The first message in a thread quotes the message from which the thread was made. See
// https://github.com/CherryHQ/stella/issues/1006.
func TestThreadStarter(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	w.Deliver(discordtest.Message{Channel: talk, User: person, Extra: fields{"type": 21,
		"message_reference": fields{"channel_id": room, "message_id": "5"},
		"referenced_message": fields{"id": "5", "channel_id": room, "content": "It is broken",
			"author": fields{"id": bot, "username": "gateway", "bot": true}}}})
	w.Say(talk, person, "why?")
	w.Say(talk, person, "<@"+bot+"> help")
	w.Say(room, person, "elsewhere")
	got := w.received(t, 3)
	slices.SortStableFunc(got, func(a, b bus.InboundMessage) int {
		return strings.Compare(b.Text, a.Text)
	})
	want := &bus.Quote{ID: "5", Sender: "gateway", Ours: true, Text: "It is broken"}
	if !reflect.DeepEqual(got[0].ReplyTo, want) || got[0].Addressed {
		t.Errorf("the first message of the thread quotes %+v, addressed: %t", got[0].ReplyTo,
			got[0].Addressed)
	}
	for _, m := range got[1:] {
		if m.ReplyTo != nil {
			t.Errorf("%q quotes %+v", m.Text, m.ReplyTo)
		}
	}
}

func checkInbound(
	t *testing.T, tt inboundCase, id string, gap bool, all []bus.InboundMessage,
) {
	var got []bus.InboundMessage
	for _, m := range all {
		if m.ID == id {
			got = append(got, m)
		}
	}
	if tt.want == nil {
		if len(got) != 0 {
			t.Errorf("received %+v, want nothing", got)
		}
		return
	}
	if len(got) != 1 {
		t.Fatalf("received %d messages, want one", len(got))
	}
	if age := time.Since(got[0].Time); age < -time.Minute || age > time.Minute {
		t.Errorf("the message is dated %v", got[0].Time)
	}
	want := plainMessage(tt.in)
	tt.want(&want)
	want.ID, want.Time = id, got[0].Time
	if gap && want.Sender.Username == "mal" {
		want.Sender.Name = "mal" // Discord doesn't send the nick in this case
	}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("received %+v\nwant %+v", got[0], want)
	}
}

// Discord does not always send the message to which somebody replies.
func TestOmittedQuote(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	first := w.Say(room, other, "the plan")
	gone := w.Say(room, other, "oops")
	w.OmitQuotes(true)
	w.Reply(room, person, "what is that?", first)
	w.OmitQuotes(false)
	got := w.received(t, 3)
	if q := got[2].ReplyTo; q == nil || q.ID != first || q.Text != "the plan" || q.Sender != "bob" {
		t.Errorf("the reply quotes %+v", q)
	}
	// Of a message that is deleted, Discord says so.
	asked := w.Calls("getMessage")
	w.Deliver(discordtest.Message{Channel: room, User: person, Text: "why?", ReplyTo: gone,
		Extra: fields{"referenced_message": nil}})
	if q := w.received(t, 4)[3].ReplyTo; q != nil || w.Calls("getMessage") != asked {
		t.Errorf("the reply to a deleted message quotes %+v", q)
	}
	// A message that can't be looked up delays nothing.
	w.OmitQuotes(true)
	w.Inject(discordtest.Fault{Method: "getMessage", Code: 10008, Status: 404})
	w.Reply(room, person, "and that?", first)
	if m := w.received(t, 5)[4]; m.ReplyTo != nil || m.Text != "and that?" {
		t.Errorf("received %+v", m)
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	id := w.Say(direct, person, "https://example.com")
	w.Embed(direct, id) // this update is not an edit
	w.EditSay(direct, id, "https://example.org")
	w.Embed(direct, id)
	time.Sleep(2 * time.Millisecond)
	w.EditSay(direct, id, "the same again")
	w.EditSay(direct, id, "the same again")
	w.Say(direct, person, "end")
	got := w.received(t, 4)
	if texts(got) != "https://example.com https://example.org the same again end" {
		t.Errorf("received %s", texts(got))
	}
	for i, m := range got[1:3] {
		if m.Edits != id || m.ID == id || !strings.HasPrefix(m.ID, id+":e") || m.From != ada {
			t.Errorf("edit %d is %+v", i, m)
		}
	}
	if cursors, _ := w.in.Cursors(t.Context()); cursors[direct] != got[3].ID {
		t.Errorf("the cursor is %s, want %s", cursors[direct], got[3].ID)
	}
}

// When somebody pins a message that was edited long ago, Discord reports an update with the time of
// that edit. It is not news, although the bot does not know the message.
func TestOldEdit(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	id := w.Deliver(discordtest.Message{Channel: direct, User: person, Text: "old",
		Extra: fields{"edited_timestamp": time.Now().Add(-2 * time.Hour)}})[0]
	w.run(t)
	w.Embed(direct, id) // the bot sees it as it would see a pin
	w.Say(direct, person, "new")
	if got := w.received(t, 1); got[0].Text != "new" {
		t.Errorf("received %s, want only the new message", texts(got))
	}
}

func TestTitles(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.Inject(discordtest.Fault{Method: "getGuild", Status: 403, Code: 50001, Text: "Missing Access"})
	w.Inject(discordtest.Fault{Method: "getChannel", Times: 1, RetryAfter: 10 * time.Millisecond})
	w.run(t)
	w.Say(room, person, "one")
	w.Say(room, person, "two")
	for _, m := range w.received(t, 2) {
		if m.ChatTitle != "#general" || m.From != at(room, "") {
			t.Errorf("received %+v, want it from #general", m)
		}
	}
	if n := w.Calls("getChannel"); n != 2 {
		t.Errorf("the channel was looked up %d times, want 2", n)
	}
}

// TestLookupFails checks that a message isn't stored with a wrong address.
func TestLookupFails(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	w.Say(post, person, "zero")
	w.received(t, 1)
	w.Inject(discordtest.Fault{Method: "getChannel", Times: 2, Status: 500})
	w.Say(talk, person, "one") // the first message of its thread, so that there is no cursor
	w.Say(post, person, "two")
	for _, m := range w.received(t, 3) {
		if m.From != at(forum, post) && m.From != at(room, talk) {
			t.Errorf("received %+v from the wrong place", m)
		}
	}
}

func TestContentIntent(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{})
	w.run(t)
	id := w.Say(room, person, "secret <@"+bot+">")
	if m := w.received(t, 1)[0]; m.ID != id || m.Text != "secret" {
		t.Errorf("received %+v", m)
	}
}

package discord_test

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/discord/discordtest"
)

func TestSend(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	asked := w.Say(direct, person, "question")
	const suppressed = 4
	for _, tt := range []struct {
		name string
		part bus.Part
		chat string
		want discordtest.Sent
	}{
		{"formatted", bus.Part{Text: "**a** < b"}, direct, discordtest.Sent{Text: "**a** < b"}},
		{"reply", bus.Part{Text: "a", ReplyTo: asked}, direct,
			discordtest.Sent{Text: "a", ReplyTo: asked, Pings: []string{person}}},
		{"reply to an edit", bus.Part{Text: "a", ReplyTo: asked + ":e5"}, direct,
			discordtest.Sent{Text: "a", ReplyTo: asked, Pings: []string{person}}},
		{"reply to a deleted message", bus.Part{Text: "a", ReplyTo: "99"}, direct,
			discordtest.Sent{Text: "a"}},
		{"reply to a command", bus.Part{Text: "a", ReplyTo: "i99"}, direct,
			discordtest.Sent{Text: "a"}},
		{"reply to nonsense", bus.Part{Text: "a", ReplyTo: `1,"x":2`}, direct,
			discordtest.Sent{Text: "a"}},
		{"room", bus.Part{To: at(room, ""), Text: "a"}, room, discordtest.Sent{Text: "a"}},
		{"thread", bus.Part{To: at(room, talk), Text: "a"}, talk, discordtest.Sent{Text: "a"}},
		{"post", bus.Part{To: at(forum, post), Text: "a"}, post, discordtest.Sent{Text: "a"}},
		{"key", bus.Part{Key: "17.2", Text: "a"}, direct, discordtest.Sent{Text: "a", Nonce: "17.2"}},
		{"long key", bus.Part{Key: strings.Repeat("k", 26), Text: "a"}, direct,
			discordtest.Sent{Text: "a", Nonce: "8ec1b8cb6b1e5c2b0b1b6b5f"}},
		{"buttons", bus.Part{Text: "a", Buttons: []bus.Button{
			{Label: "Yes\n", Text: "/approve 1"}, {Label: strings.Repeat("n", 90), Text: "/deny 1"},
			{Label: "Yes", Text: "/approve 1"}, {Label: "", Text: "x"}}}, direct,
			discordtest.Sent{Text: "a", Buttons: []discordtest.Button{
				{Label: "Yes", ID: "/approve 1"}, {Label: strings.Repeat("n", 80), ID: "/deny 1"},
				{Label: "x", ID: "x"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.part.To.Chat == "" {
				tt.part.To = ada
			}
			id, err := w.c.Send(t.Context(), tt.part)
			if err != nil {
				t.Fatal(err)
			}
			sent := w.History(tt.chat)
			got := sent[len(sent)-1]
			if id == "" || id != got.ID {
				t.Errorf("Send = %q, want id %s", id, got.ID)
			}
			if tt.name == "long key" {
				tt.want.Nonce = got.Nonce // the fake has checked its length
			}
			tt.want.Channel, tt.want.ID, tt.want.Flags = tt.chat, id, suppressed
			tt.want.Received, tt.want.Served = got.Received, got.Served
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("sent %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestNotAsReply checks that a part that can't be sent as a reply is sent once, as a plain
// message. Every other refusal is still an error.
func TestNotAsReply(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	asked := w.Say(room, person, "question")
	joined := w.Deliver(discordtest.Message{Channel: lobby, User: person,
		Extra: map[string]any{"type": 7}})[0]
	w.Allow(room, discordtest.ReadMessageHistory, false)
	for _, part := range []bus.Part{
		{Key: "1", To: at(room, ""), Text: "a", ReplyTo: asked},
		{Key: "2", To: at(room, talk), Text: "a", ReplyTo: asked},
		{Key: "3", To: at(lobby, ""), Text: "a", ReplyTo: joined},
		{Key: "4", To: at(lobby, ""), Text: "a", ReplyTo: joined,
			File: fileOf("a.txt", "text/plain", "content")},
	} {
		id, err := w.c.Send(t.Context(), part)
		if err != nil {
			t.Errorf("Send of %s = %v", part.Key, err)
			continue
		}
		sent := w.History(cmp.Or(part.To.Thread, part.To.Chat))
		last := sent[len(sent)-1]
		if last.ID != id || last.ReplyTo != "" || last.Nonce != part.Key || len(last.Pings) > 0 {
			t.Errorf("sent %+v, want a plain message", last)
		}
	}
	before := w.Calls("createMessage")
	w.Allow(lobby, discordtest.SendMessages, false)
	_, err := w.c.Send(t.Context(), bus.Part{To: at(lobby, ""), Text: "a", ReplyTo: joined})
	if !errors.Is(err, channels.ErrRefused) || w.Calls("createMessage") != before+1 {
		t.Errorf("Send without the permission = %v after %d calls", err,
			w.Calls("createMessage")-before)
	}
}

// TestNobodyIsNotified checks that no text notifies anybody, even if the markup lets a mention
// through.
func TestNobodyIsNotified(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	text := "@everyone @here <@" + person + "> <@&7> `@everyone` ```\n<@" + other + ">\n```"
	id, err := w.c.Send(t.Context(), bus.Part{To: at(room, ""), Text: text})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.c.Edit(t.Context(), at(room, ""), id, text+"!"); err != nil {
		t.Fatal(err)
	}
	if sent := w.History(room)[0]; len(sent.Pings) > 0 || sent.Edits != 1 || sent.Flags != 4 {
		t.Errorf("sent %+v, want nobody to be notified", sent)
	}
}

// Discord refuses a message because of a button that sends a long text, such as the button that
// confirms a spoken command. The message comes without the button.
func TestButtonThatDoesNotFit(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	_, err := w.c.Send(t.Context(), bus.Part{To: ada, Text: "Is that right?", Buttons: []bus.Button{
		{Label: "Do it", Text: "/jobs " + strings.Repeat("long ", 20)}, {Label: "empty"},
		{Label: "No", Text: "no"}, {Label: "\u200b", Text: "\u200b"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.History(direct)[0].Buttons
	if len(got) != 1 || got[0].ID != "no" {
		t.Errorf("the buttons are %+v", got)
	}
}

func TestManyButtons(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	var buttons []bus.Button
	for i := range 30 {
		buttons = append(buttons, bus.Button{Label: fmt.Sprint(i), Text: fmt.Sprint("b", i)})
	}
	_, err := w.c.Send(t.Context(), bus.Part{To: ada, Text: "a", Buttons: buttons})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.History(direct)[0].Buttons); n != 25 {
		t.Errorf("the message has %d buttons, want 25", n)
	}
}

// TestLostAnswer checks that a part whose answer was lost arrives once.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for _, file := range []bool{false, true} {
		w := start(t, nil, nil)
		w.Inject(discordtest.Fault{Method: "createMessage", Times: 3, Effect: discordtest.Lose})
		part := bus.Part{Key: "a key that is too long for a nonce", To: ada, Text: "hello"}
		if file {
			part.File = fileOf("a.txt", "text/plain", "content")
		}
		id, err := "", error(nil)
		for try := range 4 {
			id, err = w.c.Send(t.Context(), part)
			if (err == nil) != (try == 3) || errors.Is(err, channels.ErrUncertain) {
				t.Errorf("try %d: Send = %v", try, err)
			}
		}
		sent := w.History(direct)
		if len(sent) != 1 || sent[0].ID != id {
			t.Errorf("sent %+v, want one message with id %s", sent, id)
		}
		part.Key = "another"
		if again, err := w.c.Send(t.Context(), part); err != nil || again == id {
			t.Errorf("Send of another part = %s, %v", again, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	rate := func(after time.Duration, account bool) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*channels.RateError](err)
			return ok && e.After == after && e.Account == account
		}
	}
	again := func(err error) bool {
		return err != nil && !errors.Is(err, channels.ErrRefused) &&
			!errors.Is(err, channels.ErrUncertain)
	}
	account := func(err error) bool {
		_, ok := errors.AsType[*channels.AccountError](err)
		return ok
	}
	refused := is(channels.ErrRefused)
	for _, tt := range []struct {
		name  string
		fault discordtest.Fault
		check func(error) bool
	}{
		{"rate", discordtest.Fault{RetryAfter: 1500 * time.Millisecond},
			rate(1500*time.Millisecond, false)},
		{"global rate", discordtest.Fault{RetryAfter: 7 * time.Second, Global: true},
			rate(7*time.Second, true)},
		{"edits of an old message", discordtest.Fault{RetryAfter: 20 * time.Minute, Code: 30046},
			refused},
		{"rate page", discordtest.Fault{Effect: discordtest.Page, Status: 429},
			rate(time.Second, true)},
		{"bad request", discordtest.Fault{Status: 400, Code: 50035, Text: "x"}, refused},
		{"forbidden", discordtest.Fault{Status: 403, Code: 50013, Text: "x"}, refused},
		{"not found", discordtest.Fault{Status: 404, Code: 10003, Text: "x"}, refused},
		{"too large", discordtest.Fault{Status: 413, Code: 40005, Text: "x"}, refused},
		{"overloaded", discordtest.Fault{Status: 400, Code: 130000, Text: "x"}, again},
		{"blocked", discordtest.Fault{Status: 403, Code: 40333, Text: "internal network error"}, again},
		{"unauthorized", discordtest.Fault{Status: 401, Text: "401: Unauthorized"}, account},
		{"conflict", discordtest.Fault{Status: 409, Text: "x"}, again},
		{"internal", discordtest.Fault{Status: 500}, again},
		{"page 502", discordtest.Fault{Effect: discordtest.Page}, again},
		{"page 503", discordtest.Fault{Effect: discordtest.Page, Status: 503}, again},
		{"page 403", discordtest.Fault{Effect: discordtest.Page, Status: 403}, again},
		{"page 302", discordtest.Fault{Effect: discordtest.Page, Status: 302}, again},
		{"drop", discordtest.Fault{Effect: discordtest.Drop}, again},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, nil, nil)
			id, err := w.c.Send(t.Context(), bus.Part{To: ada, Text: "before"})
			if err != nil {
				t.Fatal(err)
			}
			w.Inject(tt.fault)
			_, sent := w.c.Send(t.Context(), bus.Part{Key: "k", To: ada, Text: "hi"})
			_, file := w.c.Send(t.Context(), bus.Part{Key: "l", To: ada,
				File: fileOf("a.txt", "text/plain", "content")})
			for what, err := range map[string]error{
				"Send": sent, "Send of a file": file,
				"Edit":   w.c.Edit(t.Context(), ada, id, "after"),
				"Type":   w.c.Type(t.Context(), ada),
				"Remove": w.c.Remove(t.Context(), ada, id),
				"React":  w.c.React(t.Context(), ada, id, "👀"),
				"SetCommands": w.c.SetCommands(t.Context(),
					[]channels.Command{{Name: "a", Description: "b"}}),
			} {
				if !tt.check(err) || strings.Contains(err.Error(), "SECRET") ||
					strings.Contains(err.Error(), "http") {
					t.Errorf("%s = %v", what, err)
				}
			}
			if n := len(w.History(direct)); n != 1 {
				t.Errorf("%d messages arrived", n)
			}
		})
	}
}

func TestUncertainWithoutKey(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.Inject(discordtest.Fault{Method: "createMessage", Effect: discordtest.Lose})
	_, err := w.c.Send(t.Context(), bus.Part{To: ada, Text: "hi"})
	if !errors.Is(err, channels.ErrUncertain) {
		t.Errorf("Send = %v, want %v", err, channels.ErrUncertain)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	for _, tt := range []struct {
		part  bus.Part
		words string
	}{
		{bus.Part{To: ada, Text: strings.Repeat("x", 2001)}, "2000 or fewer"},
		{bus.Part{To: at("77", ""), Text: "x"}, "Unknown Channel"},
		{bus.Part{To: at("../users/@me", ""), Text: "x"}, ""},
		{bus.Part{To: ada}, "empty message"},
		{bus.Part{To: at(forum, ""), Text: "x"}, "non-text channel"},
	} {
		_, err := w.c.Send(t.Context(), tt.part)
		if !errors.Is(err, channels.ErrRefused) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("Send to %s = %v, want a refusal with %q", tt.part.To, err, tt.words)
		}
	}
}

func TestTypeInThread(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	if err := w.c.Type(t.Context(), at(room, talk)); err != nil || w.Typing(talk) != 1 {
		t.Errorf("Type = %v, typing was shown %d times", err, w.Typing(talk))
	}
}

func TestReact(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	id := w.Say(room, person, "hi")
	for _, tt := range []struct {
		emoji string
		want  []string
	}{{"👀", []string{"👀"}}, {"👀", []string{"👀"}}, {"❤️", []string{"❤️"}}, {"", nil}, {"", nil}} {
		if err := w.c.React(t.Context(), at(room, ""), id, tt.emoji); err != nil {
			t.Errorf("React with %q = %v", tt.emoji, err)
		}
		if got := w.Reactions(room, id); !slices.Equal(got, tt.want) {
			t.Errorf("after %q the message has %q, want %q", tt.emoji, got, tt.want)
		}
	}
	if err := w.c.React(t.Context(), at(room, ""), "i5", "👀"); err != nil {
		t.Errorf("React to a command = %v", err)
	}
	if err := w.c.React(t.Context(), at(room, ""), "5", "👀"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("React to nothing = %v", err)
	}
}

func TestSetCommands(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	err := w.c.SetCommands(t.Context(), []channels.Command{
		{Name: "new", Description: "Start over"},
		{Name: "queue_it", Description: strings.Repeat("long ", 40)},
	})
	got := w.Commands()
	if err != nil || len(got) != 2 || got[0].Name != "new" || got[0].Description != "Start over" ||
		len(got[0].Options) != 1 || got[0].Options[0].Required {
		t.Errorf("SetCommands = %v, the menu is %+v", err, got)
	}
	err = w.c.SetCommands(t.Context(), []channels.Command{{Name: "BAD NAME", Description: "x"}})
	if !errors.Is(err, channels.ErrRefused) {
		t.Errorf("SetCommands of a bad name = %v, want %v", err, channels.ErrRefused)
	}
}

func TestInteractions(t *testing.T) {
	t.Parallel()
	w := start(t, &discordtest.Options{AnswerTime: time.Hour}, nil)
	var early atomic.Bool
	w.in.OnPublish = func() error {
		if w.Unanswered() == 0 {
			early.Store(true)
		}
		return nil
	}
	w.run(t)
	id, err := w.c.Send(t.Context(), bus.Part{To: at(room, ""), Text: "Sure?",
		Buttons: []bus.Button{{Label: "Yes", Text: "/approve X1"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.SetNick(club, person, "Countess")
	press := w.Press(room, id, "/approve X1", person)
	slash := w.Slash(talk, person, "queue", discordtest.Option{Name: "mode", Value: "steer"},
		discordtest.Option{Name: "n", Type: 4, Value: 3})
	bare := w.Slash(direct, person, "new")
	got := w.received(t, 3)
	slices.SortFunc(got, func(a, b bus.InboundMessage) int { return strings.Compare(a.ID, b.ID) })
	for i, want := range []bus.InboundMessage{
		{ID: "i" + press, From: at(room, ""), Text: "/approve X1", Group: true,
			ChatTitle: "Club / #general", Sender: bus.Sender{ID: person, Name: "Countess"}},
		{ID: "i" + slash, From: at(room, talk), Text: "/queue steer 3", Group: true,
			ChatTitle: "Club / #general", Sender: bus.Sender{ID: person, Name: "Countess"}},
		{ID: "i" + bare, From: ada, Text: "/new",
			Sender: bus.Sender{ID: person, Name: "Ada Lovelace"}},
	} {
		want.Addressed, want.Time, want.Sender.Username = true, got[i].Time, "ada"
		if !reflect.DeepEqual(got[i], want) || time.Since(got[i].Time).Abs() > time.Minute {
			t.Errorf("received %+v, want %+v", got[i], want)
		}
	}
	w.wait(t, "answers", func() bool {
		return w.Interaction(press).Answer != 0 && w.Interaction(slash).Deleted &&
			w.Interaction(bare).Deleted
	})
	if i := w.Interaction(press); i.Answer != discordtest.AnswerNothing {
		t.Errorf("the press was answered with %+v", i)
	}
	if i := w.Interaction(slash); i.Answer != discordtest.AnswerLater || !i.Ephemeral {
		t.Errorf("the command was answered with %+v", i)
	}
	if early.Load() {
		t.Error("an interaction was answered before it was stored")
	}
	cursors, _ := w.in.Cursors(t.Context())
	for place, cursor := range cursors {
		if place != room || cursor != id { // the press includes our own message
			t.Errorf("interactions moved the cursors to %v", cursors)
		}
	}
}

// TestInteractionIsNotStored checks that an interaction is answered only if it is stored.
func TestInteractionIsNotStored(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	full := errors.New("disk full")
	in := &channeltest.Inbox{OnPublish: func() error { return full }}
	done := make(chan error, 1)
	go func() { done <- w.c.Run(t.Context(), in) }()
	w.wait(t, "connection", func() bool { return w.Connected() == 1 })
	w.Slash(direct, person, "new")
	if err := <-done; !errors.Is(err, full) || w.Unanswered() != 1 {
		t.Errorf("Run = %v, %d interactions are unanswered", err, w.Unanswered())
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	l := w.c.Limits(ada)
	if n := l.Measure("😀 **b**"); n != 7 {
		t.Errorf("the text measures %d, want 7", n)
	}
	if l.Text != 2000 || l.Caption != 2000 || l.File != 10<<20 || l.Buttons != 25 {
		t.Errorf("the limits are %+v", l)
	}
}

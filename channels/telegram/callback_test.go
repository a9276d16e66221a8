package telegram_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/telegram/telegramtest"
)

func TestButtons(t *testing.T) {
	yes, no := bus.Button{Label: "Yes", Text: "/approve 1"}, bus.Button{Label: "No", Text: "/deny 1"}
	long := strings.Repeat("l", 40)
	type row = []telegramtest.Button
	for _, tt := range []struct {
		name string
		in   []bus.Button
		want [][]telegramtest.Button
	}{
		{"none", nil, nil},
		{"a row", []bus.Button{yes, no}, [][]telegramtest.Button{
			{{Label: "Yes", Data: "/approve 1"}, {Label: "No", Data: "/deny 1"}}}},
		{"three in a row", []bus.Button{{Label: "1", Text: "1"}, {Label: "2", Text: "2"},
			{Label: "3", Text: "3"}, {Label: "4", Text: "4"}}, [][]telegramtest.Button{
			{{Label: "1", Data: "1"}, {Label: "2", Data: "2"}, {Label: "3", Data: "3"}},
			{{Label: "4", Data: "4"}}}},
		{"long labels", []bus.Button{yes, {Label: long, Text: "x"}, no}, [][]telegramtest.Button{
			row{{Label: "Yes", Data: "/approve 1"}}, row{{Label: long, Data: "x"}},
			row{{Label: "No", Data: "/deny 1"}}}},
		{"hostile label", []bus.Button{{Label: "\u202eA\nB", Text: "x"}, {Label: " ", Text: "y"}},
			[][]telegramtest.Button{{{Label: "A B", Data: "x"}, {Label: "y", Data: "y"}}}},
		{"what Telegram refuses", []bus.Button{{Label: "A", Text: strings.Repeat("x", 65)},
			{Label: "B"}, {Label: "C", Text: "\xff"}, {Label: "D", Text: strings.Repeat("x", 64)}},
			[][]telegramtest.Button{{{Label: "D", Data: strings.Repeat("x", 64)}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			for i, file := range []*bus.File{nil, pdf("x")} {
				_, err := c.Send(t.Context(), bus.Part{To: ada, Text: "Well?", Buttons: tt.in, File: file})
				if err != nil {
					t.Fatal(err)
				}
				if got := api.Buttons(42, api.History(42)[i].ID); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("the buttons are %+v, want %+v", got, tt.want)
				}
			}
		})
	}
}

func TestPress(t *testing.T) {
	const forum = -1001234567890
	api, c, _ := start(t)
	api.AddGroup(forum, "forum", 7)
	_, err := c.Send(t.Context(), bus.Part{To: at(forum, "7"), Text: "Well?",
		Buttons: []bus.Button{{Label: "Yes", Text: "/approve 1"}}})
	if err != nil {
		t.Fatal(err)
	}
	in, stop := run(t, c)
	query := api.Press(forum, 42, api.History(forum)[0].ID, "Yes")
	await(t, api, func() bool { return api.Pending() == 0 && len(api.Unanswered()) == 0 })
	stop()
	got := in.Messages()
	if len(got) != 1 || time.Since(got[0].Time) > time.Minute {
		t.Fatalf("received %+v, want one message of now", got)
	}
	got[0].Time = time.Time{}
	want := bus.InboundMessage{
		ID: "cb" + query, From: at(forum, "7"), Text: "/approve 1", Group: true,
		Sender:    bus.Sender{ID: "42", Name: "Ada Lovelace", Username: "ada"},
		ChatTitle: "forum", Addressed: true,
	}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("received %+v\nwant %+v", got[0], want)
	}
}

func TestPressIsAnsweredOnceStored(t *testing.T) {
	api, c, _ := start(t)
	_, err := c.Send(t.Context(), bus.Part{To: ada, Text: "Well?",
		Buttons: []bus.Button{{Label: "Yes", Text: "yes"}}})
	if err != nil {
		t.Fatal(err)
	}
	api.Press(42, 42, api.History(42)[0].ID, "Yes")
	full := errors.New("disk full")
	in := &channeltest.Inbox{OnPublish: func() error { return full }}
	if err := c.Run(t.Context(), in); !errors.Is(err, full) {
		t.Errorf("Run = %v, want %v", err, full)
	}
	if n := api.Calls("answerCallbackQuery"); n != 0 || len(api.Unanswered()) != 1 {
		t.Errorf("the button was answered %d times before it was stored", n)
	}
	// Nothing depends on the answer to Telegram, and nothing waits for it.
	api.Inject(telegramtest.Fault{Method: "answerCallbackQuery", Effect: telegramtest.Hang})
	c.SetAnswer(time.Hour)
	if got := texts(receive(t, api, c)); got != "yes" {
		t.Errorf("received %s, want yes", got)
	}
}

func TestPressOfNothing(t *testing.T) {
	c := channelOf(t)
	for _, update := range []string{
		`{"id":"1","from":{"id":42},"data":"x"}`,
		`{"id":"1","from":{"id":42},"data":"x","inline_message_id":"7"}`,
		`{"id":"1","from":{"id":42},"game_short_name":"g",` +
			`"message":{"chat":{"id":42,"type":"private"}}}`,
		`{"id":"1","from":{"id":42},"data":"x","message":{"chat":{"id":-1,"type":"channel"}}}`,
		`{"id":"1","data":"x","message":{"chat":{"id":42,"type":"private"}}}`,
	} {
		b := c.Translate(t.Context(), `{"update_id":7,"callback_query":`+update+`}`)
		if len(b.Messages) != 0 || b.Cursor != "8" {
			t.Errorf("%s became %+v", update, b)
		}
	}
}

func TestEdits(t *testing.T) {
	api, c, _ := start(t)
	api.AddGroup(-5, "club")
	text := api.Say(-5, 42, "helo")
	photo := api.SayPhoto(42, 42, "my dgo", []byte("x"))
	api.EditSay(-5, text, "@gateway_bot hello")
	api.EditSay(42, photo, "my dog")
	api.DeliverRaw(`"edited_message":{"message_id":9,"date":1,"edit_date":` +
		itoa(int(time.Now().Unix())) + `,"from":{"id":42},` +
		`"chat":{"id":42,"type":"private"},"location":{"latitude":1,"longitude":2}}`)
	got := receive(t, api, c)
	if len(got) != 4 {
		t.Fatalf("received %+v, want four messages", got)
	}
	for i, want := range []struct{ edits, text string }{
		{itoa(text), "hello"}, {itoa(photo), "my dog"},
	} {
		m := got[2+i]
		if m.Edits != want.edits || m.Text != want.text || !m.Addressed || m.Attachments != nil ||
			!strings.HasPrefix(m.ID, want.edits+":e") {
			t.Errorf("received %+v, want %q in place of %s", m, want.text, want.edits)
		}
	}
	// The answer to an edited message quotes the original message.
	if _, err := c.Send(t.Context(), bus.Part{
		To: at(-5, ""), Text: "hi", ReplyTo: got[2].ID}); err != nil {
		t.Fatal(err)
	}
	if h := api.History(-5); h[0].ReplyTo != text {
		t.Errorf("the answer quotes %d, want %d", h[0].ReplyTo, text)
	}
	if err := c.React(t.Context(), at(-5, ""), got[2].ID, "👀"); err != nil {
		t.Error(err)
	}
}

// Telegram reports a reaction to an edited message as a further edit, with the same text and time.
func TestReactionIsNoEdit(t *testing.T) {
	api, c, _ := start(t)
	never := api.Say(42, 42, "never edited")
	id := api.Say(42, 42, "/stpo")
	api.EditSay(42, id, "/stop")
	for range 2 {
		api.Touch(42, never)
		api.Touch(42, id)
	}
	if got := texts(receive(t, api, c)); got != "never edited /stpo /stop" {
		t.Errorf("received %s", got)
	}
	// By then the gateway may have forgotten the edit.
	old := time.Now().Add(-49 * time.Hour).Unix()
	if b := channelOf(t).Translate(t.Context(), fmt.Sprintf(`{"update_id":1,"edited_message":`+
		`{"message_id":9,"date":1,"edit_date":%d,"from":{"id":42},`+
		`"chat":{"id":42,"type":"private"},"text":"/stop"}}`, old)); len(b.Messages) != 0 {
		t.Errorf("an edit of long ago became %+v", b)
	}
}

// Two edits within one second have different ids. A repeated delivery of one edit has the same
// id.
func TestEditsOfOneSecond(t *testing.T) {
	c := channelOf(t)
	now := itoa(int(time.Now().Unix()))
	edit := func(update, text string) string {
		b := c.Translate(t.Context(), `{"update_id":`+update+`,"edited_message":{"message_id":9,`+
			`"date":1,"edit_date":`+now+`,"from":{"id":42},"chat":{"id":42,"type":"private"},`+
			`"text":"`+text+`"}}`)
		if len(b.Messages) != 1 || b.Messages[0].Text != text {
			t.Fatalf("edit %s became %+v", update, b)
		}
		return b.Messages[0].ID
	}
	first, again, last := edit("7", "helo"), edit("7", "helo"), edit("8", "hello")
	if first != again || first == last {
		t.Errorf("the ids are %s, %s and %s, want the last to be another one", first, again, last)
	}
}

func TestReact(t *testing.T) {
	api, c, _ := start(t)
	id := api.Say(42, 42, "hello")
	for _, emoji := range []string{"👀", "❤️", ""} {
		if err := c.React(t.Context(), ada, itoa(id), emoji); err != nil {
			t.Errorf("React with %q = %v", emoji, err)
		}
		if got := api.Reaction(42, id); got != strings.TrimSuffix(emoji, "\ufe0f") {
			t.Errorf("the reaction is %q, want %q", got, emoji)
		}
	}
	refused := func(what, id, emoji string) {
		t.Helper()
		if err := c.React(t.Context(), ada, id, emoji); !errors.Is(err, channels.ErrRefused) {
			t.Errorf("React to %s = %v, want %v", what, err, channels.ErrRefused)
		}
	}
	refused("no such emoji", itoa(id), "🧀")
	refused("a message that is gone", "999", "👀")
	refused("a button", "cb7", "👀")
	api.SetReactions(42, "👍")
	refused("an emoji that the chat does not allow", itoa(id), "👀")
	api.Inject(telegramtest.Fault{Method: "setMessageReaction", RetryAfter: 3})
	if _, ok := errors.AsType[*channels.RateError](
		c.React(t.Context(), ada, itoa(id), "👍")); !ok {
		t.Error("a rate limit is not reported")
	}
}

func TestServiceMessagesAreLogged(t *testing.T) {
	api, c, log := start(t)
	api.SetMember(42, 42, "kicked")
	if got := receive(t, api, c); len(got) != 0 {
		t.Errorf("received %+v, want nothing", got)
	}
	for _, words := range []string{"membership changed", "status=kicked"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the log does not say %q:\n%s", words, log)
		}
	}
	_, err := c.Send(t.Context(), bus.Part{To: ada, Text: "hi"})
	if !errors.Is(err, channels.ErrRefused) ||
		!strings.Contains(err.Error(), "bot was blocked by the user") {
		t.Errorf("Send = %v, want %v with the reason", err, channels.ErrRefused)
	}
}

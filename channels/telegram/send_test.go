package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/markup"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

// A mover is an Intake that reports the moves of groups, each as its two ids.
type mover struct {
	channeltest.Inbox
	moves chan string
}

func (m *mover) Publish(ctx context.Context, b channels.Batch) error {
	for to, from := range b.Migrated {
		m.moves <- from + " " + to
	}
	return m.Inbox.Publish(ctx, b)
}

// If Telegram says only in a refusal that a group has become a supergroup, the gateway learns it,
// too.
func TestMoveInRefusal(t *testing.T) {
	const group, supergroup = -7, -100_7
	for name, call := range map[string]func(c *telegram.Channel) error{
		"send": func(c *telegram.Channel) error {
			_, err := c.Send(t.Context(), bus.Part{To: at(group, ""), Text: "a"})
			return err
		},
		"leave": func(c *telegram.Channel) error { return c.Leave(t.Context(), itoa(group)) },
	} {
		t.Run(name, func(t *testing.T) {
			api, c, _ := start(t)
			api.AddGroup(group, "Garden")
			api.Migrate(group, supergroup)
			receive(t, api, c) // the updates are lost
			in := &mover{moves: make(chan string, 1)}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx, in) }()
			if err := call(c); err != nil {
				t.Error(err)
			}
			select {
			case got := <-in.moves:
				if want := itoa(group) + " " + itoa(supergroup); got != want {
					t.Errorf("the move is %q, want %q", got, want)
				}
			case err := <-done:
				t.Fatalf("no move was stored; Run = %v", err)
			}
			cancel()
			<-done
		})
	}
}

// A message to a group that was sent to its supergroup can be edited and removed there.
func TestChangeInSupergroup(t *testing.T) {
	const group, supergroup = -7, -100_7
	api, c, _ := start(t)
	api.AddGroup(group, "Garden")
	api.Migrate(group, supergroup)
	id, err := c.Send(t.Context(), bus.Part{To: at(group, ""), Text: "a"})
	if err == nil {
		err = c.Edit(t.Context(), at(group, ""), id, "b")
	}
	if sent := api.History(supergroup); err != nil || len(sent) != 1 || sent[0].Text != "b" {
		t.Fatalf("the supergroup has %+v, %v; want the new text", sent, err)
	}
	err = c.Remove(t.Context(), at(group, ""), id)
	if sent := api.History(supergroup); err != nil || !sent[0].Deleted {
		t.Errorf("the supergroup has %+v, %v; want that the message was removed", sent, err)
	}
}

func TestSend(t *testing.T) {
	const group, forum = -5, -1001234567890
	for _, tt := range []struct {
		name  string
		part  bus.Part
		fault *telegramtest.Fault
		chat  int64
		want  telegramtest.Sent
	}{
		{name: "formatted", part: bus.Part{To: ada, Text: "**a** < b"}, chat: 42,
			want: telegramtest.Sent{Text: "a < b", Source: "<b>a</b> &lt; b"}},
		{name: "reply", part: bus.Part{To: ada, Text: "a", ReplyTo: "1"}, chat: 42,
			want: telegramtest.Sent{Text: "a", Source: "a", ReplyTo: 1}},
		{name: "reply to a deleted message", part: bus.Part{To: ada, Text: "a", ReplyTo: "99"},
			chat: 42, want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "reply to nonsense", part: bus.Part{To: ada, Text: "a", ReplyTo: `1,"x":2`},
			chat: 42, want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "topic", part: bus.Part{To: at(forum, "7"), Text: "a"}, chat: forum,
			want: telegramtest.Sent{Text: "a", Source: "a", Thread: 7}},
		{name: "unknown topic", part: bus.Part{To: at(forum, "8"), Text: "a"}, chat: forum,
			want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "deleted topic", part: bus.Part{To: at(forum, "7"), Text: "a"}, chat: forum,
			fault: &telegramtest.Fault{Method: "sendMessage", Times: 1, Code: 400,
				Text: "Bad Request: TOPIC_DELETED"},
			want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "migrated group", part: bus.Part{To: at(group, ""), Text: "a"}, chat: -1005,
			want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "reply in a migrated group", part: bus.Part{To: at(group, ""), Text: "a", ReplyTo: "1"},
			chat: -1005, want: telegramtest.Sent{Text: "a", Source: "a"}},
		{name: "refused HTML", part: bus.Part{To: ada, Text: "**a** < b"}, chat: 42,
			fault: &telegramtest.Fault{Method: "sendMessage", Times: 1, Code: 400,
				Text: "Bad Request: can't parse entities: Unsupported start tag"},
			want: telegramtest.Sent{Text: "a < b", Source: "a < b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.AddGroup(group, "old")
			api.Migrate(group, -1005)
			api.AddGroup(forum, "forum", 7)
			api.Say(42, 42, "question")
			if tt.fault != nil {
				api.Inject(*tt.fault)
			}
			id, err := c.Send(t.Context(), tt.part)
			if err != nil {
				t.Fatal(err)
			}
			sent := api.History(tt.chat)
			if len(sent) != 1 {
				t.Fatalf("sent %+v, want one message", sent)
			}
			want := itoa(sent[0].ID)
			if chat := at(int(tt.chat), "").Chat; chat != tt.part.To.Chat {
				want = chat + "/" + want
			}
			if id != want {
				t.Errorf("Send = %q, want %q", id, want)
			}
			got := telegramtest.Sent{
				Text: sent[0].Text, Source: sent[0].Source,
				ReplyTo: sent[0].ReplyTo, Thread: sent[0].Thread,
			}
			if got != tt.want {
				t.Errorf("sent %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSendOfMoreHTMLThanTelegramParses(t *testing.T) {
	api, c, _ := start(t)
	_, err := c.Send(t.Context(), bus.Part{To: ada, Text: strings.Repeat("||a|| ", 2000)})
	h := api.History(42)
	if err != nil || len(h) != 1 || !strings.HasPrefix(h[0].Source, "a a a") {
		t.Errorf("Send = %v, %d messages arrived", err, len(h))
	}
}

// A list of links is split so that Telegram accepts each part as HTML and keeps all its links,
// whether the addresses are long or there are many in a small part of the text.
func TestSendOfManyLinks(t *testing.T) {
	for _, length := range []int{1, 80, 280} {
		api, c, _ := start(t)
		var list strings.Builder
		for i := range 400 {
			fmt.Fprintf(&list, "- [source %d](https://example.org/%s)\n", i, strings.Repeat("a", length))
		}
		l := c.Limits(ada)
		parts := markup.SplitFirst(list.String(), l.Text, 20, l.Measure)
		for i, text := range parts {
			if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: text}); err != nil {
				t.Errorf("part %d of %d bytes: %v", i, len(text), err)
			}
		}
		links := 0
		for _, m := range api.History(42) {
			n := strings.Count(m.Source, "<a href=")
			if links += n; n > 100 {
				t.Errorf("a message has %d links, of which Telegram drops those after the 100th", n)
			}
		}
		if links != 400 {
			t.Errorf("%d links arrived in %d parts, want 400", links, len(parts))
		}
	}
}

func TestErrors(t *testing.T) {
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	rate := func(err error) bool {
		e, ok := errors.AsType[*channels.RateError](err)
		return ok && e.After == 7*time.Second && !e.Account
	}
	again := func(err error) bool {
		return err != nil && !errors.Is(err, channels.ErrRefused) &&
			!errors.Is(err, channels.ErrUncertain)
	}
	account := func(err error) bool {
		_, ok := errors.AsType[*channels.AccountError](err)
		return ok
	}
	uncertain, refused := is(channels.ErrUncertain), is(channels.ErrRefused)
	for _, tt := range []struct {
		name  string
		fault telegramtest.Fault
		check func(error) bool
	}{
		{"rate", telegramtest.Fault{RetryAfter: 7}, rate},
		{"bad request", telegramtest.Fault{Code: 400, Text: "Bad Request: x"}, refused},
		{"forbidden", telegramtest.Fault{Code: 403, Text: "Forbidden: x"}, refused},
		{"unauthorized", telegramtest.Fault{Code: 401, Text: "Unauthorized"}, account},
		{"no such token", telegramtest.Fault{Code: 404, Text: "Not Found"}, account},
		{"no such method", telegramtest.Fault{Code: 404, Text: "Not Found: method"}, again},
		{"internal", telegramtest.Fault{Code: 500}, uncertain},
		{"page 502", telegramtest.Fault{Effect: telegramtest.Page}, uncertain},
		{"page 503", telegramtest.Fault{Effect: telegramtest.Page, Code: 503}, again},
		{"page 404", telegramtest.Fault{Effect: telegramtest.Page, Code: 404}, again},
		{"page 200", telegramtest.Fault{Effect: telegramtest.Page, Code: 200}, uncertain},
		{"drop", telegramtest.Fault{Effect: telegramtest.Drop}, uncertain},
		{"lose", telegramtest.Fault{Effect: telegramtest.Lose}, uncertain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			id, err := c.Send(t.Context(), bus.Part{To: ada, Text: "before"})
			if err != nil {
				t.Fatal(err)
			}
			api.Inject(tt.fault)
			if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: "hi"}); !tt.check(err) {
				t.Errorf("Send = %v", err)
			}
			if err := c.Edit(t.Context(), ada, id, "after"); !tt.check(err) {
				t.Errorf("Edit = %v", err)
			}
			if err := c.Type(t.Context(), ada); !tt.check(err) {
				t.Errorf("Type = %v", err)
			}
			executed := tt.fault.Effect == telegramtest.Lose
			if n := len(api.History(42)); (n == 2) != executed {
				t.Errorf("%d messages arrived", n)
			}
		})
	}
}

func TestEditFallsBackToPlainText(t *testing.T) {
	api, c, _ := start(t)
	id, err := c.Send(t.Context(), bus.Part{To: ada, Text: "one"})
	if err != nil {
		t.Fatal(err)
	}
	api.Inject(telegramtest.Fault{Method: "editMessageText", Times: 1, Code: 400,
		Text: "Bad Request: can't parse entities: x"})
	if err := c.Edit(t.Context(), ada, id, "**two**"); err != nil {
		t.Errorf("Edit = %v", err)
	}
	if h := api.History(42); h[0].Text != "two" || h[0].Source != "two" || h[0].Edits != 1 {
		t.Errorf("the message is %+v, want two", h[0])
	}
}

func TestType(t *testing.T) {
	api, c, _ := start(t)
	api.AddGroup(-1007, "forum", 9)
	if err := c.Type(t.Context(), at(-1007, "9")); err != nil {
		t.Error(err)
	}
	if n := api.Typing(-1007, 9); n != 1 {
		t.Errorf("typing was shown %d times in the topic, want 1", n)
	}
}

func TestSetCommands(t *testing.T) {
	api, c, _ := start(t)
	err := c.SetCommands(t.Context(), []channels.Command{
		{Name: "new", Description: "Start over"}, {Name: "dream-log", Description: "Changes"}})
	if got := api.Commands(); err != nil || len(got) != 2 ||
		got[0] != (telegramtest.Command{Command: "new", Description: "Start over"}) ||
		got[1] != (telegramtest.Command{Command: "dream_log", Description: "Changes"}) {
		t.Errorf("SetCommands = %v, the menu is %+v", err, got)
	}
	err = c.SetCommands(t.Context(), []channels.Command{{Name: "BAD", Description: "x"}})
	if !errors.Is(err, channels.ErrRefused) {
		t.Errorf("SetCommands of a bad name = %v, want %v", err, channels.ErrRefused)
	}
}

func TestLimits(t *testing.T) {
	_, c, _ := start(t)
	direct, group := c.Limits(ada), c.Limits(at(-5, ""))
	if direct.EditInterval != time.Second || group.EditInterval != 3*time.Second {
		t.Errorf("edits every %v and %v", direct.EditInterval, group.EditInterval)
	}
	if direct.Chat.Every != time.Second || group.Chat.Every != 3*time.Second {
		t.Errorf("messages every %v and %v", direct.Chat.Every, group.Chat.Every)
	}
	if n := direct.Measure("**😀**"); n != 2 {
		t.Errorf("an emoji measures %d, want 2", n)
	}
}

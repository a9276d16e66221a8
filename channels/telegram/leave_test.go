package telegram_test

import (
	"errors"
	"fmt"
	"testing"

	"gateway/channels"
	"gateway/channels/telegram/telegramtest"
)

// TestLeave checks which of Telegram's answers count as a refusal when the bot leaves a group.
func TestLeave(t *testing.T) {
	const group, supergroup = -7, -100_7
	for _, tt := range []struct {
		name    string
		set     func(*telegramtest.Server)
		refused bool
	}{
		{"member", func(*telegramtest.Server) {}, false},
		{"kicked", func(s *telegramtest.Server) { s.SetMember(group, 42, "kicked") }, false},
		{"upgraded", func(s *telegramtest.Server) { s.Migrate(group, supergroup) }, false},
		{"deleted", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "leaveChat", Code: 400,
				Text: "Bad Request: group chat was deactivated"})
		}, false},
		{"restricted", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "leaveChat", Code: 400,
				Text: "Bad Request: CHAT_INVALID"})
		}, false},
		{"refused", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "leaveChat", Code: 400,
				Text: "Bad Request: not now"})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.AddGroup(group, "Friends")
			tt.set(api)
			err := c.Leave(t.Context(), "-7")
			if errors.Is(err, channels.ErrRefused) != tt.refused || (err != nil) != tt.refused {
				t.Errorf("Leave = %v, want a refusal: %v", err, tt.refused)
			}
			if tt.name == "upgraded" && api.InGroup(supergroup) {
				t.Error("the bot is still in the supergroup")
			}
		})
	}
	_, c, _ := start(t)
	if err := c.Leave(t.Context(), "42"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Leave of a direct chat = %v, want %v", err, channels.ErrRefused)
	}
	if err := c.Leave(t.Context(), "-12"); err != nil {
		t.Errorf("Leave of an unknown group = %v", err)
	}
}

// TestJoined checks which changes of the bot's membership mean that somebody has added it to a
// group.
func TestJoined(t *testing.T) {
	_, c, _ := start(t)
	for _, tt := range []struct {
		name, chat, before, after string
		joined                    bool
	}{
		{"added", `"type":"group"`, "left", "member", true},
		{"added again", `"type":"supergroup"`, "kicked", "restricted", true},
		{"more rights", `"type":"supergroup"`, "member", "administrator", false},
		{"removed", `"type":"group"`, "member", "kicked", false},
		{"banned", `"type":"group"`, "left", "kicked", false},
		{"unblocked by a person", `"type":"private"`, "kicked", "member", false},
		{"added to a channel", `"type":"channel"`, "left", "administrator", false},
		{"added to messages to a channel", `"type":"supergroup","is_direct_messages":true`, "left",
			"member", false},
	} {
		b := c.Translate(t.Context(), fmt.Sprintf(`{"update_id":1,"my_chat_member":{"date":1700000000,
			"chat":{"id":-7,"title":"Friends",%s},"from":{"id":42,"first_name":"Ada"},
			"old_chat_member":{"status":%q},"new_chat_member":{"status":%q}}}`,
			tt.chat, tt.before, tt.after))
		if (len(b.Joined) == 1) != tt.joined {
			t.Errorf("%s: joined %+v, want it: %t", tt.name, b.Joined, tt.joined)
		}
	}
}

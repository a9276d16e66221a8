package discord_test

import (
	"errors"
	"testing"

	"gateway/channels"
)

// TestLeaveServer checks that Server finds the server of a channel, and that refusals are
// reported.
func TestLeaveServer(t *testing.T) {
	w := start(t, nil, nil)
	server, err := w.c.Server(t.Context(), room)
	if err != nil || server.ID != club || server.Name != "Club" ||
		server.Groups[room] != "general" || server.Groups[lobby] != "lobby" ||
		server.Groups[talk] != "" {
		t.Errorf("Server = %+v, %v", server, err)
	}
	if _, err := w.c.Server(t.Context(), direct); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Server of a direct chat = %v, want %v", err, channels.ErrRefused)
	}
	w.SetGuildOwner(club, true)
	if err := w.c.Leave(t.Context(), club); !errors.Is(err, channels.ErrRefused) || !w.InGuild(club) {
		t.Errorf("Leave of the bot's own server = %v, want %v", err, channels.ErrRefused)
	}
	w.SetGuildOwner(club, false)
	if err := w.c.Leave(t.Context(), club); err != nil || w.InGuild(club) {
		t.Errorf("Leave = %v", err)
	}
	if _, err := w.c.Server(t.Context(), room); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Server of a channel that was left = %v, want %v", err, channels.ErrRefused)
	}
}

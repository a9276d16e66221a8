package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/bus"
	"gateway/channels/discord/discordtest"
	"gateway/cmd/gateway/internal/cli"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// onDiscordOnly runs a gateway whose only account is on Discord. config has more lines for this
// account.
func onDiscordOnly(t *testing.T, config string, answer openaitest.Answer) (*world, *scene) {
	t.Helper()
	w, s := withDiscordOnly(t, config, answer)
	w.run()
	s.until("the gateway", s.ready)
	return w, s
}

// withDiscordOnly is like onDiscordOnly, but does not start the gateway.
func withDiscordOnly(t *testing.T, config string, answer openaitest.Answer) (*world, *scene) {
	t.Helper()
	w := newWorld(t, worldOptions{answer: answer})
	d := openDiscord(t)
	w.config = w.config[:strings.Index(w.config, "[channels.telegram]")]
	w.config += "[channels.discord]\n" + d.config() + config
	w.configure("")
	return w, &scene{chatPlatform: d, t: t, name: "discord", w: w}
}

// TestAnswerWithoutReadMessageHistory checks that the answer is a plain message in a channel
// whose history the bot may not read. Discord rejects replies there.
func TestAnswerWithoutReadMessageHistory(t *testing.T) {
	t.Parallel()
	_, s := onDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	d.Allow("30", discordtest.ReadMessageHistory, false)
	s.sayGroup("which roses?", true)
	s.sayThread(1, "and here?")
	s.until("answers", func() bool { return len(s.group()) == 1 && len(s.thread(1)) == 1 })
	for i, text := range append(s.group(), s.thread(1)...) {
		want := []string{"which roses?", "and here?"}[i]
		if strings.HasPrefix(text, "(reply)") || !strings.HasSuffix(text, want) {
			t.Errorf("people read %q, want a plain message with %q", text, want)
		}
	}
}

// TestAnswerGivenUp checks what happens with an answer that Discord rejects: the owner and the
// sender are told, its reaction is removed, and the command line counts it.
func TestAnswerGivenUp(t *testing.T) {
	t.Parallel()
	w, s := onDiscordOnly(t, "streaming = false\naccess = \"open\"\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	s.ask("hello", "you said hello")
	s.sayStranger("hi")
	s.until("an answer", func() bool { return has(s.stranger(), "you said hi") })
	d.Allow("30", discordtest.SendMessages, false)
	id := d.Say("30", "8", "<@99> roses?")
	s.hear(`could not deliver an answer to Bob in Garden / #flowers on discord`)
	s.hear("Missing Permissions")
	s.until("no reaction", func() bool { return len(d.Reactions("30", id)) == 0 })
	s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
	s.say("/status")
	s.hear("0 to send, 1 given up")
	w.look(func(db *store.DB) {
		cfg, err := config.Load("", w.environ())
		if err != nil {
			t.Fatal(err)
		}
		rows, err := cli.ChannelRows(cfg, db.Read(t.Context()))
		if err != nil || len(rows) != 2 || rows[0][4] != any(1) {
			t.Errorf("gateway channels shows %q, %v; want one message given up", rows, err)
		}
		delete(cfg.Channels, "discord") // as if it was removed from the configuration
		rows, err = cli.ChannelRows(cfg, db.Read(t.Context()))
		if err != nil || len(rows) != 2 || rows[1][0] != any("discord") || rows[1][4] != any(1) {
			t.Errorf("gateway channels shows %q, %v; want the removed account last", rows, err)
		}
	})
	d.Allow("30", discordtest.SendMessages, true)
	w.look(func(db *store.DB) {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := bus.NewOutbox().Retry(tx, 0, time.Now())
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	s.until("the answer", func() bool { return has(s.group(), "roses?") })
}

// TestMentionOfTheRole checks that a mention of the bot's own role counts as a mention of the
// bot.
func TestMentionOfTheRole(t *testing.T) {
	t.Parallel()
	_, s := onDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	d.AddRole("10", "88", "Gateway", "99")
	d.Say("30", "8", "<@&88> roses?")
	s.until("an answer", func() bool { return has(s.group(), "you said roses?") })
}

// TestThreadOfAGap checks that a mention is answered in a thread that began while the gateway was
// down.
func TestThreadOfAGap(t *testing.T) {
	t.Parallel()
	w, s := onDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	s.ask("hello", "you said hello")
	w.stop()
	s.until("the end", func() bool { return d.Connected() == 0 })
	d.AddThread("30", "33", "lilies")
	d.Say("33", "8", "<@99> lilies?")
	d.Say("30", "8", "<@99> roses?")
	w.run()
	s.until("answers", func() bool {
		return has(s.thread(3), "you said lilies?") && has(s.group(), "you said roses?")
	})
}

// TestCommandThatIsNotForUs checks the response to a command in a channel that the bot does not
// answer, or by a stranger. Only the sender sees this response.
func TestCommandThatIsNotForUs(t *testing.T) {
	t.Parallel()
	_, s := onDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	d.AddChannel("10", "40", "weeds")
	told := func(id string) discordtest.Interaction {
		t.Helper()
		s.until("an answer", func() bool { return d.Interaction(id).Answer != 0 })
		return d.Interaction(id)
	}
	i := told(d.Slash("40", "7", "status"))
	if !i.Ephemeral || !strings.HasPrefix(i.Text, "I don't answer in this channel.") {
		t.Errorf("in another channel the answer is %+v", i)
	}
	if i = told(d.Slash("21", "8", "status")); i.Text != "" {
		t.Errorf("who gets a code is told %q besides", i.Text)
	}
	s.until("a code", func() bool { return len(s.stranger()) > 0 })
	if list := s.stranger(); len(list) != 1 || !strings.Contains(list[0], "pairing code") {
		t.Errorf("the stranger reads %q, want one code", list)
	}
	i = told(d.Slash("21", "8", "status"))
	if !i.Ephemeral || !strings.HasPrefix(i.Text, "You are not approved yet.") {
		t.Errorf("the answer to a stranger with a code is %+v", i)
	}
	i = told(d.Slash("20", "7", "status"))
	if i.Text != "" {
		t.Errorf("who is let in is told %q", i.Text)
	}
}

// TestCommandElsewhere checks a command of somebody who has added the bot to their own account, in
// a server or a chat of which the bot is not a member. It can't answer there, so it says so to the
// sender.
func TestCommandElsewhere(t *testing.T) {
	t.Parallel()
	_, s := onDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	for name, guild := range map[string]string{"a chat": "", "a server": "77"} {
		id := d.SlashElsewhere(guild, "7", "status")
		s.until("an answer", func() bool { return d.Interaction(id).Answer != 0 })
		if i := d.Interaction(id); !i.Ephemeral || !strings.Contains(i.Text, "not a member") {
			t.Errorf("in %s the answer is %+v", name, i)
		}
	}
	s.rows(0, "outbox WHERE true")
	for _, c := range d.Commands() {
		if slices.Contains(c.Contexts, 2) || len(c.Contexts) == 0 {
			t.Errorf("people see /%s in chats with others", c.Name)
		}
	}
}

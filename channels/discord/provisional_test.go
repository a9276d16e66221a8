package discord_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

// kill ends a run like a kill of the process. The next run knows only what is stored.
func (w *world) kill(t *testing.T, stop func()) {
	t.Helper()
	w.leave(t, stop)
	w.c = discord.New("dc", token, &w.opts)
}

// cursors returns the number of stored cursors.
func (w *world) cursors(t *testing.T) int {
	t.Helper()
	list, err := w.in.Cursors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A process is killed while the first messages of a channel wait for a look-up of the channel. The
// next process reads them, in order.
func TestHeldFirstMessageSurvivesKill(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]discordtest.Fault{
		"limited channel": {Method: "getChannel", RetryAfter: time.Hour},
		"slow channel":    {Method: "getChannel", Effect: discordtest.Hang},
		"limited guild":   {Method: "getGuild", RetryAfter: time.Hour},
		"slow guild":      {Method: "getGuild", Effect: discordtest.Hang},
	} {
		for place, chat := range map[string]bus.Address{
			room: at(room, ""), talk: at(room, talk), post: at(forum, post),
		} {
			t.Run(name+" "+place, func(t *testing.T) {
				t.Parallel()
				w := start(t, nil, nil)
				remove := w.Inject(fault)
				stop := w.run(t)
				w.Say(place, person, "one")
				w.Say(place, person, "two")
				w.wait(t, "look-up", func() bool { return w.Calls(fault.Method) > 0 })
				w.kill(t, stop)
				remove()
				stop = w.run(t)
				w.Say(place, person, "three")
				got := w.received(t, 3)
				if texts(got) != "one two three" || got[0].From != chat {
					t.Errorf("received %q in %v, want one, two and three in %v",
						texts(got), got[0].From, chat)
				}
				w.kill(t, stop)
				w.Say(place, person, "four")
				w.run(t)
				if got := texts(w.received(t, 4)); got != "one two three four" {
					t.Errorf("after another kill, received %q", got)
				}
			})
		}
	}
}

// All workers wait for slow look-ups. The process is killed. The next one reads the messages of all
// channels, also of those that had no worker.
func TestSlowLookUpsSurviveKill(t *testing.T) {
	t.Parallel()
	const slow = 50
	w := start(t, nil, nil)
	remove := w.Inject(discordtest.Fault{Method: "getChannel", Effect: discordtest.Hang})
	stop := w.run(t)
	id := func(i int) string { return fmt.Sprint("63000000000000001", 10+i) }
	for i := range slow {
		w.AddChannel(club, id(i), "busy")
		w.Say(id(i), person, "one")
	}
	w.wait(t, "cursors", func() bool { return w.cursors(t) == slow })
	w.kill(t, stop)
	remove()
	w.run(t)
	got := w.received(t, slow)
	for i := range slow {
		if list := in(got, id(i)); !slices.Equal(list, []string{"one"}) {
			t.Errorf("received %q in channel %d", list, i)
		}
	}
}

// The gateway deletes the cursor of a channel if it admits no message from it. It does so after the
// look-up, after a kill during the look-up, and if the bot may no longer read the channel.
func TestProvisionalCursorGoes(t *testing.T) {
	t.Parallel()
	short := discordtest.Fault{Method: "getChannel", Channel: room, Times: 1,
		RetryAfter: 1500 * time.Millisecond}
	long := discordtest.Fault{Method: "getChannel", Channel: room, RetryAfter: time.Hour}
	for _, tt := range []struct {
		name    string
		fault   discordtest.Fault
		kill    bool
		refused bool
	}{
		{"looked up", short, false, false},
		{"killed", long, true, false},
		{"refused", long, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil, nil)
			w.in.Admit = func(m bus.InboundMessage) bool { return m.From.Chat != room }
			remove := w.Inject(tt.fault)
			stop := w.run(t)
			w.Say(room, other, "hello")
			w.wait(t, "look-up", func() bool { return w.Calls("getChannel") > 0 })
			if n := w.cursors(t); n != 1 {
				t.Errorf("during the look-up %d cursors are stored, want 1", n)
			}
			if tt.kill {
				w.kill(t, stop)
			}
			if tt.refused {
				w.Inject(discordtest.Fault{Channel: room, Status: 403, Code: 50001, Text: "no"})
			}
			remove()
			if tt.kill {
				w.run(t)
			}
			w.wait(t, "end of the cursor", func() bool { return w.cursors(t) == 0 })
			w.Say(room, other, "again")
			w.Say(direct, person, "end")
			w.received(t, 1)
			if n := w.cursors(t); n != 1 {
				t.Errorf("%d cursors are stored, want that of the direct chat", n)
			}
		})
	}
}

// A channel that the gateway knows costs no additional write for its next message.
func TestKnownChannelIsWrittenOnce(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	writes := 0 // guarded by the order of the events below
	w.in.OnPublish = func() error { writes++; return nil }
	stop := w.run(t)
	w.Say(room, person, "one")
	w.received(t, 1)
	w.leave(t, stop) // everything of the first message is written
	writes = 0
	stop = w.run(t)
	w.wait(t, "page", func() bool { return w.Calls("listMessages") > 0 })
	for i, text := range []string{"two", "three"} {
		w.Say(room, person, text)
		w.received(t, 2+i)
	}
	w.Say(direct, person, "a first message needs no look-up here")
	w.received(t, 4)
	w.leave(t, stop)
	if writes != 3 {
		t.Errorf("three messages took %d writes", writes)
	}
}

// While the gateway was down, a message was written in a new thread of a listed channel. The next
// process knows only a later message, whose look-up is limited, and is killed. The process after it
// reads both, also the earlier one.
func TestKillBeforeListedThreadIsRead(t *testing.T) {
	t.Parallel()
	const young = "6300000000000000003"
	for name, fault := range map[string]discordtest.Fault{
		"look-up": {Method: "getChannel", Channel: young, RetryAfter: time.Hour},
		"page":    {Method: "listMessages", Channel: young, RetryAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil, &discord.Options{Groups: []string{room}, Postpone: time.Hour})
			stop := w.run(t)
			w.Say(direct, person, "hello")
			w.received(t, 1)
			w.leave(t, stop)
			w.AddThread(room, young, "a young talk")
			w.Say(young, person, "meanwhile")
			search := w.Inject(discordtest.Fault{Method: "activeThreads", RetryAfter: time.Hour})
			remove := w.Inject(fault)
			stop = w.run(t)
			w.Say(young, person, "now")
			w.wait(t, "a limited call", func() bool { return w.Hits(discordtest.Answer, young) > 0 })
			w.kill(t, stop)
			remove()
			w.run(t)
			got := in(w.received(t, 3), young)
			if !slices.Equal(got, []string{"meanwhile", "now"}) {
				t.Errorf("received %q", got)
			}
			search()
		})
	}
}

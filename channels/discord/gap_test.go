package discord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

// After a gap, Discord may limit the reads of one channel for an hour. Other channels do not
// wait for it, and a button that is pressed in that channel still works.
func TestGapHoldsUpNobody(t *testing.T) {
	w := start(t, nil, &discord.Options{Postpone: time.Hour})
	stop := w.run(t)
	w.Say(room, person, "before")
	w.received(t, 1)
	stop()
	id, err := w.c.Send(t.Context(), bus.Part{To: at(room, ""), Text: "Sure?",
		Buttons: []bus.Button{{Label: "Yes", Text: "/approve X1"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Inject(discordtest.Fault{Method: "listMessages", Channel: room, RetryAfter: time.Hour})
	w.run(t)
	w.Say(direct, person, "hello")
	w.received(t, 2)
	w.Press(room, id, "/approve X1", person)
	if got := w.received(t, 3); got[2].Text != "/approve X1" {
		t.Errorf("received %+v, want the press", got[2])
	}
}

// After a gap, Discord may limit the look-ups of as many channels as are read at once. Other
// channels do not wait for them.
func TestLookUpHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Postpone: time.Hour})
	stop := w.run(t)
	w.Say(room, person, "before") // the channel with the oldest message is read last
	w.received(t, 1)
	const limited = 8
	id := func(i int) string { return fmt.Sprint("630000000000000001", i) }
	for i := range limited {
		w.AddChannel(club, id(i), "busy")
		w.Say(id(i), person, "before")
	}
	w.received(t, 1+limited)
	w.leave(t, stop)
	w.Say(room, person, "meanwhile")
	for i := range limited {
		w.Say(id(i), person, "meanwhile")
		w.Inject(discordtest.Fault{Method: "getChannel", Channel: id(i), RetryAfter: time.Hour})
	}
	w.run(t)
	if got := w.received(t, 2+limited); got[1+limited].From != at(room, "") {
		t.Errorf("received %+v, want what was said in the channel without a limit", got[1+limited])
	}
}

// leave ends a run and waits until the server has noticed.
func (w *world) leave(t *testing.T, stop func()) {
	t.Helper()
	stop()
	w.wait(t, "end of the connection", func() bool { return w.Connected() == 0 })
}

// No channel waits for a request about another one: neither for its page of messages after a gap
// nor for its look-up.
func TestNoChannelWaitsForAnother(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	stop := w.run(t)
	w.Say(room, person, "before")
	w.received(t, 1)
	w.leave(t, stop)
	w.Say(room, person, "meanwhile")
	freeRoom := w.Inject(discordtest.Fault{Method: "listMessages", Channel: room,
		Effect: discordtest.Hang})
	freeLobby := w.Inject(discordtest.Fault{Method: "getChannel", Channel: lobby,
		Effect: discordtest.Hang})
	stop = w.run(t)
	w.Say(lobby, person, "what is this place?")
	w.wait(t, "a page and a look-up", func() bool {
		return w.Hits(discordtest.Hang, room) > 0 && w.Hits(discordtest.Hang, lobby) > 0
	})
	for range 3 {
		w.Say(direct, person, "hello")
	}
	w.Say(room, person, "now")
	w.received(t, 4)
	freeRoom()
	freeLobby()
	w.leave(t, stop) // else the run would wait for the calls that hang
	w.run(t)
	got := w.received(t, 7)
	if list := in(got, room); !slices.Equal(list, []string{"before", "meanwhile", "now"}) {
		t.Errorf("received %q in the channel that was read late", list)
	}
}

// Discord limits the look-ups of more channels than are stored at once. Their live events do not
// delay other channels. They are stored in order after the limit has ended, also if the run has
// ended meanwhile.
func TestLimitedLookUpsHoldUpNobody(t *testing.T) {
	t.Parallel()
	const limited = 40
	id := func(i int) string { return fmt.Sprint("63000000000000001", 10+i) }
	for _, tt := range []struct {
		name  string
		after time.Duration
		again bool // another run begins during the limit
	}{{"short", 1500 * time.Millisecond, false}, {"another run", time.Hour, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil, nil)
			stop := w.run(t)
			var free []func()
			for i := range limited {
				w.AddChannel(club, id(i), "busy")
				f := discordtest.Fault{Method: "getChannel", Channel: id(i), RetryAfter: tt.after}
				if !tt.again {
					f.Times = 1
				}
				free = append(free, w.Inject(f))
				w.Say(id(i), person, "one")
				w.Say(id(i), person, "two")
			}
			w.wait(t, "look-ups", func() bool { return w.Calls("getChannel") >= 32 })
			if tt.again {
				w.Say(direct, person, "hello")
				w.received(t, 1)
				w.InvalidSession(false)
				w.Say(direct, person, "hello after a gap")
				w.received(t, 2)
				w.leave(t, stop)
				for _, end := range free {
					end()
				}
				w.run(t)
			}
			n := 2 * limited
			if tt.again {
				n += 2
			}
			got := w.received(t, n)
			for i := range limited {
				if list := in(got, id(i)); !slices.Equal(list, []string{"one", "two"}) {
					t.Errorf("received %q in channel %d", list, i)
				}
			}
		})
	}
}

// The press of a button in a channel whose look-up is limited is stored after the limit, too.
func TestLimitedPress(t *testing.T) {
	t.Parallel()
	w := start(t, &discordtest.Options{AnswerTime: time.Hour}, nil)
	id, err := w.c.Send(t.Context(), bus.Part{To: at(room, ""), Text: "Sure?",
		Buttons: []bus.Button{{Label: "Yes", Text: "/approve X1"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Inject(discordtest.Fault{Method: "getChannel", Times: 1, RetryAfter: 1500 * time.Millisecond})
	w.run(t)
	w.Press(room, id, "/approve X1", person)
	w.Say(room, person, "end")
	if got := texts(w.received(t, 2)); got != "/approve X1 end" {
		t.Errorf("received %s", got)
	}
	w.wait(t, "answer", func() bool { return w.Unanswered() == 0 })
}

// The bot is in so many guilds that it forgot this one. An edit waits for the look-up of the
// guild. After that, the edit must not count as a known message.
func TestLimitedEdit(t *testing.T) {
	t.Parallel()
	const guilds = 500 // the number of guilds that the channel remembers
	w := start(t, nil, nil)
	w.run(t)
	message := w.Say(room, person, "before")
	w.received(t, 1)
	for i := range guilds {
		id := fmt.Sprint("66000000000000001", 100+i)
		w.AddGuild(id, "Another")
		w.AddChannel(id, id+"0", "general")
		w.Say(id+"0", person, "hello")
		w.received(t, 2+i)
	}
	w.Inject(discordtest.Fault{Method: "getGuild", Times: 1, RetryAfter: 1500 * time.Millisecond})
	w.EditSay(room, message, "edited")
	w.Say(room, person, "end")
	got := in(w.received(t, 1+guilds+2), room)
	if !slices.Equal(got, []string{"before", "edited", "end"}) {
		t.Errorf("received %q", got)
	}
}

// After a gap, the adapter also reads allowed channels and threads in which people wrote for the
// first time. It reads them before newer messages there. It does not read other channels.
func TestUnknownChannelsAfterGap(t *testing.T) {
	t.Parallel()
	const old, young, foreign = "6300000000000000002", "6300000000000000003", "6300000000000000004"
	w := start(t, nil, &discord.Options{Groups: []string{room, forum, "6200000000000000009"}})
	w.AddThread(room, old, "an old talk")
	w.AddThread(lobby, foreign, "not for us")
	w.Say(old, person, "before all")
	stop := w.run(t)
	w.Say(direct, person, "hello")
	w.received(t, 1) // the first start doesn't read older messages
	if n := w.Calls("activeThreads") + w.Calls("listMessages"); n != 0 {
		t.Errorf("a first start asked for threads and messages %d times", n)
	}
	w.leave(t, stop)
	w.AddThread(room, young, "a young talk")
	for _, p := range []string{room, young, post, foreign, lobby} {
		w.Say(p, person, "meanwhile")
	}
	release := w.Inject(discordtest.Fault{Method: "activeThreads", RetryAfter: time.Minute})
	stop = w.run(t)
	w.Say(young, person, "now")
	got := w.received(t, 4) // including the one in the channel itself
	if list := in(got, young); !slices.Equal(list, []string{"meanwhile", "now"}) {
		t.Errorf("received %q in a thread that began in the gap", list)
	}
	w.leave(t, stop)
	release()
	w.run(t)
	w.wait(t, "what was said meanwhile", func() bool {
		got := w.in.Messages()
		return len(in(got, room)) > 0 && len(in(got, post)) > 0
	})
	got = nil
	known := make(map[string]bool)
	for _, m := range w.in.Messages() {
		if !known[m.ID] { // the gate drops messages that are read twice
			got = append(got, m)
		}
		known[m.ID] = true
	}
	for place, want := range map[string][]string{room: {"meanwhile"}, post: {"meanwhile"},
		young: {"meanwhile", "now"}, foreign: nil, lobby: nil} {
		if list := in(got, place); !slices.Equal(list, want) {
			t.Errorf("received %q in %s, want %q", list, place, want)
		}
	}
}

// A channel that is allowed later is read after the next gap.
func TestChannelListedLater(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Groups: []string{room}})
	stop := w.run(t)
	w.Say(direct, person, "hello")
	w.received(t, 1)
	w.c.SetGroups([]string{room, lobby})
	w.leave(t, stop)
	w.Say(lobby, person, "meanwhile")
	w.run(t)
	if got := w.received(t, 2); got[1].Text != "meanwhile" {
		t.Errorf("received %+v, want what was said in the gap", got[1])
	}
}

// If Discord no longer knows a channel, the adapter asks for it once. If the channel is closed
// to the bot, the adapter asks three times. When a channel opens again, its messages arrive
// again.
func TestChannelIsGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		status, code int
		asked        int
	}{{"unknown", 404, 10003, 1}, {"closed", 403, 50001, 3}, {"not permitted", 403, 50013, 6}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil, nil)
			stop := w.run(t)
			w.Say(direct, person, "hello")
			w.Say(room, person, "before")
			w.received(t, 2)
			w.leave(t, stop)
			open := w.Inject(discordtest.Fault{Method: "listMessages", Channel: room,
				Status: tt.status, Code: tt.code, Text: "no"})
			const starts = 6
			for i := range starts {
				before := len(w.in.Messages())
				w.Say(direct, person, "meanwhile")
				stop = w.run(t)
				w.received(t, before+1)
				w.wait(t, "pages", func() bool {
					return w.Calls("listMessages") == i+1+min(i+1, tt.asked)
				})
				w.wait(t, "refusal", func() bool { // otherwise the end of the run could precede it
					return strings.Count(w.log.String(), "can't be read after a gap") == min(i+1, tt.asked)
				})
				w.wait(t, "cursor", func() bool {
					cursors, _ := w.in.Cursors(t.Context())
					return (cursors[room] == "") == (i+1 >= tt.asked && tt.asked < starts)
				})
				w.leave(t, stop)
			}
			open()
			w.run(t)
			w.Say(room, person, "open again")
			got := w.received(t, 2+starts+1)
			if list := in(got, room); !slices.Equal(list, []string{"before", "open again"}) {
				t.Errorf("received %q in the channel", list)
			}
		})
	}
}

// The entry "*", which stands for all channels, is not looked up as the id of a channel.
func TestAllChannelsListed(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Groups: []string{"*", room}})
	stop := w.run(t)
	w.Say(direct, person, "hello")
	w.received(t, 1)
	w.leave(t, stop)
	before := w.Calls("getChannel")
	w.Say(room, person, "meanwhile")
	w.run(t)
	if got := w.received(t, 2); got[1].Text != "meanwhile" { // the search looks up channels in order
		t.Errorf("received %+v, want what was said in the gap", got[1])
	}
	if n := w.Calls("getChannel") - before; n != 1 {
		t.Errorf("%d channels were looked up, want 1", n)
	}
}

//go:build unix

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.mau.fi/whatsmeow/types"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// asked matches the numbered questions that people ask in these tests.
var asked = regexp.MustCompile(`q-[a-z]+-\d+`)

// counts is a model that says which question it answers and how many questions it sees in the
// conversation.
func counts(r openaitest.Request) openaitest.Reply {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "user" && asked.MatchString(m.Content) {
			n++
		}
	}
	return say(fmt.Sprintf("answer to %s, number %d", asked.FindString(lastText(r)), n))
}

// calm has the settings of an account without previews, limits and reactions.
const calm = "streaming = false\nrate_limit = \"off\"\nsender_rate = 0\nreaction = \"\"\n"

// link links the guests of a guestWorld, who were let in before, so that they are one person.
func (in *guestWorld) link() {
	in.t.Helper()
	var ids []int64
	in.look(func(db *store.DB) {
		var id int64
		for range in.query(db, []any{&id}, "SELECT id FROM people WHERE name = $1 ORDER BY id", zoe) {
			ids = append(ids, id)
		}
	})
	if len(ids) != len(in.guests) {
		in.t.Fatalf("the people %v were let in, want one for each platform", ids)
	}
	for _, other := range ids[1:] {
		if out, err := in.gateway("people", "link", fmt.Sprint(ids[0]), fmt.Sprint(other)); err != nil {
			in.t.Fatalf("link: %v\n%s", err, out)
		}
	}
}

// numbers returns the answers of the model "counts" to a guest, in order: the answered questions
// and the numbers. It skips repeated messages on Telegram, which a kill of the gateway can cause.
func (g guest) numbers() (questions []string, numbers []int) {
	last := ""
	for _, text := range g.texts() {
		rest, ok := strings.CutPrefix(text, "answer to q-")
		question, number, found := strings.Cut(rest, ", number ")
		n, err := strconv.Atoi(number)
		if !ok || !found || err != nil || text == last && g.platform == "telegram" {
			continue
		}
		questions, numbers, last = append(questions, "q-"+question), append(numbers, n), text
	}
	return questions, numbers
}

// TestPersonOnPlatforms checks that a person who is linked on three platforms has one
// conversation there. The person writes on all platforms at the same time while the gateway is
// killed. Each message is answered once, in its chat and in one common order. Commands and
// /forget apply to that conversation from any chat.
func TestPersonOnPlatforms(t *testing.T) {
	t.Parallel()
	in := newGuestWorldOf(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if asked.MatchString(lastText(r)) {
			return counts(r)
		}
		return openaitest.Echo(r)
	}, agent: `queue_mode = "followup"`}, calm+"session = \"person\"\n")
	p := in.open()
	in.welcome()
	in.link()
	p.kill()
	const each = 4
	p = in.open("GATEWAY_FAULT=begun:3")
	var all sync.WaitGroup
	for _, g := range in.guests {
		all.Go(func() {
			for n := range each {
				g.say(fmt.Sprintf("q-%s-%d", g.platform, n+1))
			}
		})
	}
	all.Wait()
	for _, fault := range []string{"GATEWAY_FAULT=finished:4", ""} {
		if code := p.exited(patience); code != -1 {
			t.Fatalf("exit code %d, want a kill\n%s", code, p.newest())
		}
		p = in.start(fault) // the process may end before all platforms are connected
	}
	in.eventually("all answers", func(*store.DB) bool {
		return !slices.ContainsFunc(in.guests, func(g guest) bool {
			questions, _ := g.numbers()
			return len(questions) < each
		})
	})
	in.eventually("nothing is under way", func(db *store.DB) bool {
		return in.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0 &&
			in.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
	})
	var order []int
	for _, g := range in.guests {
		var want []string
		for n := range each {
			want = append(want, fmt.Sprintf("q-%s-%d", g.platform, n+1))
		}
		questions, numbers := g.numbers()
		if !slices.Equal(questions, want) || !slices.IsSorted(numbers) {
			t.Errorf("%s shows answers to %q with the numbers %v, want %q in order", g.platform,
				questions, numbers, want)
		}
		order = append(order, numbers...)
	}
	slices.Sort(order)
	for i, n := range order {
		if n != i+1 {
			t.Fatalf("the answers have the numbers %v, want each of one conversation once", order)
		}
	}

	first, last := in.guests[0], in.guests[len(in.guests)-1]
	first.say("/new")
	in.hear(first, "A new conversation begins.")
	last.say("q-anew-1")
	in.hear(last, "answer to q-anew-1, number 1")
	first.say("q-anew-2")
	in.hear(first, "answer to q-anew-2, number 2")
	last.say("/forget me now")
	in.hear(last, "I have forgotten you")
	in.forgets()
	in.wantNoTraces()
	for _, g := range in.guests {
		if left := in.traces("q-" + g.platform); len(left) > 0 {
			t.Errorf("%s: the conversation is left in %q", g.platform, left)
		}
	}
	in.wantStrangers()
}

// TestSpeakersOnPlatforms checks on each platform that each member of a group has a conversation
// of their own, which does not wait for those of other members.
func TestSpeakersOnPlatforms(t *testing.T) {
	t.Parallel()
	hold := newHold()
	defer hold.release()
	w, platforms := openPlatforms(t, "session = \"speaker\"\nreaction = \"\"\n",
		func(r openaitest.Request) openaitest.Reply {
			if strings.Contains(lastText(r), "q-slow-1") {
				<-hold.released
			}
			return counts(r)
		})
	w.onAll(platforms, func(s *scene) {
		s.sayGroup("q-slow-1", true)
		s.w.eventually("the question is asked", func(db *store.DB) bool {
			return s.w.count(db, "turns WHERE state = 'running' AND session LIKE '"+s.name+"/%'") == 1
		})
		s.annInGroup("q-ann-1")
		s.until("an answer to Ann", func() bool { return has(s.group(), "answer to q-ann-1, number 1") })
		if has(s.group(), "q-slow-1,") {
			s.t.Errorf("%s: the answer to Bob is there already", s.name)
		}
	})
	hold.release()
	w.onAll(platforms, func(s *scene) {
		s.until("an answer to Bob", func() bool {
			return has(s.group(), "answer to q-slow-1, number 1")
		})
		s.annInGroup("q-ann-2")
		s.until("the next one to Ann", func() bool {
			return has(s.group(), "answer to q-ann-2, number 2")
		})
		s.sayGroup("q-bob-2", true)
		s.until("the next one to Bob", func() bool {
			return has(s.group(), "answer to q-bob-2, number 2")
		})
	})
}

// annInGroup makes Ann write to the bot in the group.
func (s *scene) annInGroup(text string) {
	s.t.Helper()
	switch o := s.chatPlatform.(type) {
	case *onTelegram:
		o.Say(groupID, annID, "@gateway_bot "+text)
	case *onDiscord:
		o.Say("30", "7", "<@99> "+text)
	case *onWhatsApp:
		_, err := o.ann.Mention(o.t.Context(), o.garden, "@"+o.BotLID()+" "+text,
			types.NewJID(o.BotLID(), types.HiddenUserServer))
		o.must(err)
	}
}

// TestReloadSessions checks that the setting session can change during an answer, also with a
// kill afterwards. Messages that came before the end of that answer are answered in order in the
// old conversation. Then the conversation of the person begins. On the next day a new one begins.
func TestReloadSessions(t *testing.T) {
	t.Parallel()
	hold := newHold()
	defer hold.release()
	owned := quiet + "\nowners = [7]\n"
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if strings.Contains(lastText(r), "q-slow-2") {
			hold.wait()
		}
		return counts(r)
	}, agent: `queue_mode = "followup"`, channel: owned})
	p := w.start()
	p.ready()
	w.answers(annID, "q-a-1")
	w.telegram.Say(annID, annID, "q-slow-2")
	until(t, "the model is asked", hold.reached)
	w.configure(owned + "session = \"person\"\nsession_reset = \"00:00\"\n")
	p.says(reloaded, 1)
	w.telegram.Say(annID, annID, "q-a-3")
	w.received()
	p.kill()
	p = w.start()
	p.ready()
	w.telegram.Say(annID, annID, "q-a-4")
	w.received()
	hold.release()
	w.await("the last answer", func() bool { return heard(w, annID, "q-a-4") })
	w.eventually("nothing is under way", func(db *store.DB) bool {
		return w.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0
	})
	w.answers(annID, "q-new-1")
	w.answers(annID, "q-new-2")
	p.stop()
	w.look(func(db *store.DB) { // the conversation began yesterday
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE sessions SET began_ms = began_ms - 86400000")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	p = w.start()
	p.ready()
	w.answers(annID, "q-day-1")
	w.answers(annID, "q-day-2")
	want := []string{"answer to q-a-1, number 1", "answer to q-slow-2, number 2",
		"answer to q-a-3, number 3", "answer to q-a-4, number 4", "answer to q-new-1, number 1",
		"answer to q-new-2, number 2", "answer to q-day-1, number 1", "answer to q-day-2, number 2"}
	if got := slices.Compact(w.texts(annID)); !slices.Equal(got, want) {
		t.Errorf("the chat shows %q, want %q", got, want)
	}
	p.stop()
}

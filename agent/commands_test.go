package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// On some platforms a command can't contain "-". People there write "_" instead.
func TestUnderscores(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		w.say("a", "/dream_restore", "/dream_log")
		w.wantQuiet()
		const none = "My documents about this conversation have not changed yet."
		told := w.outbox("a")
		if len(told) != 2 || !strings.HasPrefix(told[0].Text, "Say which change") ||
			told[1].Text != none {
			t.Errorf("told %+v", told)
		}
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Name = "Robin"
		w.start()
		w.say("a", "/help", "/START", "/help me\nplease")
		const want = "I am Robin. Write to me and I answer. I know these commands:\n\n" +
			"- `/help`: what I can do\n" +
			"- `/status`: model, usage, queue and channels\n" +
			"- `/stop`: end the running answer and discard what waits\n" +
			"- `/new`: begin a new conversation\n" +
			"- `/queue`: what happens to messages during an answer: " +
			"steer, followup, collect or interrupt\n" +
			"- `/model`: which language model answers here\n" +
			"- `/think`: how long the model thinks before it answers: off, low or high\n" +
			"- `/voice`: whether I answer with voice messages, too: never, always or auto\n" +
			"- `/activity`: how much of my work I show before the answer: off, compact or full\n" +
			"- `/compact`: shorten this conversation: its older part becomes notes\n" +
			"- `/memory`: what I know about you\n" +
			"- `/history`: my notes of earlier conversations\n" +
			"- `/skills`: instructions that I can follow\n" +
			"- `/dream`: save what I learned recently\n" +
			"- `/dream-log`: how my memory has changed\n" +
			"- `/dream-restore`: undo a change of my memory\n" +
			"- `/export`: everything that I have stored about you, as a file\n" +
			"- `/forget`: delete what I know about you\n" +
			"- `/jobs`: reminders and jobs\n" +
			"- `/remind`: remind you of something in 20m, tomorrow 9:00, every 2h …\n" +
			"- `/timezone`: the time zone of this conversation\n" +
			"- `/usage`: tokens and money used, and their limits\n" +
			"- `/context`: what fills the context window of the model here\n" +
			"- `/approve`: let me do what I have asked for\n" +
			"- `/deny`: don't let me do what I have asked for\n" +
			"- `/halt`: emergency stop: pause everything for everybody\n" +
			"- `/resume`: continue after /halt\n" +
			"- `/audit`: who has approved, let in, halted or changed what\n" +
			"- `/restart`: restart the gateway\n"
		w.wantAnswers("a", want, want, want)
		w.wantQuiet()
	})
}

// Commands that a role may not use are refused and not shown.
func TestCommandRoles(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Commands = []command.Command{{Name: "pair", Help: "let somebody in", MinRole: bus.Admin,
			Run: func(_ context.Context, r *command.Request) (command.Reply, error) {
				return command.Reply{Text: "paired " + r.Args + " for " + r.Message.Sender.ID,
					Buttons: []bus.Button{{Label: "Undo", Text: "/unpair"}}}, nil
			}}}
		w.start()
		for _, role := range []bus.Role{bus.Guest, bus.User, bus.Admin} {
			m := w.message("a", "/pair X")
			m.Role = role
			help := w.message("a", "/help")
			help.Role = role
			w.put(m, help)
		}
		out := w.outbox("a")
		for i, want := range []string{"Only admins and owners can use `/pair`.", "",
			"Only admins and owners can use `/pair`.", "", "paired X for 7", ""} {
			if want != "" && out[i].Text != want {
				w.t.Errorf("answer %d is %q, want %q", i, out[i].Text, want)
			}
		}
		for i, role := range map[int]bus.Role{1: bus.Guest, 3: bus.User, 5: bus.Admin} {
			var want, got []string
			for _, known := range command.List() {
				if known.Help != "" && role.AtLeast(known.MinRole) {
					want = append(want, known.Name)
				}
			}
			if role == bus.Admin {
				want = append(want, "pair")
			}
			for line := range strings.SplitSeq(out[i].Text, "\n") {
				if rest, ok := strings.CutPrefix(line, "- `/"); ok {
					name, _, _ := strings.Cut(rest, "`")
					got = append(got, name)
				}
			}
			if !slices.Equal(got, want) {
				w.t.Errorf("the help for %s shows %q, want %q", role, got, want)
			}
		}
		if len(out[4].Buttons) != 1 {
			w.t.Errorf("the answer has buttons %v", out[4].Buttons)
		}
		w.wantQuiet()
	})
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		w.say("a", "/stauts", "/frobnicate now")
		w.wantQuiet()
		w.wantAnswers("a", "I don't know `/stauts`. Did you mean `/status`? See `/help`.",
			"I don't know `/frobnicate`. See `/help` for the commands that I know.")
		if n := len(w.model.Requests()); n != 0 {
			t.Errorf("commands were sent to the model %d times", n)
		}
	})
}

func TestPathIsNoCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("a file"))
		w.start()
		w.say("a", "/etc/hosts is what?")
		w.wantQuiet()
		w.wantAsked(1, "user: /etc/hosts is what?")
		w.wantAnswers("a", "a file")
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		step := llmtest.Say("one")
		step.Usage = llm.Usage{Input: 1200, Output: 34, Cached: 1000}
		w.model.Queue(step, held(llmtest.Say("two"), release))
		w.opts.Name, w.opts.Version, w.opts.ModelName = "Robin", "v1.2.3", "clever"
		w.opts.QueueMode, w.opts.ContextWindow, w.opts.MaxOutput = pool.Followup, 10_000, 2_000
		w.opts.Usage = budget.New(&budget.Options{Price: func(_ string, u llm.Usage) float64 {
			return float64(u.Output) / 100
		}})
		w.outside.states = func(store.Queryer) ([]string, error) {
			return []string{"telegram: ready", "test: asleep"}, nil
		}
		w.start()
		w.say("a", "hello")
		w.sleep(90 * time.Second)
		w.say("a", "again", "and more", "/status")
		const want = "- Gateway: Robin v1.2.3, running for 1m30s\n- Model: clever\n" +
			"- Tokens: 1200 in (1000 cached), 34 out\n- Cost: $0.3400\n" +
			"- Context: 17 % full, 1200 of 6976 tokens\n- Queue: followup, 1 waiting\n" +
			"- Busy: one conversation, 1 of 64 model calls\n" +
			"- Channel: telegram: ready\n- Channel: test: asleep\n"
		w.wantAnswers("a", "one", want)
		w.say("b", "/status")
		got := w.outbox("b")[0].Text
		line := "- Tokens: 0 in (0 cached), 0 out\n- Context: 0 % full, 0 of"
		if !strings.Contains(got, line) {
			t.Errorf("/status of a new conversation is %q, want it to contain %q", got, line)
		}
		w.model.Queue(llmtest.Say("three"))
		close(release)
		w.wantQuiet()
	})
}

// After /new the prompt begins with the next message. The transcript stays.
func TestNew(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("one"), held(llmtest.Say("never"), make(chan struct{})),
			llmtest.Say("two"), llmtest.Say("three"))
		w.start()
		w.say("a", "/new", "hello", "again", "and", "more", "/new", "afresh", "and on")
		w.wantQuiet()
		w.wantAsked(3, "user: afresh")
		w.wantAsked(4, "user: afresh", "assistant: two", "user: and on")
		w.wantAnswers("a", "A new conversation begins.", "one",
			"A new conversation begins. I have discarded 2 waiting messages.", "two", "three")
		w.wantTranscript("a", "user: hello", "assistant: one", "user: again",
			"assistant: "+turn.MarkStopped, "user: afresh", "assistant: two", "user: and on",
			"assistant: three")
	})
}

// A command is one transaction: if its answer can't be stored, it changes nothing.
func TestCommandIsOneTransaction(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		w.tools(act("look", tool.Pure, until(make(chan struct{}), "")))
		w.model.Queue(uses("look"))
		w.start()
		w.say("a", "hello", "again")
		turns, transcript := w.column(turnStates), w.column(transcriptBodies)
		w.exec(`CREATE TRIGGER full BEFORE INSERT ON outbox
			BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
		w.say("a", "/stop")
		w.must(w.stop())
		wantLines(t, "turns after a /stop that failed", w.column(turnStates), turns)
		wantLines(t, "transcript after it", w.column(transcriptBodies), transcript)
		w.exec("DROP TRIGGER full")
		w.expireLeases()
		w.start()
		w.wantAnswers("a", "Stopped, and discarded one waiting message.")
	})
}

// The total that /context shows is the size of the next request without its newest message.
// /context names each part of the prompt.
func TestContext(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := w.atLength()
		w.opts.ContextWindow = 40_000
		w.document("SOUL.md", strings.Repeat("Be kind. ", 100))
		w.remembers(memory.OfPerson(5), memory.Fact{Key: "tea", Value: "green", Pinned: true})
		w.tools(act("look", tool.Pure, nil))
		w.start()
		w.put(person(w.message("a", "/context"), 5), person(w.message("a", "hello"), 5))
		w.wantQuiet()
		w.put(person(w.message("a", "/context"), 5), person(w.message("a", "more"), 5))
		w.wantQuiet()
		told := w.outbox("a")
		first, second := told[0].Text, told[2].Text
		for _, part := range []string{" of the 40000 tokens of ", "\n- SOUL.md: 30", "\n- Memory: ",
			"\n- Tools: ", "\n- Instructions: ", "\n- Kept for the answer: 9216 (23 %)", "\n- Free: ",
			"\n\n`/compact` shortens"} {
			if !strings.Contains(first, part) {
				t.Errorf("%q is missing in\n%s", part, first)
			}
		}
		if strings.Contains(first, "Messages") || !strings.Contains(second, "\n- Messages: ") {
			t.Errorf("before and after a message it says\n%s\nand\n%s", first, second)
		}
		var used int
		if _, err := fmt.Sscanf(second, "About %d of", &used); err != nil {
			t.Fatal(err)
		}
		req := m.Requests()[1]
		size := prompt.Size(req) - len(req.Messages[len(req.Messages)-1].Text)
		if ratio := w.d.env.Calls.Estimates.Ratio("scripted"); math.Abs(
			float64(used)-float64(size)/ratio) > 100 {
			t.Errorf("it says %d tokens, and the request has %.0f", used, float64(size)/ratio)
		}

		user := w.message("b", "/context test/a")
		user.Role = bus.User
		w.put(user, w.message("b", "/context test/a"), w.message("b", "/context test/x"))
		w.wantQuiet()
		for i, part := range []string{"Only admins", "\n- Messages: ", "There is no conversation"} {
			if got := w.texts("b")[i]; !strings.Contains(got, part) {
				t.Errorf("answer %d to another chat is %q, want %q in it", i, got, part)
			}
		}
	})
}

// The pause between two exports is never longer than an hour, also if the clock was set back since
// the first one.
func TestExportWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var ahead atomic.Int64
		ahead.Store(int64(8 * time.Hour))
		w.opts.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.start()
		w.tells(5, "a", "/export")
		w.sleep(time.Minute)
		w.tells(5, "a", "/export")
		ahead.Store(0)
		w.sleep(time.Minute)
		w.tells(5, "a", "/export")
		w.wantQuiet()
		w.wantAnswers("a", "I have made an export for you less than an hour ago. Please ask again in "+
			"60 minutes.")
	})
}

package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// died leaves the life of a process that ended without a record of its end. suspect is what the
// process tried alone, or "".
func (w *world) died(suspect string) {
	w.t.Helper()
	w.live()
	w.exec("UPDATE lives SET suspect = $1", suspect)
}

// If a process ends without a record of its end, all open work counts a crash. If the process
// tried a suspect alone, only the suspect counts it.
func TestIsSuspect(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		crashed bool
		suspect string
		want    []string // crashes of the messages, attempts of the turns
	}{
		{"in order", false, "", []string{"a 0", "b 0", "c 2", "d 2"}},
		{"without a word", true, "", []string{"a 1", "b 1", "c 2", "d 2"}},
		{"while a message was tried", true, "session test/a", []string{"a 1", "b 0", "c 1", "d 1"}},
		{"while a turn was tried", true, "session test/c", []string{"a 0", "b 0", "c 2", "d 1"}},
		{"while a delivery was tried", true, "delivery 7", []string{"a 0", "b 0", "c 1", "d 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.died(test.suspect)
				if !test.crashed {
					w.must(w.deps.Life.End(t.Context(), w.now()))
				}
				w.leave("c", "hello", 1)
				w.leave("d", "hello", 1)
				w.put(w.message("a", "hello"), w.message("b", "hello"))
				w.exec("UPDATE inbox SET handed = 1 WHERE state = 'waiting'")
				for range 4 {
					w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
				}
				w.start()
				got := w.column("SELECT chat || ' ' || crashes FROM inbox " +
					"WHERE chat IN ('a', 'b') ORDER BY chat")
				got = append(got, w.column("SELECT substr(session, 6) || ' ' || attempts FROM turns "+
					"WHERE session IN ('test/c', 'test/d') ORDER BY session")...)
				wantLines(t, "counts", got, test.want)
			})
		})
	}
}

// A message that has crashed several processes joins neither a running turn nor other messages.
// So it is the only one that is given up.
func TestSuspectJoinsNobody(t *testing.T) {
	t.Parallel()
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				w.leave("a", "hello", 1)
				w.put(w.message("a", "and you?"), w.message("a", "boom"))
				w.exec("UPDATE inbox SET crashes = $1 WHERE message = '3'", turn.MaxCrashes)
				m := llmtest.Func("model", func(llm.Request) llmtest.Step { return llmtest.Say("hi") })
				w.deps.Model = checked{m, t}
				w.start()
				w.wantQuiet()
				w.wantAnswers("a", "hi", "hi", turn.SayGaveUp)
				for _, r := range m.Requests() {
					if all := strings.Join(lines(r.Messages), "\n"); strings.Contains(all, "boom") {
						t.Errorf("the model was asked %q", all)
					}
				}
			})
		})
	}
}

// Work that was open when several processes crashed is tried alone, and before everything else.
// Work that crashes a process while it is tried alone is given up, and no other work is.
func TestProbation(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.died(pool.TrialOf(named("test/guilty")))
		w.leave("turn", "hello", turn.MaxAttempts)
		w.put(w.message("innocent", "hello"), w.message("suspect", "hello"),
			w.message("guilty", "hello"), w.message("guilty", "and you?"), w.message("other", "hello"))
		w.exec("UPDATE inbox SET crashes = 2 WHERE chat IN ('innocent', 'suspect')")
		w.exec("UPDATE inbox SET crashes = 2, handed = 1 WHERE chat = 'guilty' AND message = '4'")
		var mu sync.Mutex
		var tried []string
		w.deps.Model = checked{llmtest.Func("model", func(llm.Request) llmtest.Step {
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, w.column("SELECT suspect FROM lives")...)
			return llmtest.Step{Delay: time.Second, Text: []string{"hi"}}
		}), t}
		w.start()
		w.wantQuiet()
		w.wantAnswers("guilty", turn.SayGaveUp, "hi")
		for _, chat := range []string{"turn", "innocent", "suspect", "other"} {
			w.wantAnswers(chat, "hi")
		}
		// The trials of the other chats end before their turns ask the model.
		if want := pool.TrialOf(named("test/turn")); tried[0] != want {
			t.Errorf("the first call was made while %q was tried alone, want %q", tried[0], want)
		}
		if n := w.count("SELECT count(*) FROM lives WHERE suspect <> ''"); n != 0 {
			t.Error("something is still noted as tried alone")
		}
	})
}

// A command that crashes processes is given up like other messages. After a crash it is counted
// before it runs, and as a suspect it is tried alone. Other messages are answered.
func TestCommandThatCrashes(t *testing.T) {
	t.Parallel()
	for crashes, want := range map[int]string{
		0: "1 started, tried: ", 2: "1 started, tried: session test/a", 3: turn.SayGaveUp,
	} {
		inWorld(t, func(w *world) {
			w.died("")
			w.opts.Commands = []command.Command{{Name: "boom", MinRole: bus.Guest,
				Run: func(context.Context, *command.Request) (command.Reply, error) {
					return command.Reply{Text: fmt.Sprintf("%d started, tried: %s",
						w.count("SELECT count(*) FROM inbox WHERE handed = 1"),
						w.column("SELECT suspect FROM lives")[0])}, nil
				}}}
			w.model.Queue(llmtest.Say("hi"))
			w.say("a", "/boom", "hello")
			w.exec("UPDATE inbox SET crashes = $1 WHERE message = '1'", crashes)
			w.start()
			w.wantQuiet()
			w.wantAnswers("a", want, "hi")
			if n := w.count("SELECT count(*) FROM lives WHERE suspect <> ''"); n != 0 {
				t.Error("something is still noted as tried alone")
			}
		})
	}
}

// A background task that was under way in many crashes is postponed, so that the process can do
// everything else. A crash is counted before the task runs, and taken back if there was none.
func TestTaskThatCrashes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		crashes int
		wait    time.Duration // until the task runs
		counted int           // crashes while it runs
	}{{0, 0, 1}, {9, 0, 10}, {10, time.Minute, 10}} {
		inWorld(t, func(w *world) {
			w.died("")
			var ran []time.Time
			counted := test.counted
			release := make(chan struct{})
			w.opts.Export = handlerFunc(func(ctx context.Context) {
				ran = append(ran, time.Now())
				if n := w.count("SELECT crashes FROM chores"); n != counted {
					t.Errorf("%d crashes are counted, want %d", n, counted)
				}
				select {
				case <-ctx.Done():
				case <-release:
				}
			})
			work := background.Work{Kind: background.Export, Scope: memory.OfPerson(5)}
			w.tx(func(tx *store.Tx) error {
				return background.Store{}.Put(tx, background.Task{Work: work}, time.Now())
			})
			w.exec("UPDATE chores SET crashes = $1", test.crashes)
			began := time.Now()
			w.start()
			w.sleep(2 * time.Minute)
			if len(ran) != 1 || ran[0].Sub(began) != test.wait {
				t.Errorf("%d crashes: the task ran at %v, want after %v", test.crashes, ran, test.wait)
			}
			w.must(w.stop())
			counted-- // also for the next process, because this one has ended in order
			if n := w.count("SELECT crashes FROM chores"); n != counted {
				t.Errorf("%d crashes are counted after a stop, want %d", n, counted)
			}
			close(release)
			w.start()
			w.wantQuiet()
			if n := w.count("SELECT count(*) FROM chores"); n != 0 {
				t.Errorf("%d tasks are left, want none", n)
			}
		})
	}
}

// handlerFunc is a handler of background tasks, which are then done.
type handlerFunc func(ctx context.Context)

func (f handlerFunc) Do(
	ctx context.Context, _ *background.Task,
) (o background.Outcome, err error) {
	f(ctx)
	return o, nil
}

// A message with a file is counted before its file is read. A message without a file is counted
// only if the last process has crashed.
func TestCountedBeforeTried(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		crashed bool
		file    bool
		want    int
	}{
		{"text", false, false, 0},
		{"file", false, true, 1},
		{"text after a crash", true, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.died("")
				if !test.crashed {
					w.must(w.deps.Life.End(t.Context(), w.now()))
				}
				files := &countedFiles{Media: w.deps.Media, w: w}
				w.deps.Media = files
				w.model.Queue(llmtest.Say("hi"))
				w.start()
				m := w.message("a", "hello")
				if test.file {
					m = carrying(m, bus.Attachment{Kind: bus.Document, Ref: "x"})
				}
				w.put(m)
				w.wantQuiet()
				w.wantAnswers("a", "hi")
				if n := w.count("SELECT handed FROM inbox"); n != test.want {
					t.Errorf("handed is %d, want %d", n, test.want)
				}
				if test.file && files.handed != 1 {
					t.Error("the file was fetched before it was counted")
				}
			})
		})
	}
}

// countedFiles is media that records whether a message is counted when its files are fetched.
type countedFiles struct {
	attachment.Media
	w      *world
	handed int
}

func (f *countedFiles) Fetch(ctx context.Context, m *bus.InboundMessage) {
	f.handed = f.w.count("SELECT handed FROM inbox WHERE message = $1", m.ID)
	f.Media.Fetch(ctx, m)
}

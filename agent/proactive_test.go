package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// jobs gives the dispatchers a scheduler that runs until the end of the test.
func (w *world) jobs(opts schedule.Options) {
	w.t.Helper()
	s := schedule.New(w.deps.DB, w.deps.Inbox, &opts)
	w.deps.Jobs = s
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		w.must(<-ended)
	})
}

// job returns a job of a chat that is due in a minute.
func (w *world) job(chat string, kind schedule.Kind, text string) *schedule.Job {
	m := w.message(chat, text)
	when, err := schedule.ParseAt("1m", time.Now(), time.UTC)
	w.must(err)
	return &schedule.Job{Name: "look", Kind: kind, Text: text, When: when, To: m.From,
		Sender: m.Sender, Role: m.Role, Scope: memory.OfChat(m.From), OwnSession: kind == schedule.Task}
}

// add adds a job and waits the minute until it is due.
func (w *world) add(j *schedule.Job) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error { return w.deps.Jobs.Add(tx, j, time.Now()) })
	w.deps.Jobs.Wake()
	w.sleep(time.Minute + time.Second)
}

// every makes a job repeat.
func every(w *world, j *schedule.Job, text string) *schedule.Job {
	when, err := schedule.ParseEvery(text, time.Now(), time.Second)
	w.must(err)
	j.When = when
	return j
}

// wantRuns checks the state and the attempts of each run of a job, the first run first.
func (w *world) wantRuns(j *schedule.Job, want ...string) {
	w.t.Helper()
	runs, err := schedule.Runs(w.read(), j.ID)
	w.must(err)
	var got []string
	for i := range runs {
		r := runs[len(runs)-1-i]
		got = append(got, fmt.Sprintf("%s %d", r.State, r.Attempts))
	}
	wantLines(w.t, "runs of the job", got, want)
}

// A task runs in its own session. The session begins anew each time and shows what the task has
// said last.
func TestJobInItsOwnSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("all is green"), llmtest.Say("it is red"),
			llmtest.Say("yes"))
		w.start()
		w.say("a", "hello")
		j := every(w, w.job("a", schedule.Task, "look at the build"), "1m")
		w.add(j)
		w.sleep(time.Minute)
		w.tx(func(tx *store.Tx) error { return w.deps.Jobs.Pause(tx, j.ID, "", time.Now()) })
		w.say("a", "are you there?")
		w.wantQuiet()
		w.wantAnswers("a", "hi", "all is green", "it is red", "yes")
		w.wantTranscript("a", "user: hello", "assistant: hi", "user: are you there?", "assistant: yes")
		w.wantRuns(j, "done 1", "done 1")
		second := lines(w.request(3).Messages[1:])
		if len(second) != 1 || !strings.Contains(second[0], `[the job "look", which is due; nobody has `+
			"written just now]\nlook at the build") || !strings.Contains(second[0], "all is green") ||
			!strings.Contains(second[0], turn.AskSilent) {
			t.Errorf("the second run was asked %q", second)
		}
		if own := w.count("SELECT count(*) FROM messages WHERE session = $1",
			session.KeyOf(at("a")).OfJob(j.ID).String()); own != 4 {
			t.Errorf("the session of the job has %d messages, want 4", own)
		}
	})
}

// While everything is halted, no job runs and no message tells of that. Afterwards a job runs once
// for all times that it has missed.
func TestHaltedJobs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{Halted: policy.IsHalted})
		w.model.Queue(llmtest.Say("all is green"))
		w.start()
		w.tx(func(tx *store.Tx) error {
			_, err := policy.SetHalt(tx, "test", time.Now())
			return err
		})
		j := every(w, w.job("a", schedule.Task, "look at the build"), "1h")
		w.add(j)
		w.sleep(5 * time.Hour)
		w.wantAnswers("a")
		w.tx(func(tx *store.Tx) error {
			_, err := policy.ClearHalt(tx)
			return err
		})
		w.sleep(10 * time.Second)
		w.wantAnswers("a", "all is green")
		w.wantRuns(j, "done 1")
	})
}

// A reminder is a turn of the conversation, so that people can reply to it.
func TestReminder(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Say("Call your mum!"), llmtest.Say("well done"))
		w.start()
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		w.say("a", "I have")
		w.wantQuiet()
		w.wantAnswers("a", "Call your mum!", "well done")
		w.wantRuns(j, "done 1")
		asked := lines(w.request(2).Messages[1:])
		if len(asked) != 3 || !strings.HasSuffix(asked[0], turn.ReminderRule+"]\nReminder: call mum") {
			t.Errorf("after the reminder the model was asked %q", asked)
		}
	})
}

// A job may end silently, also with an answer without text. Its run is done in both cases.
func TestSilentJob(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]llmtest.Step{
		"mark": llmtest.Say("HEARTBEAT_OK"), "nothing": llmtest.Say("")} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.jobs(schedule.Options{})
				w.model.Queue(step)
				w.start()
				j := w.job("a", schedule.Task, "look")
				w.add(j)
				w.wantQuiet()
				w.wantAnswers("a")
				w.wantRuns(j, "done 1")
			})
		})
	}
}

// A run that fails is tried again after 1, 5 and 15 minutes. The people of the chat and the
// owners are told only when it is given up.
func TestFailingJob(t *testing.T) {
	t.Parallel()
	for kind, said := range map[schedule.Kind]string{
		schedule.Task:     "I have tried several times to do the job “look”, and given up: ",
		schedule.Reminder: "Reminder: feed the cat",
	} {
		t.Run(string(kind), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.outside.owners = func(store.Queryer) ([]bus.Address, error) {
					return []bus.Address{at("boss"), at("a")}, nil
				}
				w.jobs(schedule.Options{})
				for range 4 {
					w.model.Queue(llmtest.Fail(llm.Unavailable))
				}
				w.start()
				j := w.job("a", kind, "feed the cat")
				w.add(j)
				for i, wait := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute} {
					w.sleep(wait - 10*time.Second)
					if n := len(w.model.Requests()); n != i+1 {
						t.Errorf("%d attempts before the %d. wait is over, want %d", n, i+1, i+1)
					}
					w.wantAnswers("a")
					w.sleep(12 * time.Second)
				}
				w.wantQuiet()
				w.wantRuns(j, "failed 4")
				told := w.outbox("a")
				if len(told) != 1 || !strings.HasPrefix(told[0].Text, said) {
					t.Errorf("people were told %+v, want %q", told, said)
				}
				boss := w.outbox("boss")
				if len(boss) != 1 || !strings.Contains(boss[0].Text, "was given up") {
					t.Errorf("the owner was told %+v", boss)
				}
			})
		})
	}
}

// The run of a job that is paused or removed meanwhile is not tried again. People read why, and no
// promise that it is done again.
func TestFailingJobThatHasEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		end  func(s *schedule.Scheduler, tx *store.Tx, id int64) error
		said string
	}{
		{func(s *schedule.Scheduler, tx *store.Tx, id int64) error {
			return s.Pause(tx, id, "", time.Now())
		}, "\n\nIt is paused; `/jobs run 1` does it now."},
		{func(s *schedule.Scheduler, tx *store.Tx, id int64) error {
			return s.Remove(tx, id, time.Now())
		}, ""},
	} {
		inWorld(t, func(w *world) {
			w.jobs(schedule.Options{})
			release := make(chan struct{})
			w.model.Queue(held(llmtest.Fail(llm.Unavailable), release))
			w.start()
			j := every(w, w.job("a", schedule.Task, "feed the cat"), "1m")
			w.add(j)
			w.tx(func(tx *store.Tx) error { return tt.end(w.deps.Jobs, tx, j.ID) })
			close(release)
			w.wantQuiet()
			told := w.outbox("a")
			if len(told) != 1 || !strings.HasPrefix(told[0].Text, "I could not do the job “look”: ") ||
				!strings.HasSuffix(told[0].Text, tt.said) || strings.Contains(told[0].Text, "again at") {
				t.Errorf("people were told %+v, want the reason and %q", told, tt.said)
			}
		})
	}
}

// An attempt has failed if its turn can't be ended in order, or if it is given up after crashes.
// The job then makes another attempt.
func TestJobAbandoned(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *world){
		"not ended in order": func(w *world) {
			w.exec("CREATE TRIGGER spoiled BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'x'); END")
		},
		"crashes": func(w *world) {
			w.must(w.stop())
			w.exec("UPDATE turns SET attempts = $1 WHERE state = 'running'", turn.MaxAttempts+1)
			w.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.jobs(schedule.Options{})
				release := make(chan struct{})
				w.model.Queue(held(llmtest.Say("never"), release), llmtest.Say("fed"))
				w.start()
				j := w.job("a", schedule.Task, "feed the cat")
				w.add(j)
				spoil(w)
				close(release)
				w.settle()
				w.wantRuns(j, "waiting 1")
				w.exec("DROP TRIGGER IF EXISTS spoiled")
				w.sleep(2 * time.Minute)
				w.wantQuiet()
				w.wantAnswers("a", "fed")
				w.wantRuns(j, "done 2")
			})
		})
	}
}

// A turn fails, and the failure of its run can't be stored either. The chat is told about an
// error and is not blocked.
func TestJobAbandonedUnreported(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("never"), release))
		w.start()
		j := w.job("a", schedule.Task, "feed the cat")
		w.add(j)
		for _, change := range []string{"INSERT ON messages", "UPDATE ON runs"} {
			w.exec(fmt.Sprintf("CREATE TRIGGER %q BEFORE %s BEGIN SELECT RAISE(ABORT, 'x'); END",
				change, change))
		}
		close(release)
		w.settle()
		w.wantAnswers("a", turn.SayBroken)
		w.wantRuns(j, "running 1")
		w.wantQuiet()
	})
}

// If a second attempt succeeds, people see only its answer.
func TestJobTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Fail(llm.Unavailable), llmtest.Say("fed"))
		w.start()
		j := w.job("a", schedule.Task, "feed the cat")
		w.add(j)
		w.sleep(2 * time.Minute)
		w.wantQuiet()
		w.wantAnswers("a", "fed")
		w.wantRuns(j, "done 2")
	})
}

// A message that comes while a reminder runs waits for its end, in each queue mode. A reminder
// never joins a turn of a person.
func TestJobsAreTurnsByThemselves(t *testing.T) {
	t.Parallel()
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				w.jobs(schedule.Options{})
				release, done := make(chan struct{}), make(chan struct{})
				w.tools(act("look", tool.Pure, until(done, "seen")))
				w.model.Queue(held(uses("look"), release), llmtest.Say("Call!"), llmtest.Say("ok"))
				w.start()
				j := w.job("a", schedule.Reminder, "call mum")
				w.add(j)
				w.say("a", "one")
				close(release)
				w.settle()
				close(done)
				w.sleep(time.Second)
				w.wantAnswers("a", "Call!", "ok")
				w.wantRuns(j, "done 1")

				hold := make(chan struct{})
				w.model.Queue(held(llmtest.Say("two"), hold), llmtest.Say("Again!"),
					llmtest.Say("three"))
				w.say("a", "two")
				w.sleep(time.Second)
				second := w.job("a", schedule.Reminder, "call dad")
				w.add(second)
				w.say("a", "three")
				if mode == pool.Interrupt { // the newer message has ended the turn of "two"
					w.model.Queue(llmtest.Say("late"))
				}
				close(hold)
				w.wantQuietly()
				w.wantRuns(second, "done 1")
				if mode == pool.Interrupt {
					return
				}
				w.wantAnswers("a", "Call!", "ok", "two", "Again!", "three")
			})
		})
	}
}

// wantQuietly is wantQuiet without the check that no step of the model is left.
func (w *world) wantQuietly() {
	w.t.Helper()
	w.sleep(time.Minute)
	if n := w.count("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')"); n != 0 {
		w.t.Errorf("%d messages in the inbox are open, want none", n)
	}
}

// /new leaves background jobs alone, while /stop ends them. A reminder that is due while /new
// ends a turn runs afterwards.
func TestNewLeavesJobs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		release, never := make(chan struct{}), make(chan struct{})
		w.model.Queue(held(llmtest.Say("never"), never), held(llmtest.Say("done"), release),
			llmtest.Say("Call!"))
		w.start()
		w.say("a", "hello")
		task, reminder := w.job("a", schedule.Task, "one"), w.job("a", schedule.Reminder, "two")
		w.tx(func(tx *store.Tx) error { return w.deps.Jobs.Add(tx, task, time.Now()) })
		w.add(reminder)
		w.say("a", "lost", "/new")
		close(release)
		w.wantQuiet()
		w.wantRuns(task, "done 1")
		w.wantRuns(reminder, "done 1")
		told := w.outbox("a")
		if len(told) != 3 || told[0].Text !=
			"A new conversation begins. I have discarded one waiting message." {
			t.Errorf("people were told %+v", told)
		}
	})
}

// /stop also ends the running jobs of the conversation. A reminder that only waits runs
// afterwards.
func TestStopJobs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.opts.Slots = 2
		never := make(chan struct{})
		w.model.Queue(held(llmtest.Say("x"), never), held(llmtest.Say("y"), never),
			llmtest.Say("three!"))
		w.start()
		first, second := w.job("a", schedule.Task, "one"), w.job("a", schedule.Reminder, "two")
		third := w.job("a", schedule.Reminder, "three")
		for _, j := range []*schedule.Job{first, second, third} {
			w.tx(func(tx *store.Tx) error { return w.deps.Jobs.Add(tx, j, time.Now()) })
		}
		w.deps.Jobs.Wake()
		w.sleep(time.Minute + time.Second)
		w.say("a", "/stop")
		w.wantQuiet()
		w.wantRuns(first, "stopped 1")
		w.wantRuns(second, "stopped 1")
		w.wantRuns(third, "done 1")
		w.wantAnswers("a", "Stopped, with one job.", "three!")
	})
}

// A question that nobody answers does not delay a reminder.
func TestReminderWhileTheTurnWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Rules = askFirst("exec")
		w.jobs(schedule.Options{})
		w.tools(act("exec", tool.Once, always("ran")))
		w.model.Queue(uses("exec"), llmtest.Say("Call!"), llmtest.Say("it ran"))
		w.start()
		w.say("a", "run it")
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		w.wantRuns(j, "done 1")
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		told := w.outbox("a")
		if got := told[len(told)-1].Text; got != "it ran" {
			t.Errorf("at last people were told %q", got)
		}
	})
}

// A job that is removed before its turn begins does not run.
func TestRemovedJob(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("hi"), release))
		w.start()
		w.say("a", "hello")
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		w.tx(func(tx *store.Tx) error { return w.deps.Jobs.Remove(tx, j.ID, time.Now()) })
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "hi")
	})
}

// "/forget me" erases all jobs that a person has set up, also in groups, and the person's time
// zone. It leaves the jobs of others.
func TestErasedJobs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Say("hi"))
		w.start()
		w.put(person(w.message("a", "hello"), 5))
		direct, ingroup := w.job("a", schedule.Reminder, "one"), w.job("g", schedule.Reminder, "two")
		direct.Person, direct.Scope = 5, memory.OfPerson(5)
		ingroup.Person, ingroup.Group = 5, true
		other := w.job("g", schedule.Reminder, "three")
		other.Person, other.Group = 6, true
		w.tx(func(tx *store.Tx) error {
			for _, j := range []*schedule.Job{direct, ingroup, other} {
				if err := w.deps.Jobs.Add(tx, j, time.Now()); err != nil {
					return err
				}
			}
			return schedule.SetZone(tx, memory.OfPerson(5), "Asia/Tokyo")
		})
		w.put(person(w.message("a", "/forget me now"), 5))
		wantLines(t, "jobs", w.column("SELECT text FROM jobs"), []string{"three"})
		if n := w.count("SELECT count(*) FROM zones"); n != 0 {
			t.Errorf("%d zones are left", n)
		}
	})
}

// A tool call says whether nobody has asked just now. This also applies to sub-agents of such a
// turn and to turns about their outcomes.
func TestProactive(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		var calls []tool.Call
		where := act("where", tool.Once, nil)
		where.Run = func(_ context.Context, c tool.Call) (tool.Result, error) {
			calls = append(calls, c)
			return tool.Result{Text: "here"}, nil
		}
		w.spawning(where).Queue(uses("where"), llmtest.Say("nice"))
		w.model.Queue(spawns(false, "look around"), llmtest.Say("begun"))
		w.start()
		w.tx(func(tx *store.Tx) error {
			return schedule.SetZone(tx, memory.OfChat(at("a")), "Asia/Tokyo")
		})
		w.model.Queue(uses("where"), llmtest.Say("all of it"))
		w.add(w.job("a", schedule.Task, "go"))
		w.wantQuiet()
		w.model.Queue(uses("where"), llmtest.Say("hi"))
		w.say("a", "hello")
		w.wantQuiet()
		var got []string
		for _, c := range calls {
			got = append(got, fmt.Sprintf("%t %s", c.Proactive, c.Zone))
		}
		wantLines(t, "calls", got, []string{"true Asia/Tokyo", "true Asia/Tokyo", "false Asia/Tokyo"})
		if asked := w.request(len(w.model.Requests())).Messages; !strings.HasPrefix(
			asked[1].Text, "[Monday 2026-02-16 21:51 +09:00] ") {
			t.Errorf("the message begins with %.60q, want the time in Tokyo", asked[1].Text)
		}
	})
}

package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

var named = bustest.Session

// A call can need an approval and then wait for a sub-agent or for an answer. It then waits
// twice.
func TestApprovedCallThatWaits(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("spawn, restart ", restart), func(t *testing.T) {
			inWorld(t, func(w *world) {
				sub := w.spawning()
				w.opts.Rules = askFirst("spawn")
				release := make(chan struct{})
				sub.Queue(held(llmtest.Say("it is blue"), release))
				w.model.Queue(spawns(true, "look"), llmtest.Say("Blue."))
				w.start()
				w.say("a", "which colour?")
				w.say("a", "/approve "+w.code())
				if restart {
					w.must(w.stop())
					sub.Queue(llmtest.Say("it is blue"))
					w.start()
				}
				close(release)
				w.wantQuiet()
				if got := w.request(2).Messages[3].Text; got != "it is blue" {
					t.Errorf("the result is %q, want the outcome", got)
				}
			})
		})
		t.Run(fmt.Sprint("ask, restart ", restart), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.opts.Rules = askFirst("ask")
				w.model.Queue(asksFor("Which?", "red", "blue"), llmtest.Say("Blue."))
				w.start()
				w.say("a", "paint it")
				w.say("a", "/approve "+w.code())
				if restart {
					w.restart()
				}
				w.say("a", "2")
				w.wantQuiet()
				if got := w.request(2).Messages[3].Text; got != "The user chose: blue" {
					t.Errorf("the result is %q, want the answer", got)
				}
			})
		})
	}
}

// leaveSuspended leaves what a killed process can leave: a turn in chat a whose call of the tool
// exec waits for a question of this kind.
func (w *world) leaveSuspended(kind question.Kind) *question.Question {
	w.t.Helper()
	left := w.leave("a", "hello", 1, intent("exec"))
	x, err := w.deps.Tools.Lookup("exec")
	w.must(err)
	q := &question.Question{Kind: kind, Session: "test/a", Turn: left.ID, Call: "left_0",
		Address: at("a"), Sender: "7", MinRole: bus.Admin, Text: "Shall I?",
		Subject: turn.Approvable(x, tool.Call{Args: json.RawMessage("{}")}).Subject(),
		Expires: time.Now().Add(10 * time.Minute)}
	w.tx(func(tx *store.Tx) (err error) {
		if q.After, err = w.deps.Inbox.Newest(tx); err != nil {
			return err
		}
		return question.Put(tx, q)
	})
	return q
}

// decideParked gives q a state without the knowledge of the dispatcher.
func (w *world) decideParked(q *question.Question, s question.State, answer string) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		_, err := question.Decide(tx, q, s, answer, "test/7")
		return err
	})
}

// An approval can come too late, or its turn can be stopped. It is then void at the end of the
// turn, because its row would otherwise be kept for ever.
func TestApprovalNotUsed(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		inWorld(t, func(w *world) {
			calls := 0
			w.tools(counting("exec", tool.Once, &calls))
			q := w.leaveSuspended(question.Approve)
			if stopped {
				w.start()
				w.decideParked(q, question.Granted, "")
				w.say("a", "/stop")
			} else {
				w.decideParked(q, question.Granted, "")
				w.sleep(11 * time.Minute)
				w.model.Queue(llmtest.Say("too late"))
				w.start()
			}
			w.wantQuiet()
			if n := w.count("SELECT count(*) FROM questions WHERE state <> 'void'"); n != 0 ||
				calls != 0 {
				t.Errorf("%d questions are not over after %d calls, want none", n, calls)
			}
		})
	}
}

// A process can be killed at each point of an approval. In each case the call is made at most
// once, and the turn ends with an answer.
func TestKilledWithApproval(t *testing.T) {
	t.Parallel()
	say := func(text string) func(w *world, q *question.Question) {
		return func(w *world, q *question.Question) {
			w.start()
			w.say("a", strings.Replace(text, "CODE", q.Code, 1))
		}
	}
	state := func(s question.State, answer string) func(w *world, q *question.Question) {
		return func(w *world, q *question.Question) { w.decideParked(q, s, answer) }
	}
	used := func(w *world, q *question.Question) {
		w.decideParked(q, question.Granted, "")
		w.tx(func(tx *store.Tx) error {
			_, err := question.Use(tx, q)
			return err
		})
	}
	for _, test := range []struct {
		name   string
		effect tool.Effect
		do     func(w *world, q *question.Question)
		away   time.Duration
		calls  int
		want   string
	}{
		{name: "asked", do: say("/approve CODE"), calls: 1, want: "exec 1"},
		{name: "asked and denied", do: say("/deny CODE"), want: command.Denied},
		{name: "asked and spoken", do: say("what for?"), want: turn.ResultOther},
		{name: "granted", do: state(question.Granted, ""), calls: 1, want: "exec 1"},
		{name: "granted and expired", do: state(question.Granted, ""), away: time.Hour,
			want: turn.ResultLate},
		{name: "refused", do: state(question.Refused, command.Denied), want: command.Denied},
		{name: "expired", do: state(question.Expired, turn.ResultNotApproved),
			want: turn.ResultNotApproved},
		{name: "expires while away", do: func(*world, *question.Question) {}, away: time.Hour,
			want: turn.ResultNotApproved},
		{name: "used", do: used, want: turn.ResultUnknown},
		{name: "used, idempotent", effect: tool.Idempotent, do: used, calls: 1, want: "exec 1"},
		{name: "another call granted", do: func(w *world, q *question.Question) {
			w.decideParked(q, question.Granted, "")
			w.exec(`UPDATE questions SET body = replace(body, '"subject":"', '"subject":"x')`)
		}, want: turn.ResultChanged},
		{name: "another call used", effect: tool.Idempotent, do: func(w *world, q *question.Question) {
			used(w, q)
			w.exec(`UPDATE questions SET body = replace(body, '"subject":"', '"subject":"x')`)
		}, want: turn.ResultUnknown},
		{name: "granted and denied by the rules since", do: func(w *world, q *question.Question) {
			w.decideParked(q, question.Granted, "")
			w.opts.Rules = policy.Rules{ruleFor("exec", policy.Deny, bus.Owner)}
		}, want: turn.ResultChanged},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				calls := 0
				w.tools(counting("exec", test.effect, &calls))
				w.opts.Rules = askFirst("exec")
				q := w.leaveSuspended(question.Approve)
				w.model.Queue(llmtest.Say("fine"))
				test.do(w, q)
				time.Sleep(test.away)
				if w.cancel == nil {
					w.start()
				}
				w.wantQuiet()
				w.restart()
				w.wantQuiet()
				if calls != test.calls {
					t.Errorf("the tool was used %d times, want %d", calls, test.calls)
				}
				if got := w.request(1).Messages[3].Text; got != test.want {
					t.Errorf("the result is %q, want %q", got, test.want)
				}
				if got := w.last("a"); got != "fine" {
					t.Errorf("at last the person was told %q, want the answer", got)
				}
			})
		})
	}
}

// leftBehind lists what a killed process can leave of a turn that waits for an approval.
var leftBehind = []struct {
	name  string
	leave func(w *world)
}{
	{"call intended", func(w *world) { w.leave("a", "hello", 1, intent("exec")) }},
	{"asked", func(w *world) { w.leaveSuspended(question.Approve) }},
	{"granted", func(w *world) {
		w.decideParked(w.leaveSuspended(question.Approve), question.Granted, "")
	}},
	{"used", func(w *world) {
		q := w.leaveSuspended(question.Approve)
		w.decideParked(q, question.Granted, "")
		w.exec("UPDATE questions SET state = 'used'")
	}},
	{"answered", func(w *world) {
		w.decideParked(w.leaveSuspended(question.Ask), question.Answered, "The user answered: x")
	}},
	{"expired while away", func(w *world) {
		w.leaveSuspended(question.Approve)
		time.Sleep(time.Hour)
	}},
}

// A /stop or /new that waits when the gateway starts ends the turn that a killed process has
// left. Nothing of the turn runs after the command. Only an approved call may run before the
// command is read.
func TestKilledAndStopped(t *testing.T) {
	t.Parallel()
	for _, test := range leftBehind {
		for _, command := range []string{"/stop", "/new"} {
			t.Run(test.name+" "+command, func(t *testing.T) {
				inWorld(t, func(w *world) {
					calls := 0
					w.tools(counting("exec", tool.Once, &calls))
					w.opts.Rules = askFirst("exec")
					test.leave(w)
					w.put(w.message("a", "next?"), w.message("a", command))
					answer := held(llmtest.Say("never"), make(chan struct{}))
					w.model.Queue(answer) // in case the turn asks the model before the command is read
					w.start()
					w.sleep(time.Hour)
					w.restart()
					w.sleep(time.Hour)
					if n := w.count("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')"); n != 0 {
						t.Errorf("%d messages in the inbox are open, want none", n)
					}
					if n := w.count("SELECT count(*) FROM turns WHERE state = 'running'"); n != 0 {
						t.Errorf("%d turns are running, want none", n)
					}
					if n := w.count("SELECT count(*) FROM questions WHERE state = 'open'"); n != 0 {
						t.Errorf("%d questions are open, want none", n)
					}
					if n := w.d.pool.Counts(); n != (pool.Counts{}) {
						t.Errorf("%d sessions are in memory, want none", n)
					}
					if calls > 1 || calls == 1 && test.name != "granted" {
						t.Errorf("the tool was used %d times", calls)
					}
					for _, m := range w.outbox("a") {
						if m.Text == "never" {
							t.Error("the person was answered after the stop")
						}
					}
				})
			})
		}
	}
}

// While everything is halted no tool is used, whichever state a killed process has left. The turn
// ends, and the person is told about the halt.
func TestKilledAndHalted(t *testing.T) {
	t.Parallel()
	for _, test := range leftBehind {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				calls := 0
				w.tools(counting("exec", tool.Idempotent, &calls))
				w.opts.Rules = askFirst("exec")
				test.leave(w)
				w.tx(func(tx *store.Tx) error {
					_, err := policy.SetHalt(tx, "the command line", time.Now())
					return err
				})
				w.start()
				if test.name == "asked" {
					w.say("a", "/approve "+w.code())
				}
				w.wantQuiet()
				w.say("b", "/resume")
				w.wantQuiet()
				if calls != 0 {
					t.Errorf("the tool was used %d times, want never", calls)
				}
				if got := w.last("a"); got != turn.SayHalted {
					t.Errorf("the person was told %q, want %q", got, turn.SayHalted)
				}
			})
		})
	}
}

// A process is killed while a turn waits for the outcome of a task. In each case the outcome
// becomes the result of the call once. An outcome that comes too late becomes a message of its
// own.
func TestKilledWhileTaskWorks(t *testing.T) {
	t.Parallel()
	sub := named("test/a#1-left_0")
	put := func(w *world, m bus.InboundMessage, id string, origin bus.Origin) (seq int64) {
		m.ID, m.Origin, m.Text = id, origin, "blue"
		w.tx(func(tx *store.Tx) error {
			_, err := w.deps.Inbox.Put(tx, m, time.Now())
			if err == nil {
				seq, err = w.deps.Inbox.Newest(tx)
			}
			return err
		})
		return seq
	}
	task := func(w *world) int64 {
		return put(w, w.message("a", ""), bus.TaskID(named("test/a"), "1-left_0"),
			bus.Origin{Kind: bus.Task, Label: "look", Session: sub, Parent: named("test/a"), Call: "left_0"})
	}
	outcome := func(w *world) int64 {
		return put(w, w.message("a", ""), bus.OutcomeID(named("test/a"), sub.String()+":2"),
			bus.Origin{Kind: bus.Outcome, Label: "look", Session: named("test/a"), Parent: named("test/a"),
				Call: "left_0"})
	}
	taken := func(w *world, _ *question.Question) {
		seq := task(w)
		turn := session.Turn{Session: sub, Address: at("a")}
		w.tx(func(tx *store.Tx) error {
			_, err := session.BeginTurn(tx, &turn, "", store.Lease{Owner: "killed"}, time.Now(),
				llm.Message{Role: llm.User, Text: "[your task] look"})
			if err == nil {
				_, err = w.deps.Inbox.Claim(tx, seq, turn.ID)
			}
			return err
		})
	}
	for _, test := range []struct {
		name  string
		leave func(w *world, q *question.Question)
		steps int // model calls of the sub-agent
		want  string
		late  bool // the outcome becomes a message
	}{
		{"task written", func(w *world, _ *question.Question) { task(w) }, 1, "it is blue", false},
		{"task taken", taken, 1, "it is blue", false},
		{"outcome written", func(w *world, _ *question.Question) { outcome(w) }, 0, "blue", false},
		{"outcome taken", func(w *world, q *question.Question) {
			seq := outcome(w)
			w.tx(func(tx *store.Tx) error {
				_, err := question.Decide(tx, q, question.Answered, "blue", "")
				if err == nil {
					_, err = w.deps.Inbox.Claim(tx, seq, q.Turn)
				}
				return err
			})
		}, 0, "blue", false},
		{"outcome too late", func(w *world, _ *question.Question) {
			outcome(w)
			time.Sleep(time.Hour)
		}, 0, turn.ResultNobody, true},
		{"no outcome at all", func(*world, *question.Question) {}, 0, turn.ResultNobody, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				tasks := w.spawning(counting("exec", tool.Idempotent, new(int)))
				for range test.steps {
					tasks.Queue(llmtest.Say("it is blue"))
				}
				w.opts.QueueMode = pool.Followup
				q := w.leaveSuspended(question.Await)
				test.leave(w, q)
				w.model.Queue(llmtest.Say("fine"))
				if test.late {
					w.model.Queue(llmtest.Say("told late"))
				}
				w.start()
				w.sleep(11 * time.Minute)
				w.wantQuiet()
				if got := w.request(1).Messages[3].Text; got != test.want {
					t.Errorf("the result is %q, want %q", got, test.want)
				}
				if n := len(tasks.Requests()); n != test.steps {
					t.Errorf("the sub-agent was asked %d times, want %d", n, test.steps)
				}
			})
		})
	}
}

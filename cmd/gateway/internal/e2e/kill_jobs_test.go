//go:build unix

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/channels/telegram/telegramtest"
	"gateway/memory"
	"gateway/store"
)

// TestKillJobs kills the gateway at random moments and between any two steps while jobs are due.
// It checks that each run happens once, even if it was due while no gateway was running.
func TestKillJobs(t *testing.T) {
	t.Parallel()
	t.Run("random", func(t *testing.T) {
		t.Parallel()
		tr := newJobTrial(t)
		for range often(27) {
			tr.plan(few(6))
			p := tr.start()
			p.ready()
			if tr.tired {
				tr.quiet(p)
			}
			tr.plan(few(6))
			timer := time.NewTimer(time.Duration(tr.rand.IntN(400)) * time.Millisecond)
			until(t, "the time to kill", timer.C)
			p.kill()
			tr.kills++
			tr.autopsy()
		}
		tr.settle()
	})
	for _, point := range []string{
		"scheduled", "begun", "stepped", "finished", "sending", "sent", "delivered",
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				t.Parallel()
				tr := newJobTrial(t)
				for range 2 {
					p := tr.start(fmt.Sprintf("GATEWAY_FAULT=%s:%d", point, n))
					p.ready()
					for range 20 { // one after another, as "scheduled" counts transactions
						if tr.hasEnded(p) {
							break
						}
						tr.plan(1)
						tr.eventually("the job to begin", func(db *store.DB) bool {
							return tr.hasEnded(p) || tr.count(db, "jobs WHERE state = 'active'") == 0
						})
					}
					until(t, "the end at "+point, p.done)
					if code := p.exited(patience); code != -1 {
						t.Fatalf("the gateway ended with code %d\n%s", code, p.newest())
					}
					tr.kills++
					tr.autopsy()
				}
				tr.settle()
			})
		}
	}
}

// A jobTrial is a gateway that is killed repeatedly while jobs are due.
type jobTrial struct {
	*world
	t    *testing.T
	rand *rand.Rand

	marks  []string       // marks of the jobs, in their order
	caught map[string]int // how often a dead process left a send of this text unfinished
	kills  int
	tired  bool // one more kill could make a turn give up
}

// jobMark matches the mark of a job.
var jobMark = regexp.MustCompile(`job-(\d+)-(\d+)`)

func newJobTrial(t *testing.T) *jobTrial {
	tr := &jobTrial{t: t, caught: make(map[string]int),
		rand: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))}
	tr.world = newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == "user" && tr.tools(last.Content) {
			return openaitest.Reply{ToolCalls: []openaitest.ToolCall{
				{ID: fmt.Sprintf("call-%d", r.N), Name: "time", Arguments: "{}"}}}
		}
		for i := len(r.Messages) - 1; i >= 0; i-- {
			if mark := jobMark.FindString(r.Messages[i].Content); mark != "" {
				return say("did " + mark)
			}
		}
		return say("did nothing")
	}})
	var known []telegramtest.Message // a bot can't write to a person who has not written first
	for i := range tr.people() {
		known = append(known, telegramtest.Message{User: int64(i + 1), Text: "/whoami"})
	}
	tr.telegram.Deliver(known...)
	p := tr.start()
	p.ready()
	tr.eventually("an answer for everybody", func(db *store.DB) bool {
		return tr.count(db, "outbox WHERE state = 'sent'") == tr.people()
	})
	p.kill()
	return tr
}

// people returns the number of people who have jobs.
func (tr *jobTrial) people() int { return 5 }

// tools reports whether the job with this text uses a tool first.
func (tr *jobTrial) tools(text string) bool {
	m := jobMark.FindStringSubmatch(text)
	n := 0
	if m != nil {
		n, _ = strconv.Atoi(m[2]) // the pattern matches only digits
	}
	return n%3 == 0
}

func (tr *jobTrial) hasEnded(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// plan adds n jobs. Some are due already, the others soon. Half of them are reminders.
func (tr *jobTrial) plan(n int) {
	tr.t.Helper()
	tr.look(func(db *store.DB) {
		err := db.Tx(tr.t.Context(), func(tx *store.Tx) error {
			for i := range n {
				if err := tr.add(tx, len(tr.marks)+i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tr.t.Fatal(err)
		}
	})
	for range n {
		tr.marks = append(tr.marks, tr.mark(len(tr.marks)))
	}
}

func (tr *jobTrial) mark(i int) string { return fmt.Sprintf("job-%d-%d", i%tr.people(), i) }

// add adds the i-th job. Every fourth job was due ten minutes ago, while no gateway was running.
func (tr *jobTrial) add(tx *store.Tx, i int) error {
	now, in := time.Now().Add(-time.Duration(tr.rand.IntN(900))*time.Millisecond), "in 1s"
	if i%4 == 0 {
		now, in = now.Add(-20*time.Minute), "in 10m"
	}
	when, err := schedule.ParseAt(in, now, time.UTC)
	if err != nil {
		return err
	}
	j := &schedule.Job{Name: tr.mark(i), Kind: schedule.Task, OwnSession: true,
		Text: "do " + tr.mark(i), When: when, To: tr.chat(i), Role: bus.User,
		Sender: bus.Sender{ID: strconv.Itoa(i%tr.people() + 1)},
		Scope:  memory.OfChat(tr.chat(i))}
	if i%2 == 0 {
		j.Kind, j.OwnSession = schedule.Reminder, false
	}
	return schedule.Store{MaxJobs: -1}.Add(tx, j, now)
}

// chat returns the conversation of the i-th job.
func (tr *jobTrial) chat(i int) bus.Address {
	return bus.Address{Account: "telegram", Chat: strconv.Itoa(i%tr.people() + 1)}
}

// autopsy checks what a dead process has left: unfinished sends, and turns with many
// interruptions.
func (tr *jobTrial) autopsy() {
	tr.t.Helper()
	tr.look(func(db *store.DB) {
		var body []byte
		for range tr.query(db, []any{&body}, "SELECT body FROM outbox WHERE state = 'sending'") {
			tr.caught[outbound(tr.t, body).Text]++
		}
		tr.tired = tr.isTired(db)
	})
}

// quiet waits until p has nothing left to do.
func (tr *jobTrial) quiet(p *process) {
	tr.t.Helper()
	tr.look(func(db *store.DB) {
		ctx, cancel := context.WithTimeout(tr.t.Context(), patience)
		defer cancel()
		err := p.wait(ctx, func() bool {
			return tr.count(db, "jobs WHERE state = 'active'") == 0 &&
				tr.count(db, "runs WHERE ended_ms = 0") == 0 &&
				tr.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
		})
		if err != nil {
			tr.t.Fatalf("never quiet: %v\n%s", err, p.newest())
		}
	})
}

// settle runs a last process until all work is done, and checks the results.
func (tr *jobTrial) settle() {
	tr.t.Helper()
	p := tr.start()
	p.ready()
	tr.quiet(p)
	p.kill()
	tr.look(tr.check)
}

// check compares runs, messages and what people see with the plan.
func (tr *jobTrial) check(db *store.DB) {
	tr.t.Helper()
	n := len(tr.marks)
	all := n + tr.people()
	for rows, want := range map[string]int{
		"runs": n, "runs WHERE state = 'done'": n, "outbox": all, "outbox WHERE state = 'sent'": all,
		"inbox": all, "inbox WHERE state = 'done'": all, "turns": n, "turns WHERE state = 'done'": n,
		"runs WHERE late = 1": (n + 3) / 4,
	} {
		if got := tr.count(db, rows); got != want {
			tr.t.Errorf("%s: %d rows, want %d", rows, got, want)
		}
	}
	shown := make(map[string]int)
	for chat := range tr.people() {
		for _, text := range tr.texts(int64(chat + 1))[1:] {
			m := jobMark.FindStringSubmatch(text)
			if m == nil || m[1] != fmt.Sprint(chat) {
				tr.t.Errorf("chat %d shows %q", chat+1, text)
			}
			shown[strings.TrimPrefix(text, "did ")]++
		}
	}
	doubled := 0
	for _, mark := range tr.marks {
		times, most := shown[mark], 1+tr.caught["did "+mark]
		if times < 1 || times > most {
			tr.t.Errorf("%s was done %d times, want 1 to %d", mark, times, most)
		}
		doubled += times - 1
	}
	tr.t.Logf("%d jobs, %d kills, %d came twice", n, tr.kills, doubled)
}

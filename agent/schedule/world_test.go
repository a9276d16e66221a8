package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A world is a scheduler with a database and a clock that the test sets. The test reads the inbox
// in place of the dispatcher.
type world struct {
	t     testing.TB
	path  string
	db    *store.DB
	inbox *bus.Inbox
	opts  Options
	s     *Scheduler
	now   time.Time
}

// morning is the time at which tests begin, a Saturday.
var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "gateway.db"), inbox: bus.NewInbox(),
		now: morning}
	var err error
	w.db, err = store.Open(t.Context(), w.path, []store.Migration{bus.Migration, Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.must(w.db.Close()) })
	w.opts = Options{Store: Store{MaxJobs: -1}, Now: func() time.Time { return w.now }}
	w.restart()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// restart replaces the scheduler, as a restart of the gateway does.
func (w *world) restart() { w.s = New(w.db, w.inbox, &w.opts) }

// look moves the clock and then makes the scheduler look for due jobs once.
func (w *world) look(after time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(after)
	_, err := w.s.checkDue(w.t.Context())
	w.must(err)
}

func (w *world) tx(fn func(tx *store.Tx) error) {
	w.t.Helper()
	w.must(w.db.Tx(w.t.Context(), fn))
}

func (w *world) read() store.Queryer { return w.db.Read(context.WithoutCancel(w.t.Context())) }

// at returns the time that ParseAt reads. The methods every and cron do the same for intervals
// and expressions.
func (w *world) at(text string) When {
	w.t.Helper()
	when, err := ParseAt(text, w.now, time.UTC)
	w.must(err)
	return when
}

func (w *world) every(text string) When {
	w.t.Helper()
	when, err := ParseEvery(text, w.now, time.Second)
	w.must(err)
	return when
}

func (w *world) cron(text string) When {
	w.t.Helper()
	when, err := ParseCron(text, time.UTC)
	w.must(err)
	return when
}

var home = bus.Address{Account: "test", Chat: "7"}

// job returns a job of person 1 that is not stored yet.
func job(text string, when When) *Job {
	return &Job{Name: text, Kind: Task, Text: text, When: when, To: home, Role: bus.User,
		Sender: bus.Sender{ID: "7", Name: "Ada"}, Person: 1, Scope: memory.OfPerson(1), OwnSession: true}
}

// add stores a job.
func (w *world) add(j *Job) *Job {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error { return w.s.Add(tx, j, w.now) })
	return j
}

// addMany stores n jobs that are due at 9.
func (w *world) addMany(n int) {
	w.t.Helper()
	w.add(job("job", w.cron("0 9 * * *")))
	const columns = `name, kind, rule, account, chat, thread, sender, person, role, in_group, title,
		scope, own, state, next_ms, created_ms`
	w.tx(func(tx *store.Tx) error {
		_, err := tx.Exec(`WITH RECURSIVE numbers (n) AS
				(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
			INSERT INTO jobs (text, `+columns+`)
			SELECT 'job ' || n, `+columns+` FROM numbers, jobs`, n-1)
		return err
	})
}

// get reads a job from the database.
func (w *world) get(j *Job) Job {
	w.t.Helper()
	got, err := Find(w.read(), j.ID)
	w.must(err)
	return got
}

// messages returns all messages in the inbox in their order.
func (w *world) messages() (list []bus.InboundMessage) {
	w.t.Helper()
	rows, err := w.read().Query("SELECT body FROM inbox ORDER BY id")
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		var body []byte
		var m bus.InboundMessage
		w.must(rows.Scan(&body))
		w.must(json.Unmarshal(body, &m))
		list = append(list, m)
	}
	w.must(rows.Err())
	return list
}

// texts returns the texts of the messages in the inbox and then empties it.
func (w *world) texts() (list []string) {
	w.t.Helper()
	for _, m := range w.messages() {
		list = append(list, m.Text)
	}
	w.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("DELETE FROM inbox")
		return err
	})
	return list
}

// want checks the texts of the messages that the inbox got since the last call of want or texts.
func (w *world) want(texts ...string) {
	w.t.Helper()
	if got := w.texts(); !slices.Equal(got, texts) {
		w.t.Errorf("at %s the inbox has got %q, want %q", w.now.Format(time.DateTime), got, texts)
	}
}

// newest returns the newest run of a job.
func (w *world) newest(j *Job) Run {
	w.t.Helper()
	runs, err := Runs(w.read(), j.ID)
	w.must(err)
	if len(runs) == 0 {
		w.t.Fatalf("job %d has no runs", j.ID)
	}
	return runs[0]
}

// wantRuns checks the states of all runs of a job, the newest first.
func (w *world) wantRuns(j *Job, states ...RunState) {
	w.t.Helper()
	runs, err := Runs(w.read(), j.ID)
	w.must(err)
	var got []RunState
	for _, r := range runs {
		got = append(got, r.State)
	}
	if !slices.Equal(got, states) {
		w.t.Errorf("runs of job %d are %q, want %q", j.ID, got, states)
	}
}

// begin begins the newest run of a job, as a turn does. It reports whether the run may begin.
func (w *world) begin(j *Job) (ok bool) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) (err error) {
		ok, err = BeginRun(tx, w.newest(j).ID, w.now)
		return err
	})
	return ok
}

// done ends the newest run of a job. The answer of the agent is the first of said.
func (w *world) done(j *Job, said ...string) {
	w.t.Helper()
	said = append(said, "")
	w.tx(func(tx *store.Tx) error {
		return FinishRun(tx, w.newest(j).ID, Answer{Text: cmp.Or(said...)}, w.now)
	})
}

// do begins and ends the newest run, like a successful turn.
func (w *world) do(j *Job) {
	w.t.Helper()
	if !w.begin(j) {
		w.t.Errorf("the run of job %d can't begin", j.ID)
	}
	w.done(j)
}

// fail begins the newest run and lets it fail. It reports whether the scheduler gives the run up.
func (w *world) fail(j *Job) (dead bool) {
	w.t.Helper()
	if !w.begin(j) {
		w.t.Errorf("the run of job %d can't begin", j.ID)
	}
	w.tx(func(tx *store.Tx) (err error) {
		dead, err = FailRun(tx, w.newest(j).ID, "the model is away", w.now)
		return err
	})
	return dead
}

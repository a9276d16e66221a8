package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// alter runs do for a job in a transaction and returns its error.
func (w *world) alter(do func(tx *store.Tx, id int64, now time.Time) error, j *Job) error {
	w.t.Helper()
	return w.db.Tx(w.t.Context(), func(tx *store.Tx) error { return do(tx, j.ID, w.now) })
}

// pause pauses a job for a reason.
func (w *world) pause(j *Job, why string) error {
	w.t.Helper()
	return w.alter(func(tx *store.Tx, id int64, now time.Time) error {
		return w.s.Pause(tx, id, why, now)
	}, j)
}

func TestChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	edited := w.get(j)
	edited.Text, edited.When = "y", w.cron("0 12 * * *")
	w.tx(func(tx *store.Tx) error { return w.s.Change(tx, &edited, w.now) })
	w.look(time.Minute)
	w.want("x") // the change does not affect the running run
	if r := w.newest(j); r.State != Running {
		t.Errorf("the run is %s, want it running", r.State)
	}
	w.done(j, "did x")
	w.look(2 * time.Hour)
	w.want() // the old time no longer counts
	w.look(time.Hour)
	w.want("y\n\n[What you said last time, Saturday 2026-11-21 09:01 +00:00:]\ndid x\n" +
		"[end of what you said last time]")
	// A change of the text keeps the time, also that of an interval.
	edited = w.get(j)
	next := edited.Next
	edited.Text = "z"
	w.tx(func(tx *store.Tx) error { return w.s.Change(tx, &edited, w.now) })
	if got := w.get(j).Next; !got.Equal(next) {
		t.Errorf("the next time is %v after a change of the text, want %v", got, next)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	w.texts()
	w.must(w.pause(j, "holidays"))
	w.done(j) // the running run ends as usual
	w.look(5*time.Hour + 10*time.Minute)
	w.want()
	w.must(w.alter(w.s.Resume, j))
	w.look(0)
	w.want() // times that passed during the pause are not made up for
	w.look(50 * time.Minute)
	w.want("x") // at the old phase of the interval
	w.wantRuns(j, Waiting, Succeeded)

	// A waiting run is skipped, and its message does not begin a turn.
	w.must(w.pause(j, ""))
	if w.begin(j) {
		t.Error("a run of a paused job begins")
	}
	w.wantRuns(j, Skipped, Succeeded)
	once := w.add(job("once", w.at("in 1h")))
	w.must(w.pause(once, ""))
	w.look(2 * time.Hour)
	w.want()
	if err := w.alter(w.s.Resume, once); !errors.Is(err, ErrNoNextRun) {
		t.Errorf("Resume = %v, want %v", err, ErrNoNextRun)
	}
}

// A job that is not paused can't be resumed, and one that has ended can't be paused. The attempt
// changes nothing.
func TestPauseAndResumeOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.now = w.now.Add(90 * time.Minute)
	w.must(w.alter(w.s.Resume, j))
	w.look(0)
	if n := len(w.texts()); n != 1 {
		t.Errorf("%d runs, want the one that was due half an hour ago", n)
	}
	once := w.add(job("once", w.at("in 1h")))
	w.look(time.Hour)
	w.do(once)
	if err := w.pause(once, ""); !errors.Is(err, ErrNoNextRun) {
		t.Errorf("Pause = %v, want %v", err, ErrNoNextRun)
	}
}

// An interrupted run of a job that was paused meanwhile is not tried again.
func TestInterruptedAndPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	w.texts()
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	w.must(w.pause(j, ""))
	run := w.newest(j).ID
	w.tx(func(tx *store.Tx) error { return RetryRun(tx, run, w.now) })
	w.look(time.Minute)
	w.want()
	w.wantRuns(j, Stopped)
}

func TestRemoveWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	run := w.newest(j).ID
	w.must(w.alter(w.s.Remove, j))
	if _, err := Find(w.read(), j.ID); !errors.Is(err, ErrNone) {
		t.Errorf("Get = %v, want %v", err, ErrNone)
	}
	if _, _, err := RunOf(w.read(), run); err != nil {
		t.Errorf("RunOf = %v, want the run that goes on", err)
	}
	w.look(3 * time.Hour)
	w.want("x")
	w.done(j)
	if _, _, err := RunOf(w.read(), run); !errors.Is(err, ErrNone) {
		t.Errorf("RunOf = %v, want %v", err, ErrNone)
	}
	// The job is removed at once because no run is running. Its waiting run can't begin.
	j = w.add(job("y", w.every("1h")))
	w.look(time.Hour)
	run = w.newest(j).ID
	w.must(w.alter(w.s.Remove, j))
	w.tx(func(tx *store.Tx) error {
		if ok, err := BeginRun(tx, run, w.now); ok || err != nil {
			t.Errorf("Begin = %v, %v; want false", ok, err)
		}
		return nil
	})
	if err := w.alter(w.s.Remove, j); !errors.Is(err, ErrNone) {
		t.Errorf("Remove = %v, want %v", err, ErrNone)
	}
}

func TestFailAfterRemove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	run := w.newest(j).ID
	w.must(w.alter(w.s.Remove, j))
	w.tx(func(tx *store.Tx) error {
		dead, err := FailRun(tx, run, "no", w.now)
		if !dead {
			t.Error("a run of a job that was removed is tried again")
		}
		return err
	})
	if _, _, err := RunOf(w.read(), run); !errors.Is(err, ErrNone) {
		t.Errorf("RunOf = %v, want %v", err, ErrNone)
	}
}

func TestRunNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.must(w.alter(w.s.RunNow, j))
	if err := w.alter(w.s.RunNow, j); err != nil {
		t.Errorf("RunNow before it has begun = %v, want nil: it is the same wish", err)
	}
	w.look(0)
	w.want("x")
	if err := w.alter(w.s.RunNow, j); !errors.Is(err, ErrRunning) {
		t.Errorf("RunNow = %v, want %v", err, ErrRunning)
	}
	w.do(j)
	w.must(w.alter(w.s.RunNow, j)) // again at the same moment
	w.look(0)
	w.want("x")
	w.do(j)
	w.wantRuns(j, Succeeded, Succeeded)
	w.look(time.Hour) // the times of the job are unchanged
	w.want("x")
	w.fail(j)
	w.look(10 * time.Second)
	w.want()
	w.must(w.alter(w.s.RunNow, j)) // a run that waits for its next attempt is tried at once
	w.look(0)
	w.want("x")
	w.do(j)
	w.wantRuns(j, Succeeded, Succeeded, Succeeded)
	once := w.add(job("once", w.at("in 1m")))
	w.look(time.Minute)
	w.do(once)
	w.must(w.alter(w.s.RunNow, once)) // also possible for a job that is over
	w.look(0)
	w.want("once", "once")
}

func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if !w.begin(j) {
		t.Fatal("it can't begin")
	}
	w.tx(func(tx *store.Tx) error { return StopRun(tx, w.newest(j).ID, w.now) })
	w.look(30 * time.Minute)
	w.want("x")
	w.wantRuns(j, Stopped)
	w.look(30 * time.Minute)
	w.want("x")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.Store = Store{MaxJobs: 2, MinEvery: time.Hour}
	try := func(j *Job) error {
		return w.db.Tx(t.Context(), func(tx *store.Tx) error { return w.s.Add(tx, j, w.now) })
	}
	once := w.at("in 1h")
	for name, test := range map[string]struct {
		job  *Job
		want string
	}{
		"text":       {job(" \n", once), "the text is empty"},
		"long text":  {job(strings.Repeat("x", maxText+1), once), "8001 bytes"},
		"not a time": {job("x", When{}), "has no time"},
		"interval":   {job("x", w.every("59m")), "too often"},
		"cron":       {job("x", w.cron("0,30 9 * * *")), "too often"},
		"name":       {&Job{Name: strings.Repeat("ä", 65), Text: "x", When: once}, "65 characters"},
		"line":       {&Job{Name: "a\nb", Text: "x", When: once}, "one line"},
		"past":       {job("x", When{at: 1}), "is over"},
		"zone":       {job("x", once.In(time.FixedZone("Mars", 60))), "has no name"},
	} {
		err := try(test.job)
		_, ok := errors.AsType[*RefusedError](err)
		if !ok || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Add = %v, want a refusal with %q", name, err, test.want)
		}
	}
	w.must(try(job("a", once)))
	w.must(try(job("b", once)))
	err := try(job("c", once))
	if err == nil || !strings.Contains(err.Error(), "there are 2 jobs") {
		t.Errorf("a third job: %v, want a refusal", err)
	}
	other := job("c", once)
	other.Person = 2
	w.must(try(other)) // the limit counts the jobs of one person
	w.look(2 * time.Hour)
	w.must(try(job("c", w.at("in 1h")))) // jobs that are over do not count
	w.now = w.now.Add(24 * time.Hour)
	w.look(0)
	unnamed := job("look  after\nthe plants "+strings.Repeat("x", 100), w.at("in 1h"))
	unnamed.Name = ""
	w.must(try(unnamed))
	if name := unnamed.Name; !strings.HasPrefix(name, "look after the plants x") ||
		len([]rune(name)) != 40 {
		t.Errorf("a job without a name is called %q", name)
	}
}

// Ordinary names have characters that are not printed: spaces without a break in French, and
// joiners in Persian and in emoji.
func TestNameWithInvisibleCharacters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, want := range map[string]string{
		"Rappel\u202f: boire 2\u00a0l":               "Rappel : boire 2 l",
		"\u06a9\u062a\u0627\u0628\u200c\u0647\u0627": "\u06a9\u062a\u0627\u0628\u0647\u0627",
		"\U0001f469\u200d\U0001f467 zoo":             "\U0001f469\U0001f467 zoo",
	} {
		j := job("x", w.at("in 1h"))
		j.Name = name
		w.must(w.db.Tx(t.Context(), func(tx *store.Tx) error { return w.s.Add(tx, j, w.now) }))
		if j.Name != want {
			t.Errorf("the name %q became %q, want %q", name, j.Name, want)
		}
	}
}

// A finished job that starts again with a new time counts like a new job.
func TestLimitOfChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.Store = Store{MaxJobs: 1}
	over := w.add(job("a", w.at("in 1h")))
	w.look(2 * time.Hour)
	second := w.add(job("b", w.at("in 1h")))
	over.When = w.cron("0 9 * * *")
	change := func(tx *store.Tx) error { return w.s.Change(tx, over, w.now) }
	err := w.db.Tx(t.Context(), change)
	if refused, ok := errors.AsType[*RefusedError](err); !ok ||
		!strings.Contains(refused.Reason, "there are 1 jobs") {
		t.Errorf("a second job: %v, want a refusal", err)
	}
	w.tx(func(tx *store.Tx) error { return w.s.Remove(tx, second.ID, w.now) })
	w.tx(change)
}

// TestScopes checks the effect on jobs when people are linked or forgotten and when a chat moves.
func TestScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := w.add(job("mine", w.every("1h")))
	group := job("in a group", w.every("1h"))
	group.To.Chat, group.Scope = "g", "chat-test+g"
	w.add(group)
	w.tx(func(tx *store.Tx) error { return SetZone(tx, memory.OfPerson(1), "Asia/Kathmandu") })
	w.tx(func(tx *store.Tx) error {
		return w.s.MoveScope(tx, memory.OfPerson(1), memory.OfPerson(2))
	})
	if a, b := w.get(mine), w.get(group); a.Person != 2 || a.Scope != memory.OfPerson(2) ||
		b.Person != 2 || b.Scope != "chat-test+g" {
		t.Errorf("after the link the jobs are %+v and %+v", a, b)
	}
	if loc, err := Zone(w.read(), memory.OfPerson(2)); err != nil ||
		loc.String() != "Asia/Kathmandu" {
		t.Errorf("Zone = %v, %v", loc, err)
	}
	if loc, err := Zone(w.read(), memory.OfPerson(1)); err != nil || loc != nil {
		t.Errorf("Zone of who is gone = %v, %v; want none", loc, err)
	}
	from, to := bus.Address{Account: "test", Chat: "g"}, bus.Address{Account: "test", Chat: "h"}
	w.tx(func(tx *store.Tx) error { return MoveChat(tx, from, to) })
	if got := w.get(group).To; got != to {
		t.Errorf("the group's job goes to %s, want %s", got, to)
	}
	w.look(time.Hour)
	w.tx(func(tx *store.Tx) error { return EraseChat(tx, to) })
	w.tx(func(tx *store.Tx) error { return EraseScope(tx, memory.OfPerson(2)) })
	for _, table := range []string{"jobs", "runs", "zones"} {
		var n int
		w.must(w.read().QueryRow("SELECT count(*) FROM " + table).Scan(&n))
		if n != 0 {
			t.Errorf("%d rows are left in %s, want none", n, table)
		}
	}
	w.now = w.now.Add(time.Hour)
	w.look(0)
}

// When somebody is unlinked from person 1 and becomes person 3, their jobs follow them. Those in
// groups keep the memory of the group. A heartbeat is about the memory of person 1.
func TestUnlinkedJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := func(name, sender string) *Job {
		j := job(name, w.every("1h"))
		j.Sender.ID = sender
		return j
	}
	group, elsewhere := by("in a group", "bob"), by("elsewhere", "bob")
	group.Group, group.Scope, elsewhere.To.Account = true, "chat-test+g", "other"
	others := []*Job{w.add(by("of the other one", "ann")), w.add(elsewhere)}
	theirs := []*Job{w.add(by("theirs", "bob")), w.add(group)}
	w.tx(func(tx *store.Tx) error {
		return w.s.SetHeartbeat(tx, HeartbeatTarget{Scope: memory.OfPerson(1), To: theirs[0].To,
			Sender: theirs[0].Sender, Person: 1}, time.Hour, w.now)
	})
	w.tx(func(tx *store.Tx) error { return MoveSender(tx, theirs[0].To.Account, "bob", 1, 3) })
	for _, j := range others {
		if got := w.get(j); got.Person != 1 || got.Scope != memory.OfPerson(1) {
			t.Errorf("%s is now %+v", j.Name, got)
		}
	}
	for i, want := range []memory.Scope{memory.OfPerson(3), "chat-test+g"} {
		if got := w.get(theirs[i]); got.Person != 3 || got.Scope != want {
			t.Errorf("%s is now %+v, want the scope %s", got.Name, got, want)
		}
	}
	var n int
	w.must(w.read().QueryRow("SELECT count(*) FROM jobs WHERE kind = 'heartbeat'").Scan(&n))
	if n != 0 {
		t.Errorf("%d heartbeats are left, want none", n)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	once := w.add(job("once", w.at("in 1m")))
	every := w.add(job("every", w.every("1h")))
	w.look(time.Hour)
	w.do(once)
	w.do(every)
	w.look(time.Hour)
	w.do(every)
	w.look(time.Hour) // this run is not over
	prune := func(before time.Time) (n int) {
		w.tx(func(tx *store.Tx) (err error) {
			n, err = Prune(tx, before)
			return err
		})
		return n
	}
	if n := prune(w.now.Add(-90 * time.Minute)); n != 2 {
		t.Errorf("Prune = %d, want 2", n)
	}
	if _, err := Find(w.read(), once.ID); !errors.Is(err, ErrNone) {
		t.Errorf("Get of what is over = %v, want %v", err, ErrNone)
	}
	if n := prune(w.now.Add(time.Hour)); n != 1 {
		t.Errorf("Prune = %d, want 1", n)
	}
	w.wantRuns(every, Waiting)
}

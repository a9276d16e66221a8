package schedule

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

func TestAtRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("call mum", w.at("in 20m")))
	w.look(20*time.Minute - time.Millisecond)
	w.want()
	w.look(time.Millisecond)
	w.want("call mum")
	w.look(time.Hour)
	w.want()
	if got := w.get(j); got.State != Ended || !got.Next.IsZero() {
		t.Errorf("job is %s, next %v; want it ended", got.State, got.Next)
	}
	w.do(j)
	w.wantRuns(j, Succeeded)
}

// TestMessage checks all fields of the message that the agent gets.
func TestMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := job("look at the news", w.every("1h"))
	own.Name, own.Group, own.Title = "news", true, "Family"
	w.add(own)
	reminder := job("call mum", w.at("in 1h"))
	reminder.Kind, reminder.OwnSession = Reminder, false
	w.add(reminder)
	w.look(time.Hour)
	list := w.messages()
	if len(list) != 2 {
		t.Fatalf("%d messages, want 2", len(list))
	}
	m := list[0]
	if m.From != home || m.Sender != own.Sender || m.Person != 1 || m.Role != bus.User ||
		!m.Group || m.ChatTitle != "Family" || !m.Addressed || !m.Time.Equal(w.now) ||
		m.Text != "look at the news" || m.ID != "run:1:1" {
		t.Errorf("the task is %+v", m)
	}
	want := bus.Origin{Kind: bus.Job, Label: "news", Run: 1,
		Session: session.KeyOf(home).OfJob(own.ID)}
	if !reflect.DeepEqual(m.Origin, want) {
		t.Errorf("origin %+v, want %+v", m.Origin, want)
	}
	if m := list[1]; m.Text != "Reminder: call mum" || !m.Origin.Session.IsZero() ||
		!m.Origin.Reminder {
		t.Errorf("the reminder is %+v", m)
	}
	if !w.begin(own) {
		t.Fatal("it can't begin")
	}
	w.texts()
	w.done(own, "  Nothing new. ")
	w.look(time.Hour)
	w.want("look at the news\n\n[What you said last time, Saturday 2026-11-21 09:00 +00:00:]\n" +
		"Nothing new.\n[end of what you said last time]")
}

func TestDowntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.add(job("once", w.at("in 1h")))
	every := w.add(job("interval", w.every("90m")))
	cron := w.add(job("clock", w.cron("0 9 * * *")))
	onTime := w.add(job("near", w.at("2026-11-24 07:59")))
	w.now = morning.Add(3 * 24 * time.Hour) // 8:00, three days later
	w.restart()
	w.look(0)
	const end = "and comes late, because I was not running then. Say so."
	w.want(
		"once\n\n[This was due at Saturday 2026-11-21 09:00 +00:00 "+end+"]",
		"clock\n\n[This was due at Monday 2026-11-23 09:00 +00:00 "+end+
			" It was missed at times before that, too; this once stands for all.]",
		"interval", // 72h is a multiple of 90m, so this job is due right now
		"near",
	)
	for _, j := range []*Job{at, every, cron, onTime} {
		w.do(j)
	}
	w.wantRuns(every, Succeeded)
	// The phase is kept, and missed times are not made up for.
	w.look(time.Hour) // 9:00
	w.want("clock")
	w.do(cron)
	w.look(30*time.Minute - time.Millisecond)
	w.want()
	w.look(time.Millisecond)
	w.want("interval")
	if r := w.newest(every); r.Late || !r.Due.Equal(w.now) {
		t.Errorf("the next run is late %v, due %v", r.Late, r.Due)
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.at("in 1h")))
	w.look(time.Hour)
	for i, wait := range backoff {
		w.want("x")
		if w.fail(j) {
			t.Fatalf("it is given up after %d attempts", i+1)
		}
		if w.begin(j) {
			t.Error("it begins before its time")
		}
		w.look(wait - time.Millisecond)
		w.want()
		w.restart()
		w.look(time.Millisecond)
	}
	w.want("x")
	if !w.fail(j) {
		t.Error("it is not given up after 4 attempts")
	}
	w.look(24 * time.Hour)
	w.want()
	w.wantRuns(j, Failed)
	if r := w.newest(j); r.Attempts != 4 || r.Error != "the model is away" || r.Ended.IsZero() {
		t.Errorf("the run is %+v", r)
	}
	// A run that is over keeps its state, even if it is reported again.
	w.done(j, "late answer")
	w.wantRuns(j, Failed)
	w.tx(func(tx *store.Tx) error {
		dead, err := FailRun(tx, w.newest(j).ID, "again", w.now)
		if dead {
			t.Error("it is given up a second time")
		}
		return err
	})
}

func TestAttemptIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("x", w.at("in 1h")))
	w.look(time.Hour)
	w.fail(j)
	w.look(time.Minute)
	var ids []string
	for _, m := range w.messages() {
		ids = append(ids, m.ID)
	}
	if got, want := strings.Join(ids, " "), "run:1:1 run:1:2"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.add(job("long", w.every("10m")))
	other := w.add(job("other", w.every("10m")))
	for range 4 { // no run of the first job ever ends
		w.look(10 * time.Minute)
		w.do(other)
	}
	w.want("long", "other", "long", "other", "other", "other")
	w.wantRuns(j, Skipped, Skipped, Waiting, Waiting)
	w.wantRuns(other, Succeeded, Succeeded, Succeeded, Succeeded)
}

// refused returns the reason why a creator may not use the agent, or "".
func refused(ok bool) string {
	if ok {
		return ""
	}
	return WhyRefused
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	role, ok := bus.Guest, true
	w.opts.Admit = func(store.Queryer, *Job) (bus.Role, string, error) {
		return role, refused(ok), nil
	}
	w.restart()
	j := w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	if m := w.messages(); len(m) != 1 || m[0].Role != bus.Guest {
		t.Fatalf("messages %+v, want one with the role of today", m)
	}
	w.fail(j)
	ok = false
	w.look(time.Minute) // the next attempt
	w.wantRuns(j, Skipped)
	if got := w.get(j); got.State != Paused || got.PauseReason != WhyRefused {
		t.Errorf("job is %s (%s), want it paused", got.State, got.PauseReason)
	}
	w.tx(func(tx *store.Tx) error { return w.s.Resume(tx, j.ID, w.now) })
	w.look(time.Hour)
	w.wantRuns(j, Skipped, Skipped)
	if got := w.get(j); got.State != Paused {
		t.Errorf("job is %s, want it paused", got.State)
	}
	w.want("x")
}

// A job that was paused because its creator was shut out resumes when the creator is admitted
// again. It runs at its next time and does not make up for missed times. A job that a person
// paused stays paused.
func TestReadmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ok := true
	w.opts.Admit = func(_ store.Queryer, j *Job) (bus.Role, string, error) {
		return j.Role, refused(ok), nil
	}
	w.restart()
	often, once := w.add(job("often", w.every("1h"))), w.add(job("once", w.at("90m")))
	twice := w.add(job("twice", w.every("1h")))
	mine, asked := w.add(job("mine", w.every("1h"))), w.add(job("asked", w.every("1h")))
	pause := func(j *Job) {
		w.tx(func(tx *store.Tx) error { return w.s.Pause(tx, j.ID, "by me", w.now) })
	}
	pause(asked)
	ok = false
	w.tx(func(tx *store.Tx) error { return w.s.RunNow(tx, asked.ID, w.now) })
	for range 6 { // the jobs miss some of their times
		w.look(30 * time.Minute)
	}
	pause(mine)
	w.restart() // the next process knows the reason, too
	w.look(10 * time.Minute)
	w.want()
	wantState := func(j *Job, state State, why string) {
		t.Helper()
		if got := w.get(j); got.State != state || got.PauseReason != why {
			t.Errorf("job %s is %s (%s), want %s (%s)", j.Text, got.State, got.PauseReason, state, why)
		}
	}
	wantState(often, Paused, WhyRefused)
	wantState(once, Paused, WhyRefused)
	ok = true
	w.look(time.Second) // too soon for the next check
	wantState(often, Paused, WhyRefused)
	w.look(poll)
	w.want()
	wantState(often, Active, "")
	wantState(once, Ended, "")
	wantState(mine, Paused, "by me")
	wantState(asked, Paused, "by me")
	if got, want := w.get(often).Next, morning.Add(4*time.Hour); !got.Equal(want) {
		t.Errorf("the next time is %s, want %s", got, want)
	}
	w.look(w.get(often).Next.Sub(w.now))
	w.want("often", "twice")
	w.wantRuns(often, Waiting, Skipped)
	w.wantRuns(once, Skipped)

	w.do(twice)
	ok = false // shut out again
	w.look(time.Hour)
	wantState(twice, Paused, WhyRefused)
	ok = true
	w.look(time.Minute)
	wantState(twice, Active, "")
}

// While its account is not served, a job costs nothing. When the account is back, each job runs
// once, late, also one with a single time. So does the next attempt of a run.
func TestUnserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	why := ""
	w.opts.Admit = func(_ store.Queryer, j *Job) (bus.Role, string, error) { return j.Role, why, nil }
	w.restart()
	often, once := w.add(job("often", w.every("1h"))), w.add(job("once", w.at("90m")))
	failed := w.add(job("failed", w.at("30m")))
	w.look(30 * time.Minute)
	w.want("failed")
	w.fail(failed)
	why = WhyUnserved
	for range 6 { // the jobs miss some of their times
		w.look(30 * time.Minute)
	}
	w.want()
	for _, j := range []*Job{often, once} {
		if got := w.get(j); got.State != Paused || got.PauseReason != WhyUnserved {
			t.Errorf("job %s is %s (%s), want it paused", j.Text, got.State, got.PauseReason)
		}
		w.wantRuns(j)
	}
	why = ""
	w.restart()
	w.look(time.Minute)
	var late, all []string
	for _, m := range w.messages() {
		if all = append(all, m.Origin.Label); strings.Contains(m.Text, "comes late") {
			late = append(late, m.Origin.Label)
		}
	}
	if fmt.Sprint(late, all) != "[often once] [often once failed]" {
		t.Errorf("late are %q of %q, want often and once, and failed again", late, all)
	}
	w.wantRuns(often, Waiting)
	if got, want := w.get(often).Next, morning.Add(4*time.Hour); !got.Equal(want) {
		t.Errorf("the next time is %s, want %s", got, want)
	}
	if got := w.get(once); got.State != Ended {
		t.Errorf("job once is %s, want it ended", got.State)
	}
}

func TestZoneGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.add(job("bad", w.cron("0 9 * * *")))
	w.add(job("good", w.cron("0 9 * * *")))
	w.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE jobs SET rule = replace(rule, 'UTC', 'No/Where') WHERE id = $1",
			bad.ID)
		return err
	})
	w.look(time.Hour)
	w.want("good")
	if got := w.get(bad); got.State != Paused || !strings.Contains(got.PauseReason, "can't be read") {
		t.Errorf("job is %s (%s), want it paused", got.State, got.PauseReason)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := true
	beats := []HeartbeatTarget{{Scope: memory.OfPerson(1), To: home, Role: bus.User, Person: 1}}
	w.opts.Heartbeat = 30 * time.Minute
	w.opts.Heartbeats = func(context.Context) ([]HeartbeatTarget, error) { return beats, nil }
	w.opts.Open = func(s memory.Scope) bool { return open && s == memory.OfPerson(1) }
	w.restart()
	w.look(0)
	w.look(30 * time.Minute)
	list := w.messages()
	if len(list) != 1 || list[0].Origin.Kind != bus.Heartbeat || list[0].Origin.Session.IsZero() {
		t.Fatalf("messages %+v, want a heartbeat in a session of its own", list)
	}
	j, _, err := RunOf(w.read(), list[0].Origin.Run)
	w.must(err)
	w.texts()
	w.look(30 * time.Minute) // the heartbeat is still running
	w.want()
	w.do(&j)
	open = false
	w.look(30 * time.Minute)
	w.want()
	open, w.now = true, w.now.Add(40*time.Hour)
	w.restart() // after a downtime, the text does not mention it
	w.look(0)
	w.want(j.Text)
	if w.fail(&j) != true {
		t.Error("a heartbeat that has failed is tried again, want the next one to come")
	}
	// The chat and the interval of the heartbeat may change.
	beats[0].To.Chat = "9"
	w.restart()
	w.look(0)
	w.look(30 * time.Minute)
	list = w.messages()
	if len(list) != 1 || list[0].From.Chat != "9" {
		t.Errorf("messages %+v, want one in the other chat, at the time from before", list)
	}
	w.texts()
	w.do(&j)
	beats[0].To.Chat = "8"
	w.opts.Heartbeat = time.Hour
	w.restart()
	w.look(0)
	w.look(31 * time.Minute)
	w.want()
	w.look(29 * time.Minute)
	if list := w.messages(); len(list) != 1 || list[0].From.Chat != "8" {
		t.Errorf("messages %+v, want one to the other chat", list)
	}
	if jobs, err := List(w.read(), Filter{Over: true}); err != nil || len(jobs) != 0 {
		t.Errorf("List = %v, %v; want no heartbeats", jobs, err)
	}
	w.opts.Heartbeat = 0
	w.restart()
	w.look(0)
	if _, _, err := RunOf(w.read(), list[0].Origin.Run); err != ErrNone {
		t.Errorf("without heartbeats RunOf = %v, want %v", err, ErrNone)
	}
}

func TestSchedulersSideBySide(t *testing.T) {
	t.Parallel()
	const jobs = 1000
	w := newWorld(t)
	w.addMany(jobs)
	other, err := store.Open(t.Context(), w.path, []store.Migration{bus.Migration, Migration},
		&store.Options{Shared: true})
	w.must(err)
	defer func() { w.must(other.Close()) }()
	w.now = w.now.Add(time.Hour)
	var wg sync.WaitGroup
	for _, db := range []*store.DB{w.db, other} {
		s := New(db, bus.NewInbox(), &w.opts)
		wg.Go(func() {
			if _, err := s.checkDue(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	times := make(map[string]int)
	for _, text := range w.texts() {
		times[text]++
	}
	for text, n := range times {
		if n != 1 {
			t.Errorf("%s runs %d times, want once", text, n)
		}
	}
	if len(times) != jobs {
		t.Errorf("%d jobs run, want %d", len(times), jobs)
	}
}

func TestTenThousand(t *testing.T) {
	t.Parallel()
	const jobs = 10_000
	w := newWorld(t)
	w.addMany(jobs)
	w.look(time.Hour)
	w.look(0)
	seen := make(map[string]bool)
	for _, text := range w.texts() {
		if seen[text] {
			t.Fatalf("%s runs twice", text)
		}
		seen[text] = true
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs run, want %d", len(seen), jobs)
	}
	w.look(time.Hour)
	w.want()
}

// TestRun checks that Run sleeps and wakes at the right times.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.Now = nil
		w.restart()
		w.now = time.Now()
		w.add(job("soon", w.at("in 90s")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.s.Run(ctx) }()
		time.Sleep(90*time.Second - time.Millisecond)
		synctest.Wait()
		w.want()
		time.Sleep(time.Millisecond) // at the exact moment, not at the next poll
		synctest.Wait()
		w.want("soon")

		w.now = time.Now()
		j := w.add(job("now", w.every("1h")))
		w.tx(func(tx *store.Tx) error { return w.s.RunNow(tx, j.ID, time.Now()) })
		w.s.Wake()
		synctest.Wait()
		w.want("now")

		// Another process writes, which does not wake this one.
		w.now = time.Now()
		other := w.add(job("other", w.every("1h")))
		w.tx(func(tx *store.Tx) error { return w.s.RunNow(tx, other.ID, time.Now()) })
		time.Sleep(poll)
		synctest.Wait()
		w.want("other")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func BenchmarkDue(b *testing.B) {
	w := newWorld(b)
	const jobs = 10_000
	w.addMany(jobs)
	w.look(0)
	for b.Loop() {
		w.look(24 * time.Hour)
		b.StopTimer()
		w.tx(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE runs SET state = 'done'")
			return err
		})
		b.StartTimer()
	}
	b.ReportMetric(float64(jobs)*float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

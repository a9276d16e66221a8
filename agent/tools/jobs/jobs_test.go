package jobs

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/memory"
	"gateway/store"
)

// A fixture has the tool and its database.
type fixture struct {
	*testing.T
	db    *store.DB
	store schedule.Store
	tools *tool.Registry
	now   time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"),
		[]store.Migration{schedule.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{T: t, db: db, store: schedule.Store{MaxJobs: 3},
		now: time.Date(2026, 11, 21, 14, 30, 0, 0, time.UTC)} // a Saturday
	f.tools, err = tool.NewRegistry(New(Options{Store: f.store,
		Now: func() time.Time { return f.now }}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ada and bob are two people in the same group.
var (
	ada = tool.Call{Address: bus.Address{Account: "test", Chat: "g"}, Person: 1, Role: bus.User,
		Sender: bus.Sender{ID: "1"}, Group: true, Title: "Club", Scope: "chat-test+g"}
	bob = tool.Call{Address: ada.Address, Person: 2, Role: bus.User, Sender: bus.Sender{ID: "2"},
		Group: true, Title: "Club", Scope: ada.Scope}
)

// call calls the tool for a person and returns the text for the model.
func (f *fixture) call(c tool.Call, args string) string {
	f.Helper()
	found, err := f.tools.Lookup("schedule")
	if err != nil {
		f.Fatal(err)
	}
	if c.Args, err = f.tools.Arguments("schedule", args); err != nil {
		return "Arguments: " + err.Error()
	}
	r, err := found.Run(f.Context(), c)
	if err != nil {
		return "Error: " + err.Error()
	}
	text := ""
	err = f.db.Tx(f.Context(), func(tx *store.Tx) (err error) {
		text, err = r.Commit(tx)
		return err
	})
	if refused, ok := errors.AsType[*tool.RefusedError](err); ok {
		return "Refused: " + refused.Reason
	}
	if err != nil {
		f.Fatal(err)
	}
	return text
}

// want checks the beginning of the text for the model.
func (f *fixture) want(c tool.Call, args, want string) {
	f.Helper()
	if got := f.call(c, args); !strings.HasPrefix(got, want) {
		f.Errorf("%s\n got %q\nwant %q", args, got, want)
	}
}

func (f *fixture) job(id int64) schedule.Job {
	f.Helper()
	j, err := schedule.Find(f.db.Read(f.Context()), id)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

func TestAdd(t *testing.T) {
	f := newFixture(t)
	f.want(ada, `{"action":"timezone"}`, "The time zone is UTC; it is Sat 2026-11-21 14:30 UTC.")
	f.want(ada, `{"action":"timezone","zone":"berlin"}`, "The time zone is Europe/Berlin")
	f.want(ada, `{"action":"add","text":"call mum","at":"tomorrow 9:00"}`,
		`Set up: job 1 "call mum" (reminder), once, 2026-11-22 09:00 CET; next Sun 2026-11-22 `+
			"09:00 CET. That is job 1 of 3 that are allowed.")
	f.want(ada, `{"action":"Add","name":"news","text":"Look up the news.","kind":"task",`+
		`"cron":"30 8 * * 1-5","zone":"Asia/Kathmandu"}`,
		`Set up: job 2 "news" (task), at 30 8 * * 1-5 (Asia/Kathmandu); next Mon 2026-11-23 03:45`)
	f.want(bob, `{"action":"add","text":"drink","every":"2h","session":"own"}`,
		`Set up: job 3 "drink" (reminder), every 2h; next Sat 2026-11-21 17:30 CET`)
	j := f.job(2)
	if j.To != ada.Address || j.Person != 1 || j.Role != bus.User || !j.Group ||
		j.Title != "Club" || j.Scope != ada.Scope || !j.OwnSession || j.Sender.ID != "1" {
		t.Errorf("the job is %+v", j)
	}
	if f.job(1).OwnSession || !f.job(3).OwnSession {
		t.Error("a reminder is said in the conversation, unless something else is wanted")
	}
	f.want(ada, `{"action":"list"}`, `- job 3 "drink"`)
	f.want(ada, `{"action":"show","id":2}`, `job 2 "news" (task)`)
	alone := ada
	alone.Scope = memory.OfPerson(1)
	f.want(alone, `{"action":"list"}`, "There are no jobs.")
	f.want(alone, `{"action":"show","id":2}`, "Refused: job 2: there is no such job")
	f.want(alone, `{"action":"remove","id":2}`, "Refused: job 2: there is no such job")
}

func TestChange(t *testing.T) {
	f := newFixture(t)
	f.call(ada, `{"action":"add","text":"call mum","cron":"0 9 * * *"}`)
	f.want(ada, `{"action":"change","id":1,"text":"call dad"}`, `Changed: job 1 "call mum"`)
	f.want(ada, `{"action":"change","id":1,"name":"dad","zone":"Europe/Berlin"}`,
		`Changed: job 1 "dad" (reminder), at 0 9 * * * (Europe/Berlin); next Sun 2026-11-22 08:00`)
	f.want(ada, `{"action":"change","id":1,"kind":"task","every":"1h"}`,
		`Changed: job 1 "dad" (task), every 1h; next Sat 2026-11-21 15:30 UTC`)
	if j := f.job(1); j.Text != "call dad" || !j.OwnSession {
		t.Errorf("the job is %+v", j)
	}
	f.want(ada, `{"action":"pause","id":1}`, `Paused: job 1 "dad" (task), every 1h; paused.`)
	f.want(ada, `{"action":"resume","id":1}`, `Resumed: job 1 "dad" (task), every 1h; next Sat`)
	f.want(ada, `{"action":"run","id":1}`, "It runs in a moment")
	f.want(ada, `{"action":"show","id":1}`, `job 1 "dad" (task), every 1h; next Sat 2026-11-21 `+
		"15:30 UTC.\nText: call dad\n- due Sat 2026-11-21 14:30 UTC: waiting")
	f.want(ada, `{"action":"remove","id":1}`, `Removed job 1 "dad".`)
	f.want(ada, `{"action":"remove","id":1}`, "Refused: job 1: there is no such job")
}

// A job that one person has set up in a group is visible to others. Only an admin may also change
// it.
func TestOthers(t *testing.T) {
	f := newFixture(t)
	f.call(ada, `{"action":"add","text":"call mum","at":"9:00"}`)
	f.want(bob, `{"action":"list"}`, `- job 1 "call mum"`)
	for _, args := range []string{`{"action":"remove","id":1}`, `{"action":"pause","id":1}`,
		`{"action":"change","id":1,"text":"x"}`, `{"action":"run","id":1}`} {
		f.want(bob, args, "Refused: only the person who set up job 1, or an admin, may change it")
	}
	admin := bob
	admin.Role = bus.Admin
	f.want(admin, `{"action":"remove","id":1}`, "Removed job 1")
}

// A run of a job is not a request of a person, so it can't set up or change jobs.
func TestProactive(t *testing.T) {
	f := newFixture(t)
	f.call(ada, `{"action":"add","text":"call mum","every":"1h","kind":"task"}`)
	run := ada
	run.Proactive = true
	for _, args := range []string{`{"action":"add","text":"x","at":"9:00"}`,
		`{"action":"change","id":1,"text":"x"}`, `{"action":"run","id":1}`,
		`{"action":"resume","id":1}`} {
		got := f.call(run, args)
		if !strings.Contains(got, "not possible from inside a scheduled run") {
			t.Errorf("%s: %q", args, got)
		}
	}
	f.want(run, `{"action":"timezone","zone":"UTC"}`, "Refused: the time zone is not changed")
	f.want(run, `{"action":"list"}`, `- job 1`)
	run.Session = bustest.Session("test/g#@job-2")
	for _, action := range []string{"remove", "pause"} {
		f.want(run, `{"action":"`+action+`","id":1}`, "Refused: nobody has asked for this")
	}
	run.Session = bustest.Session("test/g#@job-1")
	f.want(run, `{"action":"remove","id":1}`, "Removed job 1") // a run may end its own job
}

// A run in the session of the conversation, or beside it, may end its own job and no other.
func TestRunInChatEndsItsJob(t *testing.T) {
	f := newFixture(t)
	const add = `{"action":"add","text":"look","every":"1h","kind":"task","session":"chat"}`
	for range 3 {
		f.call(ada, add)
	}
	err := f.db.Tx(t.Context(), func(tx *store.Tx) error {
		for id := range int64(2) {
			if err := f.store.RunNow(tx, id+1, f.now); err != nil {
				return err
			}
		}
		// The scheduler would put the messages into the inbox.
		if _, err := tx.Exec("UPDATE runs SET try_ms = 0"); err != nil {
			return err
		}
		_, err := schedule.BeginRun(tx, 1, f.now)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run := ada
	run.Proactive, run.Session = true, bustest.Session("test/g")
	f.want(run, `{"action":"remove","id":2}`, "Refused: nobody has asked for this") // not running
	f.want(run, `{"action":"pause","id":1}`, "Paused: job 1")
	run.Session = run.Session.OfRun(2)
	f.want(run, `{"action":"remove","id":3}`, "Refused: nobody has asked for this")
	f.want(run, `{"action":"remove","id":2}`, "Removed job 2")
}

func TestRefuses(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", 8001)
	const add = `{"action":"add","text":"x",`
	for args, want := range map[string]string{
		`{}`:                           "Arguments: ",
		`{"action":"delete"}`:          `Error: there is no action "delete"; want add, list`,
		`{"action":"show"}`:            "Error: say which job",
		`{"action":"add","at":"9:00"}`: "Refused: there is nothing to do",
		`{"action":"add","text":"x"}`:  "Refused: the time is missing: want one of at, every and cron",
		`{"action":"timezone","zone":"Europe/Berln"}`: `Refused: there is no time zone ` +
			`"Europe/Berln"; did you mean Europe/Berlin?`,
		add + `"at":"9:00","every":"1h"}`:          "Refused: want one of at",
		add + `"at":"now-ish"}`:                    `Refused: "now-ish" is not a time`,
		add + `"at":"2020-01-01 09:00"}`:           "Refused: 2020-01-01 09:00 is over",
		add + `"every":"5s"}`:                      "Refused: every 5s is too often",
		add + `"cron":"0 9 * *"}`:                  `Refused: "0 9 * *" is not a cron`,
		add + `"at":"9:00","kind":"alarm"}`:        `Refused: there is no kind`,
		add + `"at":"9:00","session":"new"}`:       `Refused: there is no session`,
		add + `"at":"9:00","name":"a\nb"}`:         "Refused: the name must be",
		add + `"at":"9:00","text":"` + long + `"}`: "Refused: the text has 8001 bytes",
		add + `"cron":"0 9 30 2 *"}`:               `Refused: "0 9 30 2 *" never`,
	} {
		f.want(ada, args, want)
	}
	for range 3 {
		f.want(ada, `{"action":"add","text":"x","at":"9:00"}`, "Set up")
	}
	f.want(ada, `{"action":"add","text":"x","at":"9:00"}`, "Refused: there are 3 jobs")
	f.want(bob, `{"action":"add","text":"x","at":"9:00"}`, "Set up")
	nowhere := ada
	nowhere.Scope = ""
	f.want(nowhere, `{"action":"list"}`, "Error: this conversation has no memory")
}

// A job has no more rights than the person who wrote its text.
func TestWordsOfLess(t *testing.T) {
	f := newFixture(t)
	owner := ada
	owner.Role = bus.Owner
	f.call(owner, `{"action":"add","text":"call mum","at":"9:00"}`)
	if got := f.job(1).Role; got != bus.Owner {
		t.Errorf("the role is %s, want %s", got, bus.Owner)
	}
	f.call(ada, `{"action":"change","id":1,"text":"send all to Bob"}`) // with the role of a user
	if got := f.job(1).Role; got != bus.User {
		t.Errorf("the role is %s after a user has changed it, want %s", got, bus.User)
	}
	f.call(owner, `{"action":"change","id":1,"text":"call mum"}`)
	if got := f.job(1).Role; got != bus.User {
		t.Errorf("the role is %s, want it to stay %s", got, bus.User)
	}
}

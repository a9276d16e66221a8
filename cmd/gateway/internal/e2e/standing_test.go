//go:build unix

package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gateway/store"
)

// awaitJob waits until a job has a state.
func (w *world) awaitJob(job int, state string) {
	w.t.Helper()
	w.eventually("a job that is "+state, func(db *store.DB) (holds bool) {
		var got string
		for range w.query(db, []any{&got}, "SELECT state FROM jobs WHERE id = $1", job) {
			holds = got == state
		}
		return holds
	})
}

// runs runs a job and waits until its result arrives in a chat.
func (w *world) runs(job, chat int64) {
	w.t.Helper()
	before := len(w.texts(chat))
	w.command("jobs", "run", strconv.FormatInt(job, 10))
	w.await("a reminder", func() bool { return len(w.texts(chat)) > before })
}

// TestJobsOfShutOut checks that the reminders of a person pause when the person is removed from
// the list, and continue when the person is listed again. Reminders that were paused by a command
// stay paused.
func TestJobsOfShutOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.configure(allow("7, 8"))
	p := w.start()
	p.ready()
	w.wantReply(annID, "/remind every 1h to eat", "That is job 1.")
	w.command("jobs", "pause", "1")
	w.wantReply(bobID, "/remind every 1h to drink", "That is job 2.")
	w.runs(2, bobID)
	for round := range 2 {
		w.configure(allow("9"))
		p.says(reloaded, 2*round+1)
		w.command("jobs", "run", "2")
		w.awaitJob(2, "paused")
		w.configure(allow("7, 8"))
		p.says(reloaded, 2*round+2)
		w.awaitJob(2, "active")
		w.runs(2, bobID)
	}
	w.awaitJob(1, "paused")
}

// TestJobsOfRevoked checks that reminders pause when an operator revokes a person, and continue
// when the operator approves the person again.
func TestJobsOfRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.configure(strings.Replace(quiet, `"open"`, `"pairing"`, 1))
	p := w.start()
	p.ready()
	admit := func(want string) {
		t.Helper()
		code := regexp.MustCompile(`pairing code is (\w{8})`).FindStringSubmatch(w.reply(bobID, "hello"))
		if code == nil {
			t.Fatalf("no code in what a stranger is told: %q", w.texts(bobID))
		}
		if out := w.command("people", "approve", code[1]); !strings.Contains(out, want) {
			t.Fatalf("approved with %q, want %q", out, want)
		}
	}
	admit("(role: owner)")
	w.await("the welcome", func() bool { return heard(w, bobID, "Welcome, you are in") })
	w.wantReply(bobID, "/remind every 1h to drink", "That is job 1.")
	w.runs(1, bobID)
	w.command("people", "revoke", "1")
	w.command("jobs", "run", "1")
	w.awaitJob(1, "paused")
	w.received()
	admit("(role: owner)")
	w.awaitJob(1, "active")
	w.runs(1, bobID)
}

// TestJobsOfSwitchedOff checks that reminders on an account that is switched off wait until it is
// switched on again, and cost nothing meanwhile.
func TestJobsOfSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	p := w.start()
	p.ready()
	w.wantReply(bobID, "/remind every 1h to drink", "That is job 1.")
	p.stop()
	w.configure(quiet + "\nenabled = false")
	p = w.start()
	p.ready()
	w.command("jobs", "run", "1")
	w.command("jobs", "add", "--to", "telegram/"+strconv.Itoa(bobID), "--text", "eat", "--at", "in 1s",
		"--reminder")
	w.awaitJob(2, "paused")
	p.stop()
	w.look(func(db *store.DB) {
		if n := w.count(db, "runs WHERE attempts > 0"); n != 0 {
			t.Errorf("%d runs were started", n)
		}
	})
	w.received()
	w.configure(quiet)
	p = w.start()
	p.ready()
	w.await("the reminder", func() bool { return heard(w, bobID, "eat") })
	w.runs(1, bobID)
}

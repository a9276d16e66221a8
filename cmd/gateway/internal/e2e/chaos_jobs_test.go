//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"time"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// job sets up a job that is due every second. It belongs to the person who has written last in a
// chat. It is a reminder in the conversation, or a task with a session of its own.
func (c *chaos) job(chat *chaosChat) {
	c.t.Helper()
	c.calmDisk()
	c.look(func(db *store.DB) {
		var body []byte
		for range c.query(db, []any{&body}, "SELECT body FROM inbox WHERE account = ? AND chat = ? "+
			"AND origin = 'person' ORDER BY id DESC LIMIT 1", chat.at.Account, chat.at.Chat) {
		}
		var last bus.InboundMessage
		if json.Unmarshal(body, &last) != nil || last.Person == 0 && !last.Group {
			return // nobody has written here since a /forget
		}
		now := time.Now()
		when, err := schedule.ParseEvery("1s", now, time.Second)
		if err != nil {
			c.t.Fatal(err)
		}
		j := &schedule.Job{Name: "often", Kind: schedule.Reminder, When: when, To: last.From,
			Sender: last.Sender, Person: last.Person, Role: last.Role, Group: last.Group,
			Text:  fmt.Sprintf("please talk about r%dz", len(c.reminders)),
			Scope: memory.ScopeOf(last)}
		if c.n(2) == 0 {
			j.Kind, j.OwnSession = schedule.Task, true
		}
		err = db.Tx(c.t.Context(), func(tx *store.Tx) error {
			return schedule.Store{MaxJobs: -1, MinEvery: time.Second}.Add(tx, j, now)
		})
		if err != nil {
			c.t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reminders = append(c.reminders, &chaosSaying{chat: chat, job: j.ID})
	})
}

// pauseJobs pauses the jobs that are due every second.
func (c *chaos) pauseJobs() {
	c.t.Helper()
	c.look(func(db *store.DB) {
		err := db.Tx(c.t.Context(), func(tx *store.Tx) error {
			for _, r := range c.reminders {
				if r.job == 0 || c.count(db, fmt.Sprintf(
					"jobs WHERE id = %d AND state = 'active'", r.job)) == 0 {
					continue
				}
				if err := (schedule.Store{}).Pause(tx, r.job, "by the test", time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
	})
}

// checkRuns checks that a job has come as often as it has run, and has run at most every second.
func (c *chaos) checkRuns(db *store.DB, n, times int) {
	c.t.Helper()
	r := c.reminders[n]
	done := c.count(db, fmt.Sprintf("runs WHERE job = %d AND state = 'done'", r.job))
	if times != done && !r.erased {
		c.t.Errorf("job %d of %s has come %d times in %d runs", n, r.chat.at, times, done)
	}
	odd := c.count(db, fmt.Sprintf("(SELECT due_ms - lag(due_ms) OVER (ORDER BY due_ms) AS gap "+
		"FROM runs WHERE job = %d) WHERE gap < 1000", r.job))
	if odd > 0 {
		c.t.Errorf("%d runs of job %d came early", odd, n)
	}
}

package schedule

import (
	"context"
	"errors"
	"testing"
	"time"

	"gateway/memory"
	"gateway/store"
)

// New words for a job leave its time alone, in any zone: also the one that is due right now, and
// the one that has passed.
func TestChangeOfText(t *testing.T) {
	w := newWorld(t)
	berlin := zone(t, "Europe/Berlin")
	daily, err := ParseCron("0 10 * * *", berlin) // 9:00 UTC
	w.must(err)
	at, err := ParseAt("10:00", w.now, berlin)
	w.must(err)
	again, once := w.add(job("again", daily)), w.add(job("once", at))
	w.now = w.now.Add(time.Hour)
	for _, j := range []*Job{again, once} {
		edited := w.get(j)
		edited.Text += " in other words"
		w.must(w.alter(func(tx *store.Tx, _ int64, now time.Time) error {
			return w.s.Change(tx, &edited, now)
		}, j))
	}
	w.look(0)
	w.want("again in other words", "once in other words")
	w.do(once)
	edited := w.get(once)
	edited.Text = "it is over"
	w.must(w.alter(func(tx *store.Tx, _ int64, now time.Time) error {
		return w.s.Change(tx, &edited, now)
	}, once))
}

// An attempt that was put off while the clock was years ahead does not wait for years.
func TestRetryAfterClockWasAhead(t *testing.T) {
	w := newWorld(t)
	j := w.add(job("x", w.at("in 1h")))
	right := w.now
	w.look(14 * 365 * 24 * time.Hour)
	w.fail(j)
	w.texts()
	w.now = right
	w.look(time.Minute)
	w.want()
	w.look(16 * time.Minute)
	if n := len(w.texts()); n != 1 {
		t.Errorf("the run was tried %d times after the clock was put right, want once", n)
	}
}

// Who has set up jobs before they were known is their maker also later.
func TestKnownLater(t *testing.T) {
	w := newWorld(t)
	stranger := job("x", w.every("1h"))
	stranger.Person, stranger.Scope = 0, "chat-test+7"
	w.add(stranger)
	w.tx(func(tx *store.Tx) error { return w.s.MoveScope(tx, stranger.Scope, memory.OfPerson(3)) })
	w.look(time.Hour)
	if list := w.messages(); len(list) != 1 || list[0].Person != 3 {
		t.Errorf("the run's messages are %+v, want one of person 3", list)
	}
}

// Files that can't be read keep nothing from being done but new heartbeats.
func TestBeatsUnknown(t *testing.T) {
	w := newWorld(t)
	w.opts.Heartbeat, w.opts.Open = time.Hour, func(memory.Scope) bool { return true }
	w.opts.Beats = func(context.Context) ([]Beat, error) { return nil, errors.New("no such folder") }
	w.restart()
	w.add(job("x", w.every("1h")))
	w.look(time.Hour)
	w.want("x")
}

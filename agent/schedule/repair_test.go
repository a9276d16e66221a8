package schedule

import (
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// If the message of a run is done or deleted but the run has no result, the run is tried again
// after a restart. A run is left alone if its message waits or if a turn has taken it.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string // changes the message of the run
		want   []string
	}{
		"waiting": {"UPDATE inbox SET state = 'waiting'", []string{"run:1:1"}},
		"taken":   {"UPDATE inbox SET state = 'taken', turn = 1", []string{"run:1:1"}},
		"done":    {"UPDATE inbox SET state = 'done'", []string{"run:1:1", "run:1:2"}},
		"gone":    {"DELETE FROM inbox", []string{"run:1:2"}},
	} {
		for _, begun := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.add(job("look", w.every("1h")))
				w.look(time.Hour)
				w.tx(func(tx *store.Tx) error {
					if begun {
						if _, err := BeginRun(tx, 1, w.now); err != nil {
							return err
						}
					}
					_, err := tx.Exec(test.change)
					return err
				})
				w.look(time.Minute)
				w.restart()
				w.look(time.Minute)
				w.look(time.Minute)
				var got []string
				for _, m := range w.messages() {
					got = append(got, m.ID)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("begun: %t; the messages are %q, want %q", begun, got, test.want)
				}
				w.tx(func(tx *store.Tx) error { return FinishRun(tx, 1, Answer{Text: "seen"}, w.now) })
				w.restart()
				w.look(time.Minute)
				if n := len(w.messages()); n != len(test.want) {
					t.Errorf("%d messages after the end of the run, want %d", n, len(test.want))
				}
			})
		}
	}
}

// A job that makes the code panic is paused, and its requested run fails. The scheduler goes on
// with the other jobs, also after a restart.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad, paused, retried := w.add(job("bad", w.every("1h"))), w.add(job("paused", w.every("1h"))),
		w.add(job("retried", w.every("3h")))
	good := w.add(job("good", w.every("1h")))
	w.opts.Admit = func(_ store.Queryer, j *Job) (bus.Role, string, error) {
		if j.Name == "retried" {
			panic("the role can't be read")
		}
		return j.Role, "", nil
	}
	w.restart()
	w.tx(func(tx *store.Tx) error {
		// This interval overflows to 64 ns, so the number of intervals can't be calculated.
		_, err := tx.Exec(`UPDATE jobs SET rule = '{"every":76480200929599801,"zone":"UTC"}'
			WHERE id IN ($1, $2)`, bad.ID, paused.ID)
		if err == nil {
			err = pauseRefused(tx, paused.ID, WhyRefused)
		}
		return err
	})
	w.tx(func(tx *store.Tx) error { return w.s.RunNow(tx, retried.ID, w.now) })
	w.look(0)
	if r := w.newest(retried); r.State != Failed || r.Error != whyPanic {
		t.Errorf("the run of the job is %q: %q, want a failed one", r.State, r.Error)
	}
	w.look(time.Hour)
	w.want("good")
	w.do(good)
	w.restart()
	w.look(time.Hour)
	w.want("good")
	if got := w.get(bad); got.State != Paused || got.PauseReason != whyPanic {
		t.Errorf("the job is %q: %q, want a paused one", got.State, got.PauseReason)
	}
	if got := w.get(paused); got.State != Paused {
		t.Errorf("the job that was paused is %q", got.State)
	}
}

// A job whose maker can't be read is paused when it is due. The others go on.
func TestUnreadableMaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad, good := w.add(job("bad", w.every("1h"))), w.add(job("good", w.every("1h")))
	w.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE jobs SET sender = '{' WHERE id = $1", bad.ID)
		return err
	})
	w.restart()
	w.look(time.Hour)
	w.want("good")
	w.do(good)
	if got := w.get(bad); got.State != Paused || got.PauseReason != whyUnreadable {
		t.Errorf("the job is %q: %q, want a paused one", got.State, got.PauseReason)
	}
	w.tx(func(tx *store.Tx) error { return w.s.RunNow(tx, bad.ID, w.now) })
	w.look(time.Second)
	if r := w.newest(bad); r.State != Failed || r.Attempts != 0 {
		t.Errorf("the requested run is %q after %d attempts, want a failed one", r.State, r.Attempts)
	}
}

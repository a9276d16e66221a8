package schedule

import (
	"slices"
	"testing"
	"time"

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

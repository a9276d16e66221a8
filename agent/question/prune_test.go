package question

import (
	"reflect"
	"testing"
	"time"

	"gateway/store"
)

// Prune removes old questions that are decided. A question that can still be decided, or that
// allows a call, stays.
func TestPrune(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	for i, q := range []struct {
		state   State
		expires time.Time
	}{
		{Open, now.Add(-time.Hour)}, {Granted, now.Add(-time.Hour)},
		{Answered, now.Add(-time.Hour)}, {Used, now.Add(-time.Hour)},
		{Refused, now.Add(time.Hour)}, {Void, now.Add(time.Hour)},
	} {
		f.tx(func(tx *store.Tx) error {
			asked := &Question{Turn: int64(i), Session: "s", Expires: q.expires}
			if err := Put(tx, asked); err != nil || q.state == Open {
				return err
			}
			if q.state == Used {
				if _, err := Decide(tx, asked, Granted, "", ""); err != nil {
					return err
				}
				_, err := Use(tx, asked)
				return err
			}
			_, err := Decide(tx, asked, q.state, "", "")
			return err
		})
	}
	var n int
	f.tx(func(tx *store.Tx) (err error) {
		n, _, err = Prune(tx, now, 0)
		return err
	})
	left, err := query(f.read(), "true ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	var states []State
	for _, q := range left {
		states = append(states, q.State)
	}
	if want := []State{Open, Granted, Refused, Void}; n != 2 || !reflect.DeepEqual(states, want) {
		t.Errorf("%d went and %q are left, want 2 and %q", n, states, want)
	}
}

package budget

import (
	"testing"
	"time"

	"gateway/store"
)

// Prune removes a day if the day was over at the given time in the gateway's time zone.
func TestPrune(t *testing.T) {
	zone := time.FixedZone("east", 10*3600)
	f := newFixture(t, Options{Location: zone})
	for range 3 {
		err := f.db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := f.Add(tx, Spender{Person: 1, Session: named("x/s")}, Entry{Model: "m", Calls: 1})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		f.now = f.now.Add(24 * time.Hour)
	}
	for _, test := range []struct {
		before time.Time
		want   int
	}{
		{time.Date(2026, 2, 16, 23, 0, 0, 0, zone), 0}, // still the first day
		{time.Date(2026, 2, 16, 15, 0, 0, 0, time.UTC), 4},
		{time.Date(2026, 2, 17, 1, 0, 0, 0, zone), 0},
		{time.Date(2026, 3, 1, 0, 0, 0, 0, zone), 8},
	} {
		var n int
		err := f.db.Tx(t.Context(), func(tx *store.Tx) (err error) {
			n, err = f.Prune(tx, test.before)
			return err
		})
		if n != test.want || err != nil {
			t.Errorf("Prune before %s = %d, %v; want %d", test.before, n, err, test.want)
		}
	}
}

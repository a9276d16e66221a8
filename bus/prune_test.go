package bus

import (
	"slices"
	"testing"
	"time"

	"gateway/store"
)

// states returns the states of the rows of a table, by id.
func states(t *testing.T, db *store.DB, table string) (list []string) {
	t.Helper()
	rows, err := db.Read(t.Context()).Query("SELECT state FROM " + table + " ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// Only finished rows are removed. Messages that wait and deliveries that failed stay, however
// old they are.
func TestPrune(t *testing.T) {
	db := newFixture(t).db
	now := time.Now()
	old := now.Add(-49 * time.Hour)
	put := func(tx *store.Tx, table, state string, at time.Time) {
		query := "INSERT INTO inbox (account, chat, message, state, body, received_ms) " +
			"VALUES ('tg', '1', lower(hex(randomblob(8))), $1, '{}', $2)"
		if table == "outbox" {
			query = "INSERT INTO outbox (account, chat, state, body, created_ms, updated_ms) " +
				"VALUES ('tg', '1', $1, '{}', 0, $2)"
		}
		if _, err := tx.Exec(query, state, at.UnixMilli()); err != nil {
			t.Fatal(err)
		}
	}
	in := []string{"waiting", "taken", "done", "dropped", "heard"}
	out := []string{"waiting", "sending", "sent", "dead", "dropped"}
	err := db.Tx(t.Context(), func(tx *store.Tx) error {
		for _, at := range []time.Time{old, now} {
			for i := range in {
				put(tx, "inbox", in[i], at)
				put(tx, "outbox", out[i], at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		table string
		prune func(tx *store.Tx, before time.Time, after int64) (int, int64, error)
		want  []string
	}{
		{"inbox", NewInbox().Prune, append([]string{"waiting", "taken"}, in...)},
		{"outbox", NewOutbox().Prune, append([]string{"waiting", "sending", "dead"}, out...)},
	} {
		var n int
		var next int64
		err := db.Tx(t.Context(), func(tx *store.Tx) (err error) {
			n, next, err = test.prune(tx, now.Add(-48*time.Hour), 0)
			return err
		})
		if got := states(t, db, test.table); !slices.Equal(got, test.want) || err != nil {
			t.Errorf("%s has %q, %v; want %q", test.table, got, err, test.want)
		}
		if want := 10 - len(test.want); n != want || next != 0 {
			t.Errorf("Prune of %s = %d, %d; want %d, 0", test.table, n, next, want)
		}
	}
}

package budget

import (
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/store"
)

// A turn and its sub-agents share one limit. It also holds after midnight and after a restart.
func TestTurnLimit(t *testing.T) {
	for _, unit := range []Amount{{Tokens: 10}, {Cost: 10}} {
		limit := Options{Turn: Limit{Tokens: 45, Dollars: 45}}
		f := newFixture(t, limit)
		one := Spender{Session: named("test/a"), Turn: 1}
		other := Spender{Session: named("test/a"), Turn: 2}
		spend := func() {
			f.add(one, Entry{Model: "m", Usage: llm.Usage{Input: unit.Tokens}, Cost: unit.Cost})
		}
		spend()
		f.now = f.now.Add(24 * time.Hour)
		spend()
		limit.Now = func() time.Time { return f.now }
		f.Ledger = New(&limit)
		first, second := f.reserve(one, unit), f.reserve(one, unit)
		if first == nil || second == nil || f.reserve(one, unit) != nil {
			t.Fatalf("%v: want room for two calls beside two that were written", unit)
		}
		if f.reserve(other, unit) == nil || f.reserve(Spender{Session: named("test/a")}, unit) == nil {
			t.Errorf("%v: want room for other turns, and for what is none", unit)
		}
		spend()
		first.Release()
		if f.reserve(one, unit) != nil {
			t.Errorf("%v: want no room once the first was written", unit)
		}
		second.Release()
		if h := f.reserve(one, unit); h == nil {
			t.Errorf("%v: want room for what the second has given back", unit)
		}
	}
}

// Without a limit for turns, the ledger writes no rows for them. Prune removes the rows of a turn
// with their day.
func TestTurnRows(t *testing.T) {
	f := newFixture(t, Options{})
	who := Spender{Turn: 1}
	want := func(what string, want int) {
		t.Helper()
		var n int
		err := f.read().QueryRow("SELECT count(*) FROM usage_turns").Scan(&n)
		if err != nil || n != want {
			t.Errorf("%s: %d rows, %v; want %d", what, n, err, want)
		}
	}
	prune := func(before time.Time) (all int) {
		t.Helper()
		for n := 1; n > 0; all += n {
			err := f.db.Tx(t.Context(), func(tx *store.Tx) (err error) {
				n, err = f.Prune(tx, before)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	f.add(who, tokens(1))
	want("no limit", 0)
	f.Configure(&Options{Turn: Limit{Tokens: 100}, Now: func() time.Time { return f.now }})
	warned := f.add(who, tokens(90))
	f.add(Spender{}, tokens(1))
	want("a limit", 1)
	if len(warned) != 0 {
		t.Errorf("warned of %q; nobody is told of the limit of a turn", warned)
	}
	f.now = f.now.AddDate(0, 0, 1)
	f.add(who, tokens(1))
	f.add(Spender{Turn: 2}, tokens(1))
	prune(f.now)
	want("of the day before", 2)
	if n := prune(f.now.AddDate(0, 0, 1)); n != 4 {
		t.Errorf("%d rows were pruned, want those of the day, the model and two turns", n)
	}
	want("later", 0)
}

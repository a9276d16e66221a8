package budget

import (
	"maps"
	"testing"
)

// Shares returns the larger of the shares of tokens and dollars. The share of persons and
// sessions is that of the person or session with the most usage today.
func TestShares(t *testing.T) {
	f := newFixture(t, Options{Day: Limit{Tokens: 1000, Dollars: 1}, Person: Limit{Tokens: 400},
		Session: Limit{Dollars: 2}})
	shares := func(want map[string]float64) {
		t.Helper()
		got, err := f.Shares(f.read())
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("Shares = %v, %v; want %v", got, err, want)
		}
	}
	ada := Spender{Session: named("test/a"), Person: 1}
	bob := Spender{Session: named("test/b"), Person: 2}
	shares(map[string]float64{"day": 0, "person": 0, "session": 0})
	f.add(ada, tokens(100))
	f.add(bob, tokens(300))
	shares(map[string]float64{"day": 0.4, "person": 0.75, "session": 0})
	f.add(ada, Entry{Model: "m", Calls: 1, Cost: 0.5})
	shares(map[string]float64{"day": 0.5, "person": 0.75, "session": 0.25})
	f.now = f.now.AddDate(0, 0, 1)
	shares(map[string]float64{"day": 0, "person": 0, "session": 0})
}

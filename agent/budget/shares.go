package budget

import (
	"fmt"

	"gateway/store"
)

// Shares returns the used share of each daily limit today, by kind (day, person or
// session). For persons and sessions it is the share of the largest user. It is 0 if there
// is no limit.
func (l *Ledger) Shares(q store.Queryer) (map[string]float64, error) {
	o, day := l.opts.Load(), l.day()
	shares := make(map[string]float64)
	for kind, limit := range map[string]Limit{
		kindDay: o.Day, kindPerson: o.Person, kindSession: o.Session,
	} {
		shares[kind] = 0
		if limit.zero() {
			continue
		}
		var most Amount
		err := q.QueryRow(`SELECT COALESCE(max(input + output), 0), COALESCE(max(cost), 0)
			FROM usage WHERE day = $1 AND kind = $2`, day, kind).Scan(&most.Tokens, &most.Cost)
		if err != nil {
			return nil, fmt.Errorf("budget: read: %w", err)
		}
		shares[kind] = limit.Part(most)
	}
	return shares, nil
}

// Part returns the used share of l: the greater of the shares of tokens and cost.
func (l Limit) Part(a Amount) (part float64) {
	if l.Tokens > 0 {
		part = float64(a.Tokens) / float64(l.Tokens)
	}
	if l.Dollars > 0 {
		part = max(part, a.Cost/l.Dollars)
	}
	return part
}

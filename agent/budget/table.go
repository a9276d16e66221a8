package budget

import (
	"fmt"
	"strings"

	"gateway/agent/llm"
	"gateway/store"
)

// An Entry is the usage of one model.
type Entry struct {
	Model string
	Calls int
	Usage llm.Usage
	Cost  float64 // dollars
}

// A Warning means that a daily limit is nearly reached.
type Warning struct {
	Kind   string // day, person or session
	Key    string // the person or session; "" for day
	Used   Amount
	Limit  Limit
	Passed bool // the limit is reached
}

// Add writes a usage of who. It returns a warning for each daily limit whose use has just
// reached 80 %.
func (l *Ledger) Add(tx *store.Tx, who Spender, e Entry) ([]Warning, error) {
	day := l.day()
	keys := []key{{day: day, kind: kindDay}, {day: day, kind: kindModel, key: e.Model}}
	if !who.Session.IsZero() {
		keys = append(keys, key{day: day, kind: kindSession, key: who.Session.String()})
	}
	if person := who.person(); person != "" {
		keys = append(keys, key{day: day, kind: kindPerson, key: person})
	}
	if err := l.addTurn(tx, day, who, e); err != nil {
		return nil, err
	}
	limits := l.bounded(day, who)
	if len(limits) == 0 {
		query, args := addition(keys, e)
		if _, err := tx.Exec(query, args...); err != nil {
			return nil, fmt.Errorf("budget: write: %w", err)
		}
		return nil, nil
	}
	accounts, err := add(tx, keys, e)
	if err != nil {
		return nil, err
	}
	var warnings []Warning
	for _, a := range accounts {
		limit := limits[a.key]
		near := limit.isNear(a.used)
		if near == a.told {
			continue
		}
		// A limit that was raised since the warning can be near once more.
		_, err = tx.Exec("UPDATE usage SET told = 1 - told WHERE day = $1 AND kind = $2 AND key = $3",
			a.day, a.kind, a.key.key)
		if err != nil {
			return nil, fmt.Errorf("budget: write: %w", err)
		}
		if near {
			warnings = append(warnings,
				Warning{a.kind, a.key.key, a.used, limit, limit.Exceeded(a.used)})
		}
	}
	return warnings, nil
}

// account is the usage of one key.
type account struct {
	key
	used Amount
	told bool
}

// additionRows are the parts of [addition] for each key.
var additionRows = []string{
	"($1, $7, $8, $2, $3, $4, $5, $6)", "($1, $9, $10, $2, $3, $4, $5, $6)",
	"($1, $11, $12, $2, $3, $4, $5, $6)", "($1, $13, $14, $2, $3, $4, $5, $6)",
}

// addition returns the statement that adds e to the accounts of keys, all of one day.
func addition(keys []key, e Entry) (query string, args []any) {
	args = append(make([]any, 0, 6+2*len(keys)),
		keys[0].day, e.Calls, e.Usage.Input, e.Usage.Output, e.Usage.Cached, e.Cost)
	for _, k := range keys {
		args = append(args, k.kind, k.key)
	}
	return `INSERT INTO usage (day, kind, key, calls, input, output, cached, cost)
		VALUES ` + strings.Join(additionRows[:len(keys)], ", ") + `
		ON CONFLICT (day, kind, key) DO UPDATE SET calls = usage.calls + excluded.calls,
			input = usage.input + excluded.input, output = usage.output + excluded.output,
			cached = usage.cached + excluded.cached, cost = usage.cost + excluded.cost`, args
}

// add adds e to the accounts of keys and returns them.
func add(tx *store.Tx, keys []key, e Entry) ([]account, error) {
	query, args := addition(keys, e)
	return store.Collect(tx, "budget: write", func(scan store.Scan, a *account) error {
		a.day = keys[0].day
		return scan(&a.kind, &a.key.key, &a.used.Tokens, &a.used.Cost, &a.told)
	}, query+" RETURNING kind, key, input + output, cost, told <> 0", args...)
}

// read returns the usage of an account.
func read(q store.Queryer, k key) (a Amount, err error) {
	if k.kind == kindTurn { // with its sub-agents
		err = q.QueryRow("SELECT tokens, cost FROM usage_turns WHERE turn = $1", k.turn).
			Scan(&a.Tokens, &a.Cost)
		return a, store.Wrap(store.Optional(err), "budget: read turn %d", k.turn)
	}
	err = q.QueryRow("SELECT input + output, cost FROM usage "+
		"WHERE day = $1 AND kind = $2 AND key = $3", k.day, k.kind, k.key).Scan(&a.Tokens, &a.Cost)
	return a, store.Wrap(store.Optional(err), "budget: read")
}

// A Line is the usage of one account on one day.
type Line struct {
	Day, Kind, Key string
	Entry          // without Model
}

const eraseQuery = "DELETE FROM usage WHERE kind = $1 AND key = $2 OR kind = $3 AND key = $4"

// Erase deletes the usage of a person or session. Sums that include others stay.
func (l *Ledger) Erase(tx *store.Tx, who Spender) error {
	_, err := tx.Exec(eraseQuery, kindSession, who.Session.String(), kindPerson, who.person())
	return store.Wrap(err, "budget: erase")
}

// Lines returns the usage of the accounts of a kind (day, model, person or session) since a day,
// given as 2006-01-02. The newest day comes first, and within a day the account with the greatest
// cost or usage.
func Lines(q store.Queryer, kind, since string, limit int) ([]Line, error) {
	return lines(q, `SELECT day, kind, key, calls, input, output, cached, cost FROM usage
		WHERE kind = $1 AND day >= $2 ORDER BY day DESC, cost DESC, input + output DESC, key
		LIMIT $3`, kind, since, limit)
}

// Today returns today's usage of who: one line each for the session, the person and the whole day,
// if there is any usage.
func (l *Ledger) Today(q store.Queryer, who Spender) ([]Line, error) {
	return lines(q, `SELECT day, kind, key, calls, input, output, cached, cost FROM usage
		WHERE day = $1 AND (kind = 'day' OR kind = 'session' AND key = $2
			OR kind = 'person' AND key = $3) ORDER BY kind DESC`,
		l.day(), who.Session.String(), who.person())
}

// Limits returns the limits by kind, without kinds that have no limit.
func (l *Ledger) Limits() map[string]Limit {
	o := l.opts.Load()
	limits := map[string]Limit{kindDay: o.Day, kindPerson: o.Person,
		kindSession: o.Session, kindTurn: o.Turn}
	for kind, limit := range limits {
		if limit.zero() {
			delete(limits, kind)
		}
	}
	return limits
}

func lines(q store.Queryer, query string, args ...any) ([]Line, error) {
	return store.Collect(q, "budget: read", func(scan store.Scan, n *Line) error {
		return scan(&n.Day, &n.Kind, &n.Key, &n.Calls, &n.Usage.Input, &n.Usage.Output,
			&n.Usage.Cached, &n.Cost)
	}, query, args...)
}

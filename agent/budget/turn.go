package budget

import (
	"gateway/store"
)

// addTurn adds a usage to the account of the turn that who works for. Such accounts exist
// only while turns have a limit.
func (l *Ledger) addTurn(tx *store.Tx, day string, who Spender, e Entry) error {
	if who.Turn == 0 || l.TurnLimit().zero() {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO usage_turns (turn, day, tokens, cost) VALUES ($1, $2, $3, $4)
		ON CONFLICT (turn) DO UPDATE SET day = excluded.day,
			tokens = usage_turns.tokens + excluded.tokens, cost = usage_turns.cost + excluded.cost`,
		who.Turn, day, e.Usage.Input+e.Usage.Output, e.Cost)
	return store.Wrap(err, "budget: write turn %d", who.Turn)
}

package gate

import (
	"errors"
	"time"

	"gateway/bus"
	"gateway/store"
)

// A Denied is a stranger whom an owner has denied. They get no more pairing codes.
type Denied struct {
	Account string
	Sender  string // platform's user id
	Name    string
	Since   time.Time
}

// ErrNotDenied reports that nobody with this id was denied.
var ErrNotDenied = errors.New("nobody with this account and id was turned away")

// Deny denies the stranger with the given code and returns their request. They get no code until
// [People.Undeny]. It reports [ErrNoPairing].
func (p People) Deny(tx *store.Tx, code string, now time.Time) (Pairing, error) {
	pairing, err := p.removePairing(tx, code, now)
	if err == nil {
		_, err = tx.Exec(`INSERT INTO denied (account, sender, name, since_ms)
			VALUES ($1, $2, $3, $4) ON CONFLICT (account, sender) DO NOTHING`,
			pairing.Account, pairing.Sender, pairing.Name, now.UnixMilli())
	}
	return pairing, store.Wrap(err, "gate: deny")
}

// Undeny lets a denied stranger ask again. It reports [ErrNotDenied].
func (People) Undeny(tx *store.Tx, account, sender string) error {
	n, err := tx.Exec("DELETE FROM denied WHERE account = $1 AND sender = $2", account, sender)
	if err == nil && n == 0 {
		err = ErrNotDenied
	}
	return store.Wrap(err, "gate: undeny %s", bus.Address{Account: account, Chat: sender})
}

// Denied returns the denied strangers, earliest first.
func (People) Denied(q store.Queryer) ([]Denied, error) {
	return store.Collect(q, "gate: read denied strangers", func(scan store.Scan, d *Denied) error {
		var since int64
		err := scan(&d.Account, &d.Sender, &d.Name, &since)
		d.Since = time.UnixMilli(since)
		return err
	}, "SELECT account, sender, name, since_ms FROM denied ORDER BY since_ms")
}

package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrHeld reports that another owner holds a lease.
var ErrHeld = errors.New("lease held by another process")

// ErrFenced reports a write under a lease that another owner has taken over.
var ErrFenced = errors.New("lease lost")

// A Lease is the exclusive right of one owner to work on something until a given time.
//
// The epoch increases each time the lease changes hands. Writes under a lease carry its epoch. A
// process that slept past the end of its lease therefore can't write any more.
type Lease struct {
	Name  string
	Owner string
	Epoch int64
}

// Acquire takes the lease called name until now+ttl. It reports [ErrHeld] while another owner holds
// it.
func Acquire(tx *Tx, name, owner string, now time.Time, ttl time.Duration) (Lease, error) {
	l := Lease{Name: name, Owner: owner}
	err := tx.QueryRow(`INSERT INTO leases (name, owner, epoch, until_ms) VALUES ($1, $2, 1, $3)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = leases.epoch + 1,
			until_ms = excluded.until_ms
		WHERE leases.until_ms <= $4
		RETURNING epoch`, name, owner, now.Add(ttl).UnixMilli(), now.UnixMilli()).Scan(&l.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return Lease{}, fmt.Errorf("store: lease %s: %w", name, ErrHeld)
	}
	if err != nil {
		return Lease{}, fmt.Errorf("store: lease %s: %w", name, err)
	}
	return l, nil
}

// LeaseHeld reports whether anyone holds the lease called name.
func LeaseHeld(q Queryer, name string, now time.Time) (bool, error) {
	var until int64
	err := q.QueryRow("SELECT until_ms FROM leases WHERE name = $1", name).Scan(&until)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("store: lease %s: %w", name, err)
	}
	return until > now.UnixMilli(), nil
}

// Renew extends the lease until now+ttl. It reports [ErrFenced] if another owner has taken it over.
func (l Lease) Renew(tx *Tx, now time.Time, ttl time.Duration) error {
	return l.set(tx, now.Add(ttl).UnixMilli())
}

// Release ends the lease early.
func (l Lease) Release(tx *Tx) error { return l.set(tx, 0) }

func (l Lease) set(tx *Tx, until int64) error {
	n, err := tx.Exec("UPDATE leases SET until_ms = $1 WHERE name = $2 AND owner = $3 AND epoch = $4",
		until, l.Name, l.Owner, l.Epoch)
	if err == nil && n == 0 {
		err = ErrFenced
	}
	return Wrap(err, "store: lease %s", l.Name)
}

// expireLeases ends all leases. The caller holds the lock of the database, so their owners are
// gone.
func expireLeases(tx *Tx) error {
	_, err := tx.Exec("UPDATE leases SET until_ms = 0 WHERE until_ms > 0")
	return err
}

package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrHeld reports that somebody else holds a lease.
var ErrHeld = errors.New("lease held by another process")

// ErrFenced reports a write under a lease that has moved on to somebody else.
var ErrFenced = errors.New("lease lost")

// A Lease is the right to work on something until a time, for one owner.
//
// Each time it changes hands its epoch grows. What is written under a lease
// carries the epoch, so that a process that slept past its lease is refused.
type Lease struct {
	Name  string
	Owner string
	Epoch int64
}

// Acquire takes the lease called name until now+ttl. It reports [ErrHeld] while another owner
// has it.
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

// Held reports whether somebody has the lease called name.
func Held(q Queryer, name string, now time.Time) (bool, error) {
	var until int64
	err := q.QueryRow("SELECT until_ms FROM leases WHERE name = $1", name).Scan(&until)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("store: lease %s: %w", name, err)
	}
	return until > now.UnixMilli(), nil
}

// Renew prolongs the lease until now+ttl. It reports [ErrFenced] if somebody else has taken it.
func (l Lease) Renew(tx *Tx, now time.Time, ttl time.Duration) error {
	return l.set(tx, now.Add(ttl).UnixMilli())
}

// Release gives the lease back before its time.
func (l Lease) Release(tx *Tx) error { return l.set(tx, 0) }

func (l Lease) set(tx *Tx, until int64) error {
	n, err := tx.Exec("UPDATE leases SET until_ms = $1 WHERE name = $2 AND owner = $3 AND epoch = $4",
		until, l.Name, l.Owner, l.Epoch)
	if err == nil && n == 0 {
		err = ErrFenced
	}
	if err != nil {
		return fmt.Errorf("store: lease %s: %w", l.Name, err)
	}
	return nil
}

// expireLeases ends all leases. Who holds the lock knows that their owners are gone.
func expireLeases(tx *Tx) error {
	_, err := tx.Exec("UPDATE leases SET until_ms = 0")
	return err
}

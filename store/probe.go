package store

import (
	"context"
)

// Probe writes to the database and returns once the write is on the disk. It waits as long as any
// other write would.
func (db *DB) Probe(ctx context.Context) error {
	return db.Tx(ctx, func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO leases (name, owner, epoch, until_ms)
			VALUES ('probe', '', 1, 0) ON CONFLICT (name) DO UPDATE SET epoch = leases.epoch + 1`)
		return Wrap(err, "store: probe")
	})
}

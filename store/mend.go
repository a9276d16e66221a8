package store

import (
	"context"
	"log/slog"
)

// Mend calls set, in a transaction each, for the rows that err says can't be read, so that nobody
// tries again. It returns how many there are, and err if it says of anything else.
func (db *DB) Mend(
	ctx context.Context, log *slog.Logger, err error, set func(tx *Tx, id int64) error,
) (int, error) {
	rows, ok := RowErrors(err)
	if !ok {
		return 0, err
	}
	for _, row := range rows {
		log.ErrorContext(ctx, "row set aside", "err", row)
		if err := db.Tx(ctx, func(tx *Tx) error { return set(tx, row.ID) }); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

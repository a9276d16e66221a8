package store

import (
	"context"
	"log/slog"
)

// RepairRows calls set, in a transaction each, for the rows that err reports as unreadable, so that
// they are not read again. It returns their number. If err reports anything else, RepairRows
// returns err.
func (db *DB) RepairRows(
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

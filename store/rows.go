package store

import (
	"errors"
	"fmt"
)

// A Scan reads the columns of a row like [database/sql.Rows.Scan].
type Scan = func(into ...any) error

// Each runs a query and calls read for each row. It stops at the first error and prefixes it with
// what. A [RowError] of read does not stop it: Each returns all of them, joined, at the end.
func Each(
	q Queryer, what string, read func(scan Scan) error, query string, args ...any,
) error {
	rows, err := q.Query(query, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer rows.Close()
	var bad []error
	for rows.Next() {
		err := read(rows.Scan)
		if row, ok := errors.AsType[*RowError](err); ok {
			bad = append(bad, row)
		} else if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return errors.Join(bad...)
}

// Collect runs a query and returns the values that read sets, one for each row. Its errors are
// those of [Each]. With a [RowError] it still returns the other rows.
func Collect[T any](
	q Queryer, what string, read func(scan Scan, row *T) error, query string, args ...any,
) ([]T, error) {
	var list []T
	err := Each(q, what, func(scan Scan) error {
		var row T
		err := read(scan, &row)
		if err == nil {
			list = append(list, row)
		}
		return err
	}, query, args...)
	if _, readable := RowErrors(err); err != nil && !readable {
		return nil, err
	}
	return list, err
}

package store

import (
	"errors"
	"fmt"
)

// A Scan reads the columns of a row, as [database/sql.Rows.Scan] does.
type Scan = func(into ...any) error

// Each runs a query and calls read for each row. It ends at the first error, which then begins with
// what was to be done. Only a [RowError] that read returns keeps no other row from being read: all
// of these are returned together at the end.
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

// Collect runs a query and returns what read sets for each row. Its errors are those of [Each].
// Together with a [RowError] it returns the rows that could be read.
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

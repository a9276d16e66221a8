package store

import (
	"database/sql"
	"errors"
	"fmt"
)

// Wrap prefixes err with the description of the failed operation in format and args. It returns nil
// if err is nil, so that a function can end with it.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// Optional returns err, or nil if err says that a query has found no row.
func Optional(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

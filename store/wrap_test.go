package store_test

import (
	"database/sql"
	"errors"
	"testing"

	"gateway/store"
)

func TestWrap(t *testing.T) {
	if err := store.Wrap(nil, "read %d", 1); err != nil {
		t.Errorf("Wrap(nil) = %v, want nil", err)
	}
	cause := errors.New("disk full")
	err := store.Wrap(cause, "read %d", 1)
	if !errors.Is(err, cause) || err.Error() != "read 1: disk full" {
		t.Errorf("Wrap = %v, want read 1: disk full", err)
	}
	if err := store.Optional(sql.ErrNoRows); err != nil {
		t.Errorf("Optional(ErrNoRows) = %v, want nil", err)
	}
	if err := store.Optional(cause); !errors.Is(err, cause) {
		t.Errorf("Optional = %v, want %v", err, cause)
	}
}

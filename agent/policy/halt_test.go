package policy

import (
	"path/filepath"
	"testing"
	"time"

	"gateway/store"
)

// The halt lasts until it is cleared, also in a later process. A second halt does not replace the
// author of the first one.
func TestHalt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.db")
	var db *store.DB
	reopen := func() {
		t.Helper()
		if db != nil {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(what string, want bool, fn func(tx *store.Tx) (bool, error)) {
		t.Helper()
		var got bool
		err := db.Tx(t.Context(), func(tx *store.Tx) (err error) {
			got, err = fn(tx)
			return err
		})
		if err != nil || got != want {
			t.Errorf("%s = %t, %v, want %t", what, got, err, want)
		}
	}
	set := func(by string, want bool) {
		t.Helper()
		change("Set by "+by, want, func(tx *store.Tx) (bool, error) {
			return SetHalt(tx, by, time.UnixMilli(1000))
		})
	}
	check := func(by string) {
		t.Helper()
		h, err := GetHalt(db.Read(t.Context()))
		switch {
		case err != nil:
			t.Fatal(err)
		case by == "" && h != nil:
			t.Errorf("halted is %+v, want nothing", *h)
		case by != "" && (h == nil || h.By != by || !h.Since.Equal(time.UnixMilli(1000))):
			t.Errorf("halted is %+v, want by %s", h, by)
		}
	}
	reopen()
	check("")
	change("Clear", false, ClearHalt)
	set("test/7", true)
	set("test/8", false)
	check("test/7")
	reopen()
	check("test/7")
	change("Clear", true, ClearHalt)
	check("")
	set("test/8", true)
	check("test/8")
	reopen()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := GetHalt(db.Read(t.Context())); err == nil {
		t.Error("Get of a closed database reports nothing: what can't be known must not count as no halt")
	}
}

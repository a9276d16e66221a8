package whatsapp

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// Lookup finds the hidden ids that the account knows, and creates no file.
func TestLookup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "whatsapp.db")
	want := func(number, want string) {
		t.Helper()
		if got, err := Lookup(t.Context(), path, number); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", number, got, err, want)
		}
	}
	want("+4366012345", "")
	st, err := openStore(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = st.db.ExecContext(t.Context(),
		"INSERT INTO whatsmeow_lid_map (lid, pn) VALUES ('777', '4366012345')")
	if err != nil {
		t.Fatal(err)
	}
	want("+4366012345", "777@lid")
	want("4366012345", "777@lid")
	want("+4366099999", "")
	want("1203@g.us", "")
}

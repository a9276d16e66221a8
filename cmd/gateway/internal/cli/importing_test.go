package cli

import (
	"path/filepath"
	"testing"

	"gateway/bus"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/importer"
	"gateway/memory"
	"gateway/store"
)

// Owners whom only the configuration names, and the person at the terminal, are users in the
// database. The import takes them for the owners that they are, so that their jobs run as theirs.
// The terminal counts only if nobody else is an owner.
func TestImportingOwner(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), app.Migrations(),
		&store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	people := func(variables ...string) (target importer.Target) {
		cfg, err := config.Load("", append(variables, "GATEWAY_HOME="+t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		target.DB = db
		if err := (importing{}).people(t.Context(), cfg, &target); err != nil {
			t.Error(err)
		}
		return target
	}
	add := func(person int, account, sender string) {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO people (id, name, role, created_ms)
				VALUES ($1, 'Ann', 'user', 1)`, person)
			if err == nil {
				_, err = tx.Exec(`INSERT INTO identities (account, sender, person, chat)
					VALUES ($1, $2, $3, '')`, account, sender, person)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(1, "terminal", "local")
	if got := people(); got.Scope != memory.OfPerson(1) {
		t.Errorf("with the terminal alone the memory is that of %q", got.Scope)
	}
	add(2, "telegram", "42")
	got := people("TELEGRAM_BOT_TOKEN=1:a", "GATEWAY_CHANNELS__TELEGRAM__OWNERS=42")
	if got.Scope != memory.OfPerson(2) {
		t.Errorf("with an owner on Telegram the memory is that of %q", got.Scope)
	}
	for _, p := range got.People {
		if p.Role != bus.Owner {
			t.Errorf("on %s the role is %s", p.Account, p.Role)
		}
	}
}

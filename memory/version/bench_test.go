package version

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gateway/store"
)

// BenchmarkHistory measures operations on a history of 300 versions, which some weeks would have.
func BenchmarkHistory(b *testing.B) {
	folder := b.TempDir()
	db, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "gateway.db"),
		[]store.Migration{Migration}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	tree := New(db, nil).Tree("person-1", folder, nil)
	n := 0
	change := func() Change {
		n++
		text := strings.Repeat(fmt.Sprintln("line", n), 200)
		if err := os.WriteFile(filepath.Join(folder, "MEMORY.md"), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		return Change{Author: "Dream", Reason: "more", ID: fmt.Sprint("dream:", n)}
	}
	var last Version
	for range 300 {
		v, err := tree.Commit(b.Context(), change())
		if err != nil {
			b.Fatal(err)
		}
		last = v
	}
	calls := map[string]func() error{
		"commit": func() error { _, err := tree.Commit(b.Context(), change()); return err },
		"log":    func() error { _, err := tree.Log(b.Context(), 20); return err },
		"show":   func() error { _, err := tree.Show(b.Context(), last.ID[:8]); return err },
	}
	for _, name := range []string{"commit", "log", "show"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := calls[name](); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

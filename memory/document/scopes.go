package document

import (
	"fmt"
	"io/fs"

	"gateway/memory"
)

// Scopes returns the scopes that have a folder, ordered by name.
func (d *Documents) Scopes() ([]memory.Scope, error) {
	if d.scopes == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(d.scopes.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("document: list scopes: %w", err)
	}
	var list []memory.Scope
	for _, e := range entries {
		if s, err := memory.ParseScope(e.Name()); err == nil && e.IsDir() { // skip other files
			list = append(list, s)
		}
	}
	return list, nil
}

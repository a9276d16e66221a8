package checks

import (
	"slices"
	"strings"
	"testing"
)

// TestNoTemplates checks that no file imports a package that calls methods by name. See
// TestFootprint.
func TestNoTemplates(t *testing.T) {
	for file, text := range sources(t) {
		for _, name := range []string{`"text/template"`, `"html/template"`} {
			if slices.Contains(strings.Fields(text), name) {
				t.Errorf("%s imports %s: the linker would keep every exported method", file, name)
			}
		}
	}
}

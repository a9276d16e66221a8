package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	keySpan   = regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z_]+)+)(?: = [^`]*)?`")
	tableSpan = regexp.MustCompile("`\\[([A-Za-z_.]+)\\]`")
	fileName  = regexp.MustCompile(`\.(md|json|jsonl|toml|db|sock|service|go|yml|yaml)$`)
	variable  = regexp.MustCompile(`\b` + variablePrefix + `[A-Z_]*[a-zA-Z]__[A-Z_]+[A-Z]\b`)
)

// TestDocumentsNameKeys checks that each key, table and variable that the documents name exists.
func TestDocumentsNameKeys(t *testing.T) {
	files, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no documents: %v", err)
	}
	n := 0
	for _, file := range append(files, "../../../../README.md", "../../../../CHANGELOG.md") {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, span := range keySpan.FindAllStringSubmatch(text, -1) {
			path := strings.Split(span[1], ".")
			if !slices.Contains(root.keys(), path[0]) || fileName.MatchString(span[1]) {
				continue // it is not a key
			}
			n++
			wantKey(t, file, span[0], path, false)
		}
		for _, span := range tableSpan.FindAllStringSubmatch(text, -1) {
			n++
			wantKey(t, file, span[0], strings.Split(span[1], "."), true)
		}
		for _, name := range variable.FindAllString(text, -1) {
			n++
			path := strings.Split(strings.ToLower(strings.TrimPrefix(name, variablePrefix)), "__")
			if path[0] != "section" { // a placeholder, as in GATEWAY_SECTION__KEY
				wantKey(t, file, name, path, false)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d keys were found in the documents", n)
	}
}

// wantKey checks that a key, or a table, exists.
func wantKey(t *testing.T, file, what string, path []string, table bool) {
	t.Helper()
	m := root
	for _, key := range path {
		next, err := m.child(key)
		if !m.table() || err != nil {
			t.Errorf("%s: there is no %s: %v", filepath.Base(file), what, err)
			return
		}
		m = next
	}
	if m.table() != table {
		t.Errorf("%s: %s is a table: %v, want %v", filepath.Base(file), what, m.table(), table)
	}
}

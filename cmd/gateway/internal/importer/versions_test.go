package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/memory"
	"gateway/memory/version"
	"gateway/store"
)

// log returns the versions of a scope's documents, the newest first.
func (d *fixture) log(scope memory.Scope) (list []string) {
	d.t.Helper()
	all, err := d.target.History(scope).Log(d.t.Context(), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, v := range all {
		list = append(list, v.Author+": "+v.Reason)
	}
	return list
}

// An import makes one version of the documents. Undoing this version removes nothing else.
func TestVersions(t *testing.T) {
	d := newFixture(t)
	d.write(
		"workspace/AGENTS.md", "Be kind.\n",
		"workspace/USER.md", "Anna likes tea.\n",
		"workspace/memory/MEMORY.md", "The dog is called Bello.\n",
		"workspace/memory/history.jsonl",
		`{"cursor":1,"timestamp":"2026-02-16 09:00","content":"Anna was in Rome."}`+"\n")
	mine := filepath.Join(d.here, "memory", "person-1", "SOUL.md")
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("Anna calls you Max.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.run(Nanobot, true)
	if got := append(d.log(""), d.log("person-1")...); len(got) > 0 {
		t.Errorf("a dry run made the versions %q", got)
	}
	want := map[memory.Scope][]string{
		"person-1": {
			fmt.Sprintf("gateway import: Imported from nanobot, %s: "+
				"workspace/memory/MEMORY.md, workspace/USER.md.", d.home),
			"gateway import: As it was before the import from nanobot."},
		"": {fmt.Sprintf("gateway import: Imported from nanobot, %s: workspace/AGENTS.md.", d.home)},
	}
	for range 2 {
		d.run(Nanobot, false)
		for scope, list := range want {
			if got := d.log(scope); !slices.Equal(got, list) {
				t.Errorf("the versions of %q are\n%s\nwant\n%s", scope, strings.Join(got, "\n"),
					strings.Join(list, "\n"))
			}
		}
	}
	tree := d.target.History("person-1")
	all, err := tree.Log(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tree.Undo(t.Context(), all[0].ID, version.Change{Author: "a person"}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, path := range d.tree() {
		if strings.Contains(path, "person-1"+string(filepath.Separator)) &&
			filepath.Ext(path) == ".md" {
			left = append(left, path)
		}
	}
	if !slices.Equal(left, []string{mine}) {
		t.Errorf("taking the import back left %q, want %q", left, mine)
	}
}

// If versions can't be stored, the import writes nothing, because it could not be undone.
func TestNoVersions(t *testing.T) {
	d := newFixture(t)
	d.write("workspace/memory/MEMORY.md", "The dog is called Bello.\n",
		"workspace/AGENTS.md", "Be kind.\n")
	err := d.target.DB.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("DROP TABLE version_files")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	before := d.tree()
	for _, line := range d.run(Nanobot, false) {
		if !strings.HasPrefix(line, "failed ") {
			t.Errorf("the import said %s", line)
		}
	}
	if after := d.tree(); !slices.Equal(after, before) {
		t.Errorf("there is %q, want %q", after, before)
	}
}

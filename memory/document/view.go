package document

import (
	"errors"
	"slices"
	"strings"

	"gateway/memory"
)

// A View is a turn's view of the shared documents and of those of its scope: each as it
// was when the View was made, or later. Turns that begin at the same time share one check
// of a shared document; a turn checks the documents of its scope once. A View is not safe
// for concurrent use.
type View struct {
	documents *Documents
	scope     memory.Scope
	since     uint64
	own       map[string]Doc // documents of the scope that were read
	absent    bool           // the scope has no folder and thus no documents
}

// View returns a View for a scope, which may be "".
func (d *Documents) View(s memory.Scope) *View {
	return &View{documents: d, scope: s, since: d.clock.Add(1)}
}

// Shared returns a shared document. In place of an AGENTS.md, SOUL.md or TOOLS.md that nobody has
// changed it returns the gateway's default.
func (v *View) Shared(name string) Doc {
	return orDefault(v.documents.doc(key{"", name}, v.since))
}

// Own returns a document of the scope.
func (v *View) Own(name string) Doc {
	if v.own == nil {
		v.own = make(map[string]Doc)
		v.absent = v.isAbsent()
	}
	doc, ok := v.own[name]
	switch {
	case v.absent:
		return Doc{Name: name}
	case !ok:
		doc = v.documents.doc(key{v.scope, name}, v.since)
		v.own[name] = doc
	}
	return doc
}

// Names returns the names of the Markdown files in a folder of the shared documents, in order and
// at most 32.
func (d *Documents) Names(folder string) (names []string) {
	dir, err := d.shared.Open(folder)
	if err != nil {
		return nil // most often it does not exist
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		d.opts.Logger.Warn("documents can't be listed", "folder", folder, "err", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".md") && e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxNames)]
}

// maxNames is the maximum number of documents in a folder.
const maxNames = 32

// isAbsent reports whether the scope has no folder. Most new scopes have none, and then
// this is the only access to the disk.
func (v *View) isAbsent() bool {
	if v.scope == "" {
		return true
	}
	root, folder, err := v.documents.place(key{v.scope, "."})
	if err == nil {
		_, err = root.Lstat(folder)
	}
	return isNone(err) || errors.Is(err, errNone)
}

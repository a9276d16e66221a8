package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"gateway/agent/heartbeat"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
)

// maxDocument is the maximum size of a document in bytes.
const maxDocument = 1 << 20

// A place maps a document of the imported home to a document of this gateway.
type place struct {
	from     string // path in the imported workspace
	to       string
	personal bool // belongs to Target.Scope, else to the shared documents
}

// places lists the documents of both programs. If two have the same target, the first one takes
// it.
var places = []place{
	{"memory/MEMORY.md", document.Memory, true},
	{"MEMORY.md", document.Memory, true},
	{"USER.md", document.User, true},
	{"HEARTBEAT.md", document.Heartbeat, true},
	{"AGENTS.md", document.Agents, false},
	{"AGENT.md", document.Agents, false}, // PicoClaw
	{"SOUL.md", document.Soul, false},
	{"TOOLS.md", document.Tools, false},
	{"IDENTITY.md", document.Identity, false},
}

// documents imports the documents that people and the agent have written.
type documents struct {
	*run
	begun map[memory.Scope]bool // scopes with imported documents; "" for shared ones
}

// importAll imports all documents.
func (m documents) importAll(ctx context.Context) {
	if dir := m.elsewhere(); dir != "" {
		m.failed("document", dir, skipError("the workspace with the documents is not in this home: "+
			"import that folder, too"))
	}
	for _, p := range places {
		text, err := m.read(m.in(p.from), maxDocument)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			m.failed("document", m.in(p.from), err)
			continue
		}
		if strings.TrimSpace(string(text)) == "" {
			m.failed("document", m.in(p.from), skipError("it is empty"))
			continue
		}
		scope := memory.Scope("")
		if p.personal {
			scope = m.Scope
		}
		m.importOne(ctx, m.in(p.from), scope, p.to, string(text))
	}
}

// elsewhere returns the workspace that the settings name if it is not the one in the home, or "".
// The home can be a copy, so only the names of the folders are compared.
func (m documents) elsewhere() string {
	agents, _ := m.config.table("agents") // settings of another type name no workspace
	defaults, _ := agents.table("defaults")
	dir := defaults.text("workspace")
	name := path.Base(strings.ReplaceAll(dir, `\`, "/"))
	if dir == "" || m.workspace == "." || name == m.workspace && m.isFolder(m.workspace) {
		return ""
	}
	return dir
}

// importOne imports one text. If a different document exists already, it writes NAME.imported.md.
func (m documents) importOne(
	ctx context.Context, from string, scope memory.Scope, name, text string,
) {
	shown := shownScope(scope)
	// If a document exists that differs, the second name is tried.
	for _, name := range []string{name, strings.TrimSuffix(name, ".md") + ".imported.md"} {
		now, base, err := m.Documents.Read(scope, name)
		to := shown + "/" + name
		switch {
		case err != nil:
			m.failed("document", from, err)
			return
		case now == text:
			m.report("document", from, to, Same, "")
			return
		// A document that is empty, or still the template, has nothing to lose.
		case base != "" && strings.TrimSpace(now) != "" && !m.untouched(scope, name):
			continue
		}
		if !m.dry {
			err := m.begin(ctx, scope)
			if err == nil {
				err = m.Documents.Save(scope, name, text, base)
			}
			if err != nil {
				m.failed("document", from, err)
				return
			}
		}
		note := fmt.Sprintf("%d bytes", len(text))
		if path.Base(from) == document.Heartbeat && !heartbeat.HasOpen(text) {
			note += "; the agent checks only open items (- [ ] …), and it has none: add the marks"
		}
		if strings.HasSuffix(name, ".imported.md") {
			note += "; your document stays: merge the two by hand"
		}
		m.report("document", from, to, New, note)
		return
	}
	m.report("document", from, shown+"/"+name, Kept, "a different document and an imported one "+
		"exist already")
}

// untouched reports whether a document still has the content of its template.
func (m documents) untouched(scope memory.Scope, name string) bool {
	if scope == "" {
		return m.Documents.Shared(name).Template
	}
	return m.Documents.Doc(scope, name).Template
}

// author is the author of the versions that an import writes.
const author = "gateway import"

// begin commits the present documents of a scope before the first import into it. So the version
// with the imported documents contains no other changes, and restoring it undoes no others.
func (m documents) begin(ctx context.Context, scope memory.Scope) error {
	if m.begun[scope] {
		return nil
	}
	_, err := m.History(scope).Commit(ctx, version.Change{Author: author,
		Reason: fmt.Sprintf("As it was before the import from %s.", m.kind)})
	m.begun[scope] = err == nil
	return err
}

// commit commits the imported documents of each scope.
func (m documents) commit(ctx context.Context) {
	for _, scope := range slices.Sorted(maps.Keys(m.begun)) {
		var names []string // source paths of the imported documents
		for _, i := range m.items {
			folder, name, _ := strings.Cut(i.To, "/")
			if i.State == New && document.IsVersioned(name) && folder == shownScope(scope) {
				names = append(names, i.From)
			}
		}
		if len(names) == 0 {
			continue // no document could be written
		}
		_, err := m.History(scope).Commit(ctx, version.Change{Author: author,
			Reason: fmt.Sprintf("Imported from %s, %s: %s.", m.kind, m.root.Name(),
				strings.Join(names, ", "))})
		if err != nil {
			m.failed("version", shownScope(scope), err)
		}
	}
}

// shownScope returns the name of a scope in items.
func shownScope(scope memory.Scope) string {
	if scope == "" {
		return "shared"
	}
	return string(scope)
}

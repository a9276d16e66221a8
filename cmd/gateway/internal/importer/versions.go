package importer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
)

// author is the author of the versions that an import writes.
const author = "gateway import"

// begin commits the present documents of a scope before the first import into it. So the version
// with the imported documents contains no other changes, and restoring it undoes no others.
func (m *run) begin(ctx context.Context, scope memory.Scope) error {
	if m.begun[scope] {
		return nil
	}
	_, err := m.History(scope).Commit(ctx, version.Change{Author: author,
		Reason: fmt.Sprintf("As it was before the import from %s.", m.kind)})
	m.begun[scope] = err == nil
	return err
}

// versions commits the imported documents of each scope.
func (m *run) versions(ctx context.Context) {
	for _, scope := range slices.Sorted(maps.Keys(m.begun)) {
		names := m.written(scope)
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

// written returns the source paths of the documents that were imported into a scope.
func (m *run) written(scope memory.Scope) (names []string) {
	for _, i := range m.items {
		folder, name, _ := strings.Cut(i.To, "/")
		if i.State == New && document.IsVersioned(name) && folder == shownScope(scope) {
			names = append(names, i.From)
		}
	}
	return names
}

// shownScope returns the name of a scope in items.
func shownScope(scope memory.Scope) string {
	if scope == "" {
		return "shared"
	}
	return string(scope)
}

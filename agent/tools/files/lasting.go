package files

import (
	"encoding/json"
	"slices"
	"strings"

	"gateway/agent/tool"
)

// isTrusted reports whether only people change the files of a place, or the agent with their
// approval: the memory of a scope, and the shared documents.
func (ts *trees) isTrusted(at place) bool {
	if real, err := at.resolved(); err == nil {
		at = real
	}
	return ts.memory != nil && at.tree == ts.memory || ts.shared != nil && at.tree == ts.shared
}

// changes are the arguments that name files, for all tools that change files.
type changes struct {
	editArgs
	Patch   string  `json:"patch"`
	Content *string `json:"content"`
	Source  *string `json:"source"`
}

// hasLastingEffect reports whether a call changes documents or skills, which affect later turns.
// Ticking an item of a list does not count.
func (e *editor) hasLastingEffect(c tool.Call) bool {
	var a changes
	if json.Unmarshal(c.Args, &a) != nil {
		return false // the call itself reports the error
	}
	edits, err := a.list()
	if err == nil && a.Patch == "" && a.Content == nil && a.Source == nil && marksDone(edits) {
		return false
	}
	names := []string{a.Path}
	if a.Patch != "" {
		patches, err := parsePatch(a.Patch)
		if err != nil {
			return false // the call itself reports the error
		}
		for _, p := range patches {
			names = append(names, p.path, p.moveTo)
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if at, err := e.trees.find(c, name); err == nil && e.trees.isTrusted(at) {
			return true
		}
	}
	return false
}

// marksDone reports whether edits only tick items of lists.
func marksDone(edits []edit) bool {
	return !slices.ContainsFunc(edits, func(e edit) bool {
		return e.OldText == e.NewText || strings.ReplaceAll(e.OldText, "- [ ]", "- [x]") != e.NewText
	})
}

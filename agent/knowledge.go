package agent

import (
	"slices"

	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/store"
)

// systemPrompt loads what the turn knows, and returns its system prompt.
func (t *turn) systemPrompt(q store.Queryer, summary session.Summary) (string, error) {
	s := prompt.System{
		Name: t.env.Name, Workspace: t.env.Workspace, FormatHint: t.env.FormatHint(t.Address.Account),
		Platform: platform, Tools: t.tools.Specs(), Scoped: t.Scope != "",
		Heartbeat: t.env.Jobs != nil && t.env.Jobs.HasHeartbeats(),
		Documents: t.documents(), Contact: t.unknown(),
		NotesSize: prompt.Share(t.settings.ContextBudget(), 4, recentSize),
		Session:   string(t.Session), Summary: summary,
		Account: t.Address.Account, Group: t.title, Zone: t.zone(),
	}
	if t.Scope != "" {
		pinned, notes, err := t.env.Memory.In(t.Scope).Always(q, recentEntries)
		if err != nil {
			return "", err
		}
		if s.Pinned = pinned; !t.isTask() {
			s.Notes = notes
		}
		if t.env.Documents != nil {
			s.Memory = t.env.Documents.In(t.Scope).Doc(document.Memory).Prompt()
		}
	}
	if t.env.Skills != nil {
		s.ActiveSkills, s.Skills = t.env.Skills.Prompt(string(t.Scope))
	}
	return s.Text(), nil
}

// The bounds of the recent history in a prompt.
const (
	recentEntries = 50
	recentSize    = 8000 * prompt.BytesPerToken
)

// has reports whether the turn may use a tool.
func (t *turn) has(name string) bool {
	_, err := t.tools.Lookup(name)
	return err == nil
}

// documents are those that people edit: of each the scope's own before the shared one.
func (t *turn) documents() (list []prompt.Document) {
	docs := t.env.Documents
	if docs == nil {
		return nil
	}
	add := func(title string, doc document.Doc) {
		if text := doc.Prompt(); text != "" {
			list = append(list, prompt.Document{Title: title, Text: text})
		}
	}
	for _, name := range document.PromptOrder {
		if t.Scope != "" && slices.Contains(ownDocuments, name) {
			add("memory/"+name, docs.In(t.Scope).Doc(name))
		}
		add(name, docs.Shared(name))
	}
	return list
}

// ownDocuments are those of the prompt that a scope may have itself.
var ownDocuments = []string{document.Soul, document.User}

// scopeOf returns whose memory a turn that answers m works with: in a direct chat the person's, on
// all their platforms, in a group that of the group.
func scopeOf(m bus.InboundMessage) memory.Scope { return memory.ScopeOf(m) }

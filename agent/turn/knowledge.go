package turn

import (
	"slices"

	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory/document"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// A knowledge holds the documents, skills and memory that a turn has loaded.
type knowledge struct {
	documents *document.View // nil: no documents
	persona   *document.View // of all personas; nil: the turn has none
	skills    skills.Mark    // state of the skills that the turn sees
	blank     bool           // the scope had no memories at recall
	withheld  []string       // folders of the skills that are withheld
}

// loadKnowledge loads the current documents and skills. Concurrent turns share one read of the
// disk.
func (t *turn) loadKnowledge() {
	t.loaded = new(knowledge)
	if t.env.Documents != nil {
		t.loaded.documents = t.env.Documents.View(t.Scope)
	}
	if t.settings.Here.Persona != nil && t.settings.Places.Documents != nil {
		t.loaded.persona = t.settings.Places.Documents.View("")
	}
	if t.env.Skills != nil {
		t.loaded.skills = t.env.Skills.Mark()
	}
	t.loaded.hideSkills(t)
}

// hideSkills computes which folders of skills don't exist for the tools of t.
func (k *knowledge) hideSkills(t *turn) {
	if t.env.Skills != nil {
		k.withheld = t.env.Skills.HiddenFolders(string(t.Scope), k.skills, t.settings.Here.HiddenSkills())
	}
}

// systemParts loads what the turn knows and returns the parts of its system prompt.
func (t *conversation) systemParts(
	q store.Queryer, summary session.Summary,
) (*prompt.System, error) {
	if t.loaded == nil {
		t.loadKnowledge()
	}
	contact, err := asksStyle(t.turn, q)
	if err != nil {
		return nil, err
	}
	s := &prompt.System{
		Name: t.env.Name, Workspace: t.env.Workspace, FormatHint: t.env.FormatHints[t.Address.Account],
		Tools: t.tools.Specs(), Scoped: t.Scope != "" && !t.isTask(),
		Task:      t.isTask(),
		Heartbeat: t.env.Jobs != nil && t.env.Jobs.HasHeartbeats(),
		Documents: t.documents(), Contact: contact,
		NotesSize: prompt.Share(t.settings.ContextBudget(), 4, recentSize),
		Session:   t.Session.String(), Summary: summary,
		Account: t.Address.Account, Group: t.title, Zone: t.zone(),
	}
	if t.isTask() {
		s.FormatHint = ""
	}
	if p := t.settings.Here.Persona; p != nil && p.Name != "" {
		s.Name = p.Name
	}
	if t.Scope != "" && !t.isTask() {
		if !t.loaded.blank {
			pinned, notes, err := t.env.Memory.In(t.Scope).Always(q, recentEntries)
			if err != nil {
				return nil, err
			}
			s.Pinned = prompt.Pin(pinned, prompt.Share(t.settings.ContextBudget(), 4, pinnedSize))
			s.Notes = notes
		}
		if t.loaded.documents != nil {
			s.Memory = t.loaded.documents.Own(document.Memory).Prompt()
		}
	}
	if t.env.Skills != nil {
		s.ActiveSkills, s.Skills = t.env.Skills.Prompt(string(t.Scope), t.loaded.skills,
			t.settings.Here.HiddenSkills())
	}
	return s, nil
}

// Limits of the recent history and of the pinned facts in a prompt.
const (
	recentEntries = 50
	recentSize    = 8000 * prompt.BytesPerToken
	pinnedSize    = 16_000 * prompt.BytesPerToken
)

// has reports whether the turn may use the tool with the given name.
func (t *turn) has(name string) bool {
	_, err := t.tools.Lookup(name)
	return err == nil
}

// documents returns the documents of the prompt. A scope's own document precedes the shared one,
// which the persona may replace. Other documents of the persona follow.
func (t *conversation) documents() (list []prompt.Document) {
	docs := t.loaded.documents
	if docs == nil {
		return nil
	}
	add := func(title string, doc document.Doc) {
		if text := doc.Prompt(); text != "" {
			list = append(list, prompt.Document{Title: title, Text: text})
		}
	}
	for _, name := range document.PromptOrder {
		if t.isTask() && !slices.Contains(taskDocuments, name) {
			continue
		}
		if t.Scope != "" && slices.Contains(ownDocuments, name) {
			add("memory/"+name, docs.Own(name))
		}
		if doc := t.ofPersona(name); doc.Hash != "" || doc.Problem != "" {
			add(name, doc)
		} else {
			add(name, docs.Shared(name))
		}
	}
	if t.loaded.persona != nil && !t.isTask() {
		for _, name := range t.settings.Places.Documents.Names(t.personaFolder()) {
			if !slices.Contains(document.PromptOrder, name) {
				add(name, t.ofPersona(name))
			}
		}
	}
	return list
}

// ofPersona returns a document of the persona. It is empty if the turn has no persona.
func (t *turn) ofPersona(name string) document.Doc {
	if t.loaded.persona == nil {
		return document.Doc{Name: name}
	}
	return t.loaded.persona.Shared(t.personaFolder() + "/" + name)
}

func (t *turn) personaFolder() string { return PersonasFolder + "/" + t.settings.Here.ID() }

// taskDocuments are the documents that a sub-agent also gets: its way of working, and its tools. A
// sub-agent does not need to know who the agent and the people are.
var taskDocuments = []string{document.Agents, document.Tools}

// ownDocuments are the documents that a scope may have its own version of.
var ownDocuments = []string{document.Soul, document.User}

// ContactTurns is the number of turns in which the agent may ask a person for a style. After that
// it never asks again.
const ContactTurns = 3

// asksStyle reports whether the agent should ask the person of t for a style.
func asksStyle(t *turn, q store.Queryer) (bool, error) {
	if t.Number > ContactTurns || !t.isStyleUnset() {
		return false, nil
	}
	n, err := session.TurnsIn(q, t.Scope)
	return n <= ContactTurns, err
}

// isStyleUnset reports whether the person of a direct chat has not chosen a style yet.
func (t *turn) isStyleUnset() bool {
	if t.loaded.documents == nil || t.Scope == "" || t.group || t.isTask() || t.proactive() ||
		!t.role.AtLeast(bus.User) || !t.has("write_file") {
		return false
	}
	doc := t.loaded.documents.Own(document.User)
	return doc.Hash == "" && doc.Problem == ""
}

// Package heartbeat finds out for whom a heartbeat is: the people and groups with something open in
// their HEARTBEAT.md.
package heartbeat

import (
	"context"
	"regexp"
	"strings"
	"time"

	"gateway/agent/prompt"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/store"
)

// A Finder finds the heartbeats. Its methods may be called concurrently.
type Finder struct {
	DB        *store.DB
	Inbox     *bus.Inbox
	Documents *document.Documents // nil: there are no heartbeats

	sessions session.Store
}

// maxText is how much of HEARTBEAT.md is shown, in bytes.
const maxText = 8000

// Text returns what a model sees of the HEARTBEAT.md of a scope.
func Text(docs *document.Documents, s memory.Scope) string {
	if docs == nil {
		return ""
	}
	return prompt.Clip(docs.In(s).Doc(document.Heartbeat).Text, maxText)
}

// IsOpen reports whether something is open in the HEARTBEAT.md of a scope.
func (f *Finder) IsOpen(s memory.Scope) bool {
	for line := range strings.Lines(comments.ReplaceAllString(Text(f.Documents, s), "")) {
		item, ok := strings.CutPrefix(strings.TrimRight(line, " \t\r\n"), "- [ ]")
		if ok && strings.TrimSpace(item) != "" {
			return true
		}
	}
	return false
}

// comments are the parts of a Markdown document that its readers don't see.
var comments = regexp.MustCompile(`(?s)<!--.*?(?:-->|$)`)

// List returns the people and groups with something open. A heartbeat goes to the conversation in
// which they wrote last.
func (f *Finder) List(ctx context.Context) ([]schedule.HeartbeatTarget, error) {
	if f.Documents == nil {
		return nil, nil
	}
	scopes, err := f.Documents.Scopes()
	if err != nil {
		return nil, err
	}
	var list []schedule.HeartbeatTarget
	read := f.DB.Read(ctx)
	for _, s := range scopes {
		if !f.IsOpen(s) {
			continue
		}
		m, ok, err := f.last(read, s)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue // nobody has written yet
		}
		role := m.Role
		if m.Group && role.AtLeast(bus.User) {
			role = bus.User // everybody there can write the document
		}
		list = append(list, schedule.HeartbeatTarget{Scope: s, To: m.From, Sender: m.Sender,
			Person: m.Person,
			Role:   role, Group: m.Group, Title: m.ChatTitle})
	}
	return list, nil
}

// last returns the last message that somebody wrote in a conversation of a scope.
func (f *Finder) last(
	q store.Queryer, s memory.Scope,
) (m bus.InboundMessage, ok bool, err error) {
	keys, err := f.sessions.OfScope(q, s)
	if err != nil {
		return m, false, err
	}
	var newest time.Time
	for _, key := range keys {
		if !key.IsConversation() {
			continue // of a sub-agent or a job
		}
		last, found, err := f.Inbox.Last(q, key.Conversation)
		if err != nil {
			return m, false, err
		}
		if found && last.At.After(newest) {
			m, ok, newest = last.Message, true, last.At
		}
	}
	return m, ok, nil
}

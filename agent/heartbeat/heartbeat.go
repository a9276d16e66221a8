// Package heartbeat finds the people and groups that need a heartbeat: those whose HEARTBEAT.md
// contains open items.
package heartbeat

import (
	"context"
	"strings"
	"time"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// A Finder finds the heartbeats that are due. Its methods are safe for concurrent use.
type Finder struct {
	DB        *store.DB
	Documents *document.Documents // nil: no heartbeats
}

// maxText is the longest part of HEARTBEAT.md that the model sees, in bytes.
const maxText = 8000

// Text returns the part of a scope's HEARTBEAT.md that the model sees, or "" if docs is nil. A long
// document is shown without its checked items, because nobody removes them and open ones come last.
func Text(docs *document.Documents, s memory.Scope) string {
	if docs == nil {
		return ""
	}
	text := docs.Doc(s, document.Heartbeat).Text
	if len(text) > maxText {
		text = checked().ReplaceAllString(text, "")
	}
	return plaintext.Cut(text, maxText)
}

// checked matches a checked item that is not indented, with its line end.
var checked = plaintext.Pattern(`(?m)^- \[[xX]\].*(?:\n|\z)`)

// IsOpen reports whether the HEARTBEAT.md of a scope contains an open item.
func (f *Finder) IsOpen(s memory.Scope) bool { return HasOpen(Text(f.Documents, s)) }

// HasOpen reports whether a HEARTBEAT.md contains an open item: an unchecked one ("- [ ] text").
func HasOpen(text string) bool {
	for line := range strings.Lines(comments().ReplaceAllString(text, "")) {
		item, ok := strings.CutPrefix(strings.TrimRight(line, " \t\r\n"), "- [ ]")
		if ok && strings.TrimSpace(item) != "" {
			return true
		}
	}
	return false
}

// comments matches the comments of a Markdown document. Rendered Markdown does not show them.
var comments = plaintext.Pattern(`(?s)<!--.*?(?:-->|$)`)

// List returns a heartbeat target for each person and group with open items. The target is the
// conversation with the newest message of the scope.
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
			continue // nobody has written in the scope yet
		}
		role := m.Role
		if m.Group && role.AtLeast(bus.User) {
			role = bus.User // everybody in the group can write the document
		}
		list = append(list, schedule.HeartbeatTarget{Scope: s, To: m.From, Sender: m.Sender,
			Person: m.Person,
			Role:   role, Group: m.Group, Title: m.ChatTitle})
	}
	return list, nil
}

// last returns the newest message in the conversations of a scope.
func (f *Finder) last(
	q store.Queryer, s memory.Scope,
) (m bus.InboundMessage, ok bool, err error) {
	keys, err := session.OfScope(q, s)
	if err != nil {
		return m, false, err
	}
	var newest time.Time
	for _, key := range keys {
		if !key.IsConversation() || key.Person != 0 {
			continue // a session of a sub-agent or a job, or without a chat
		}
		last, found, err := bus.LastMessage(q, key.Conversation)
		if err != nil {
			return m, false, err
		}
		if found && last.At.After(newest) {
			m, ok, newest = last.Message, true, last.At
		}
	}
	return m, ok, nil
}

package session

import "gateway/bus"

// A Key names a session. In the table of sessions its fields are columns. Other tables have its
// name, [bus.Session.String], which only people read.
type Key = bus.Session

// keyColumns are those that keyFields fills.
const keyColumns = "s.account, s.chat, s.thread, s.speaker, s.person, s.job, s.hook, s.run, " +
	"s.task"

// keyFields returns where to scan the columns of a key.
func keyFields(k *Key) []any {
	a := &k.Conversation
	return []any{&a.Account, &a.Chat, &a.Thread, &k.Speaker, &k.Person, &k.Job, &k.Hook, &k.Run,
		&k.Task}
}

// Of returns the key of the session that m belongs to.
func Of(m bus.InboundMessage) Key {
	if !m.Origin.Session.IsZero() {
		return m.Origin.Session
	}
	if !m.Origin.Conversation.IsZero() {
		return m.Origin.Conversation
	}
	return KeyOf(m.From)
}

// Earlier returns m as if its group still had the id before it moved. It returns false if the group
// has not moved, or if m names its session itself.
func Earlier(m bus.InboundMessage) (earlier bus.InboundMessage, moved bool) {
	if m.PreviousChat == "" || !m.Origin.Session.IsZero() {
		return m, false
	}
	m.From.Chat, m.PreviousChat = m.PreviousChat, ""
	if !m.Origin.Conversation.IsZero() {
		m.Origin.Conversation.Conversation = m.From
	}
	return m, true
}

// Before returns the key that the session of m had before its group moved, or the zero Key if the
// group has not moved.
func Before(m bus.InboundMessage) Key {
	if m, moved := Earlier(m); moved {
		return Of(m)
	}
	return Key{}
}

// KeyOf returns the key of the session that all people at a share.
func KeyOf(a bus.Address) Key { return Key{Conversation: a} }

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

// KeyOf returns the key of the session that all people at a share.
func KeyOf(a bus.Address) Key { return Key{Conversation: a} }

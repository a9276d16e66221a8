package bus

import (
	"cmp"
	"slices"
	"sync"

	"gateway/store"
)

// A SessionScope is the setting of an account that says which messages form one conversation.
type SessionScope string

// The scopes of sessions. PerPerson joins direct chats only, because a group must not see what a
// person writes in a direct chat.
const (
	PerChat    SessionScope = "chat"    // all messages of a chat or thread
	PerSpeaker SessionScope = "speaker" // groups: those of each member; direct chats: as PerChat
	PerPerson  SessionScope = "person"  // direct chats: all of a person; groups: as PerChat
)

// sessionScopes holds the scopes of the accounts.
type sessionScopes struct {
	mu      sync.Mutex
	of      map[string]SessionScope // by account; PerChat is left out
	mixed   bool                    // unfinished messages may belong to a session of another scope
	checked bool                    // the messages of earlier processes were checked for mixed
}

// SetScopes sets the scopes of the accounts for messages that arrive afterwards. There is one
// exception: while a message of a person is unfinished, their later messages in the same chat go to
// the same session, even if the person is linked with another one meanwhile. So the answers keep
// their order, and a reply to a question reaches the turn that has asked.
func (s *sessionScopes) SetScopes(scopes map[string]SessionScope) {
	of := make(map[string]SessionScope)
	for account, scope := range scopes {
		if scope != PerChat && scope != "" {
			of[account] = scope
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mixed = s.mixed || len(s.of) > 0
	s.of = of
}

// setSession sets the conversation of m before m is stored.
func (s *sessionScopes) setSession(tx *store.Tx, m *InboundMessage) error {
	m.Origin.Conversation = Session{}
	if !m.Origin.Session.IsZero() {
		return nil
	}
	scope, mixed, err := s.scopeOf(tx, m.From.Account)
	if err != nil || scope == "" && !mixed {
		return err
	}
	before, found, err := openBefore(tx, m)
	switch {
	case err != nil:
		return err
	case found:
		m.Origin.Conversation = before.Origin.Conversation
	case scope == PerSpeaker && m.Group && m.Origin.Kind != Hook:
		m.Origin.Conversation = Session{Conversation: m.From, Speaker: m.Sender.ID}
	case scope == PerPerson && !m.Group:
		m.Origin.Conversation.Person = m.Person
		if m.Origin.Kind == Hook { // it belongs to the person whose chat this is
			newest, _, err := LastMessage(tx, m.From)
			if err != nil {
				return err
			}
			m.Origin.Conversation.Person = newest.Message.Person
		}
	}
	return nil
}

// scopeOf returns the scope of an account, "" for PerChat. mixed reports whether unfinished
// messages may belong to a session of another scope, because the configuration has changed.
func (s *sessionScopes) scopeOf(
	tx *store.Tx, account string,
) (scope SessionScope, mixed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked { // earlier processes may have had other scopes
		for _, state := range openStates {
			list, err := readInbox(tx, "state = '"+state+"'")
			if _, bad := store.RowErrors(err); err != nil && !bad {
				return "", false, err
			}
			for _, r := range list {
				s.mixed = s.mixed || !r.Message.Origin.Conversation.IsZero()
			}
		}
		s.checked = true
	}
	return s.of[account], s.mixed, nil
}

// openStates are the states of unfinished messages, of which an index has few rows. A unary plus
// before a column keeps SQLite from the index of the chat, which has all its rows.
var openStates = []string{"waiting", "taken"}

// openBefore returns the newest unfinished message that the sender of m wrote in the same chat as
// the same person, even before that person was linked with another one. It leaves out messages in
// the conversation of a person from whom the sender was unlinked since.
func openBefore(
	q store.Queryer, m *InboundMessage,
) (before InboundMessage, found bool, err error) {
	newest := int64(0)
	ids := []int64{0, m.Person, cmp.Or(m.Origin.Former, m.Person)}
	for _, state := range openStates {
		list, err := readInbox(q, "state = '"+state+
			"' AND +account = $1 AND +chat = $2 AND thread = $3 AND person IN ($4, $5)",
			m.From.Account, m.From.Chat, m.From.Thread, ids[1], ids[2])
		if _, bad := store.RowErrors(err); err != nil && !bad {
			return before, false, err
		}
		for _, r := range list {
			own := r.Message.Origin.Session.IsZero() && r.Message.Sender.ID == m.Sender.ID &&
				slices.Contains(ids, r.Message.Origin.Conversation.Person)
			if own && r.Seq > newest {
				before, found, newest = r.Message, true, r.Seq
			}
		}
	}
	return before, found, nil
}

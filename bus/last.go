package bus

import (
	"fmt"
	"slices"

	"gateway/store"
)

// newestIn returns the id of the newest message of a chat for which a condition holds, or 0. It
// skips messages that were set aside. The parameters of the condition begin with $3. It first
// examines the newest messages only, which suffices for almost all chats: their ids are in an
// index, but not what the condition is about.
func newestIn(
	q store.Queryer, a Address, condition string, args ...any,
) (id int64, err error) {
	args = append([]any{a.Account, a.Chat}, args...)
	const of = " FROM inbox WHERE account = $1 AND chat = $2"
	for _, rows := range []string{
		" FROM inbox WHERE id IN (SELECT id" + of + " ORDER BY id DESC LIMIT 64)", of,
	} {
		err := q.QueryRow("SELECT COALESCE(max(id), 0)"+rows+
			" AND state <> 'bad' AND "+condition, args...).Scan(&id)
		if err != nil || id != 0 {
			return id, store.Wrap(err, "bus: read inbox")
		}
	}
	return 0, nil
}

// readNewest returns the message whose id [newestIn] returns, if there is one.
func readNewest(
	q store.Queryer, a Address, condition string, args ...any,
) ([]Received, error) {
	id, err := newestIn(q, a, condition, args...)
	if err != nil || id == 0 {
		return nil, err
	}
	return readInbox(q, "id = $1", id)
}

// LastMessage returns the newest message that a person wrote to the agent in a conversation. It
// returns false if the inbox no longer has one.
func LastMessage(q store.Queryer, a Address) (Received, bool, error) {
	list, err := readNewest(q, a, "thread = $3 AND state <> 'heard' AND origin = 'person'", a.Thread)
	if err != nil || len(list) == 0 {
		return Received{}, false, err
	}
	return list[0], true, nil
}

// hasID finds the message of a chat that has a platform id.
const hasID = "account = $1 AND chat = $2 AND message = $3 AND NOT (" + toPredecessor + ")"

// FindMessage returns the message of a chat that has the given platform id, in any thread. It
// returns false if the inbox does not have it.
func FindMessage(q store.Queryer, a Address, id string) (InboundMessage, bool, error) {
	list, err := readInbox(q, hasID, a.Account, a.Chat, id)
	if err != nil || len(list) == 0 {
		return InboundMessage{}, false, err
	}
	return list[0].Message, true, nil
}

// HasUnanswered reports whether the inbox has a message that m rewords, that the agent has not
// answered yet, and for which is holds.
func HasUnanswered(
	q store.Queryer, m *InboundMessage, is func(*InboundMessage) bool,
) (bool, error) {
	return hasMessage(q, is, "account = $1 AND chat = $2 AND (message = $3 OR "+
		"message BETWEEN $4 AND $5) AND state IN ('waiting', 'held', 'taken') "+
		"AND NOT ("+toPredecessor+")",
		m.From.Account, m.From.Chat, m.Edits, m.Edits+EditMark, m.Edits+EditMark+"~")
}

// HasForAgent reports whether the inbox has a message of a person for the agent that is in the chat
// of m and for which is holds. It examines the newest messages of the chat only.
func HasForAgent(q store.Queryer, m *InboundMessage, is func(*InboundMessage) bool) (bool, error) {
	return hasMessage(q, is, `state <> 'heard' AND origin = 'person' AND id IN (SELECT id FROM inbox
		WHERE account = $1 AND chat = $2 ORDER BY id DESC LIMIT 64)`, m.From.Account, m.From.Chat)
}

// hasMessage reports whether is holds for one of the messages for which an SQL condition holds. It
// skips messages that can't be read.
func hasMessage(
	q store.Queryer, is func(*InboundMessage) bool, condition string, args ...any,
) (bool, error) {
	list, err := readInbox(q, condition, args...)
	if _, bad := store.RowErrors(err); bad {
		err = nil
	}
	return slices.ContainsFunc(list, func(r Received) bool { return is(&r.Message) }), err
}

// Has reports whether the inbox has the message of a chat with the platform's id.
func Has(q store.Queryer, a Address, id string) (has bool, err error) {
	err = q.QueryRow("SELECT count(*) > 0 FROM inbox WHERE "+hasID, a.Account, a.Chat, id).Scan(&has)
	return has, store.Wrap(err, "bus: look for message %s of %s", id, a)
}

// GroupTitle reports whether a chat is a group, and its title if so. It uses the newest message of
// the chat that the inbox still has, in any thread.
func GroupTitle(q store.Queryer, a Address) (group bool, title string, err error) {
	list, err := readNewest(q, a, "origin = 'person'")
	if err != nil || len(list) == 0 {
		return false, "", err
	}
	return list[0].Message.Group, list[0].Message.ChatTitle, nil
}

// DirectSender returns who has written the newest message of a direct chat, in any thread. It
// returns the zero Sender if the inbox no longer has a message that can be read.
func DirectSender(q store.Queryer, a Address) (Sender, error) {
	list, err := readNewest(q, a, "origin = 'person' AND NOT shared")
	if _, readable := store.RowErrors(err); !readable {
		return Sender{}, err
	}
	if len(list) == 0 {
		return Sender{}, nil
	}
	return list[0].Message.Sender, nil
}

// IsMessageOpen reports whether the message with the given ID, of any conversation, is waiting or
// claimed.
func IsMessageOpen(q store.Queryer, id string) (bool, error) {
	for _, query := range []string{ // each condition has an index with few rows
		"SELECT count(*) FROM inbox WHERE state = 'waiting' AND message = $1",
		"SELECT count(*) FROM inbox WHERE state = 'taken' AND message = $1",
	} {
		var n int
		if err := q.QueryRow(query, id).Scan(&n); err != nil {
			return false, fmt.Errorf("bus: read inbox: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

// HasUnfinished reports whether a chat, in any thread, has an unanswered message or an unsent
// answer.
func HasUnfinished(q store.Queryer, a Address) (bool, error) {
	return anyRow(q, a, waitingThere, takenThere, unsentThere)
}

// IsUnsent reports whether a message to a chat, in any thread, is still to be sent.
func IsUnsent(q store.Queryer, a Address) (bool, error) { return anyRow(q, a, unsentThere) }

// Unfinished rows of a chat, for [anyRow]. The unary plus has the reason given at [openStates]. The
// outbox has an index of the unsent deliveries by chat.
const (
	waitingThere = "inbox WHERE state = 'waiting' AND +account = $1 AND +chat = $2"
	takenThere   = "inbox WHERE state = 'taken' AND +account = $1 AND +chat = $2"
	unsentThere  = "outbox WHERE state IN ('waiting', 'sending') AND account = $1 AND chat = $2"
)

// anyRow reports whether any of the tables has a row of the chat. Each table comes with a condition
// for which there is an index with few rows.
func anyRow(q store.Queryer, a Address, tables ...string) (is bool, err error) {
	for _, rows := range tables {
		err := q.QueryRow("SELECT EXISTS (SELECT 1 FROM "+rows+")", a.Account, a.Chat).Scan(&is)
		if err != nil {
			return false, fmt.Errorf("bus: read %s: %w", rows, err)
		}
		if is {
			return true, nil
		}
	}
	return false, nil
}

package bus

import (
	"encoding/json"
	"fmt"
	"time"

	"gateway/store"
)

// These constants bound the messages of a group that are kept as ambient context. MaxAmbient is
// repeated in the SQL statements as a literal: with a parameter as its LIMIT or OFFSET, SQLite
// would compile the statement again at each call.
const (
	MaxAmbient = 50             // messages per conversation
	AmbientAge = 24 * time.Hour // of the oldest message
)

// PutAmbient stores m, a group message that is not for the agent, as context for the next message
// of its group that is for the agent. It deletes ambient messages of the group that are older than
// AmbientAge, and the oldest ones beyond MaxAmbient. It reports whether m is new.
func (in *Inbox) PutAmbient(tx *store.Tx, m InboundMessage, now time.Time) (bool, error) {
	added, err := insert(tx, &in.fresh, m, "heard", now)
	if err != nil || !added {
		return false, err
	}
	return true, pruneAmbient(tx, m.From, now)
}

func pruneAmbient(tx *store.Tx, at Address, now time.Time) error {
	_, err := tx.Exec(`DELETE FROM inbox
		WHERE account = $1 AND chat = $2 AND thread = $3 AND state = 'heard' AND (received_ms < $4
			OR id <= (SELECT id FROM inbox
				WHERE account = $1 AND chat = $2 AND thread = $3 AND state = 'heard'
				ORDER BY id DESC LIMIT 1 OFFSET 50))`,
		at.Account, at.Chat, at.Thread, now.Add(-AmbientAge).UnixMilli())
	return store.Wrap(err, "bus: store ambient message of %s", at)
}

// StoreTranscript stores r, whose voice message was transcribed. If r is still [Overheard], it is
// not for the agent and becomes an ambient message. StoreTranscript changes nothing and reports
// false if r is no longer waiting.
func StoreTranscript(tx *store.Tx, r Received, now time.Time) (bool, error) {
	state := "waiting"
	if r.Message.VoiceState == Overheard {
		state = "heard"
		r.Message.VoiceState = NotCommand
	}
	ok, err := replace(tx, r, state)
	if err != nil || !ok || state == "waiting" {
		return ok, err
	}
	return true, pruneAmbient(tx, r.Message.From, now)
}

// StoreSender stores r after its sender has changed to another person or to a stranger. If r is no
// longer waiting, it changes nothing and returns false.
func StoreSender(tx *store.Tx, r Received) (bool, error) { return replace(tx, r, "waiting") }

// replace replaces a waiting message and its state.
func replace(tx *store.Tx, r Received, state string) (bool, error) {
	body, err := json.Marshal(r.Message)
	if err != nil {
		return false, fmt.Errorf("bus: store message of %s in inbox: %w", r.Message.From, err)
	}
	return setInbox(tx, "UPDATE inbox SET state = $2, body = $3, person = $4 "+
		"WHERE id = $1 AND state = 'waiting'", r.Seq, state, string(body), r.Message.Person)
}

// Ambient returns the messages of a conversation that were not for the agent and came before the
// message with the given Seq, oldest first.
func (in *Inbox) Ambient(
	q store.Queryer, at Address, before int64, now time.Time,
) ([]Received, error) {
	return readInbox(q, `account = $1 AND chat = $2 AND thread = $3 AND state = 'heard' AND id < $4
			AND received_ms >= $5 ORDER BY id`,
		at.Account, at.Chat, at.Thread, before, now.Add(-AmbientAge).UnixMilli())
}

const ambientOf = "account = $1 AND chat = $2 AND thread = $3 AND state = 'heard' ORDER BY id"

// TakeAmbient deletes and returns the ambient messages of a conversation for which is holds, oldest
// first.
func TakeAmbient(
	tx *store.Tx, at Address, is func(*InboundMessage) bool,
) (taken []InboundMessage, err error) {
	list, err := readInbox(tx, ambientOf, at.Account, at.Chat, at.Thread)
	if _, bad := store.RowErrors(err); err != nil && !bad {
		return nil, err
	}
	for i := range list {
		if is(&list[i].Message) {
			taken = append(taken, list[i].Message)
			if err := remove(tx, list[i].Seq); err != nil {
				return nil, err
			}
		}
	}
	return taken, nil
}

// remove deletes a message, whose platform's id may then be stored again.
func remove(tx *store.Tx, seq int64) error {
	_, err := setInbox(tx, "DELETE FROM inbox WHERE id = $1", seq)
	return err
}

// ForgetAmbient deletes the messages that [Inbox.Ambient] returns for the same arguments.
func (in *Inbox) ForgetAmbient(tx *store.Tx, at Address, before int64) error {
	_, err := tx.Exec(`DELETE FROM inbox WHERE account = $1 AND chat = $2 AND thread = $3
		AND state = 'heard' AND id < $4`, at.Account, at.Chat, at.Thread, before)
	return store.Wrap(err, "bus: delete the ambient messages of %s", at)
}

// PutHeld stores m and reports whether it is new, like [Inbox.Put]. But m is not handed out before
// [TakeHeld] and Put: an earlier message of its sender is still to come.
func (in *Inbox) PutHeld(tx *store.Tx, m InboundMessage, now time.Time) (bool, error) {
	return insert(tx, &in.fresh, m, "held", now)
}

// TakeHeld passes the held messages of an account to pick, oldest first, and deletes and returns
// those that pick returns, with Origin.Held set. The caller must put them. If nothing else fails,
// its error holds a [store.RowError] for each message that can't be read.
func TakeHeld(
	tx *store.Tx, account string, pick func(held []InboundMessage) []InboundMessage,
) ([]InboundMessage, error) {
	list, unreadable := readInbox(tx, heldOf, account)
	if _, ok := store.RowErrors(unreadable); !ok {
		return nil, unreadable
	}
	held := make([]InboundMessage, len(list))
	for i, r := range list {
		held[i] = r.Message
		held[i].Origin.Held = r.Seq
	}
	picked := pick(held)
	for i := range picked {
		if err := remove(tx, picked[i].Origin.Held); err != nil {
			return nil, err
		}
	}
	return picked, unreadable
}

const heldOf = "account = $1 AND state = 'held' ORDER BY id"

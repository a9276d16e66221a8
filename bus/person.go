package bus

import "gateway/store"

// DirectChats returns the direct chats in which a person has written, as far as the inbox still has
// their messages.
func DirectChats(q store.Queryer, person int64) ([]Address, error) {
	return chatsOf(q, person, false)
}

// Groups returns the groups in which a person has written, likewise.
func Groups(q store.Queryer, person int64) ([]Address, error) { return chatsOf(q, person, true) }

func chatsOf(q store.Queryer, person int64, shared bool) ([]Address, error) {
	return store.Collect(q, "bus: read inbox", func(scan store.Scan, a *Address) error {
		return scan(&a.Account, &a.Chat)
	}, `SELECT DISTINCT account, chat FROM inbox
		WHERE person = $1 AND person <> 0 AND shared = $2 ORDER BY account, chat`, person, shared)
}

// ChatsOf returns the direct chats in which the newest message is a person's, as far as the inbox
// still has their messages. A chat in which somebody else has written since is not theirs.
func ChatsOf(q store.Queryer, person int64) (list []Address, err error) {
	chats, err := DirectChats(q, person)
	for i := 0; i < len(chats) && err == nil; i++ {
		var id, who int64
		id, err = newestIn(q, chats[i], "origin = 'person'")
		if err == nil {
			err = q.QueryRow("SELECT person FROM inbox WHERE id = $1", id).Scan(&who)
			err = store.Wrap(store.Optional(err), "bus: read inbox")
		}
		if who == person {
			list = append(list, chats[i])
		}
	}
	return list, err
}

// Conditions of messages of the person $1 on the account $3, in groups or in direct chats.
const (
	onAccount = "person = $1 AND person <> 0 AND account = $3 AND shared = $4"
	inChat    = onAccount + " AND chat = $5"
)

const setPerson = "UPDATE inbox SET person = $2, body = json_set(body, '$.person', $2) WHERE "

// MovePerson records that another person has written the messages of a person in a direct chat with
// all its threads. Waiting messages stay as they are, because the dispatcher has copies of them: it
// finds out by itself who their sender is now.
func MovePerson(tx *store.Tx, a Address, from, to int64) error {
	_, err := setInbox(tx, setPerson+inChat+" AND state <> 'waiting' AND json_valid(body)",
		from, to, a.Account, false, a.Chat)
	return err
}

// moveMember is for messages after the id $6. The sender is $5.
const moveMember = setPerson + onAccount + " AND id > $6 AND state <> 'waiting' " +
	"AND json_valid(body) AND json_extract(body, '$.sender.id') = $5"

// MoveMember records the same for the messages after an id that a sender wrote in the groups of an
// account.
func MoveMember(tx *store.Tx, account, sender string, from, to, after int64) error {
	_, err := setInbox(tx, moveMember, from, to, account, true, sender, after)
	return err
}

// FinishedUpTo returns an id up to which no message of a person in the groups of an account is
// waiting or claimed.
func FinishedUpTo(q store.Queryer, account string, person int64) (id int64, err error) {
	const open = "SELECT id FROM inbox WHERE account = $1 AND person = $2 AND shared AND state = "
	err = q.QueryRow("SELECT COALESCE(min(id) - 1, (SELECT max(id) FROM inbox), 0) FROM ("+
		open+"'waiting' UNION ALL "+open+"'taken') AS open", account, person).Scan(&id)
	return id, store.Wrap(err, "bus: read inbox")
}

// NewestOf returns the id of the newest message that a person has written in a direct chat, or 0.
func NewestOf(q store.Queryer, person int64, a Address) (int64, error) {
	return newestIn(q, a, "origin = 'person' AND person = $3 AND NOT shared", person)
}

// olderPage is the next page of a person's messages in a chat after the id $6 up to the id $7.
const olderPage = `SELECT CASE WHEN count(*) < 250 THEN $7 ELSE max(id) END FROM (
	SELECT id FROM inbox WHERE ` + inChat + ` AND id > $6 AND id <= $7 ORDER BY id LIMIT 250) AS page`

// moveOlder moves the messages of a page. If $8 is not "", it moves only those of a sender.
const moveOlder = setPerson + inChat + ` AND id > $6 AND id <= $7 AND json_valid(body)
	AND state NOT IN ('waiting', 'taken') AND ($8 = '' OR json_extract(body, '$.sender.id') = $8)`

// MoveOlder is like [MovePerson], or like [MoveMember] for one group if sender is not "", for
// finished messages up to the id upTo. Each call examines a bounded number of messages after the
// given id and returns the id for the next call, or upTo when it is done.
func MoveOlder(
	tx *store.Tx, a Address, sender string, from, to, after, upTo int64,
) (next int64, err error) {
	args := []any{from, to, a.Account, sender != "", a.Chat, after}
	if err = tx.QueryRow(olderPage, append(args, upTo)...).Scan(&next); err == nil {
		_, err = tx.Exec(moveOlder, append(args, next, sender)...)
	}
	return next, store.Wrap(err, "bus: move messages of %s", a)
}

package session

import (
	"strings"
	"time"

	"gateway/store"
)

// A Choice is a setting that people can choose for a conversation: the name of its column.
type Choice string

// The choices. The value "" of each means "as configured".
const (
	QueueMode Choice = "queue_mode" // what happens to a message that arrives during an answer
	Model     Choice = "model"      // which model answers
	Effort    Choice = "effort"     // how long the model thinks
	Voice     Choice = "voice"      // when answers are spoken, too
	Activity  Choice = "activity"   // how much of the agent's work is shown
)

var allChoices = []Choice{QueueMode, Model, Effort, Voice, Activity}

// Choices are the values that were chosen for a conversation, without those that are "".
type Choices map[Choice]string

// SetChoice stores a choice for a session, which need not have had a turn yet.
func SetChoice(tx *store.Tx, key Key, what Choice, value string, now time.Time) error {
	a, column := key.Conversation, string(what)
	_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, speaker, person, title,
			`+column+`, created_ms, updated_ms, began_ms)
		VALUES ($1, $2, $3, $4, $5, $6, '', $7, $8, $8, $8)
		ON CONFLICT (key) DO UPDATE SET `+column+` = excluded.`+column,
		key.String(), a.Account, a.Chat, a.Thread, key.Speaker, key.Person, value, now.UnixMilli())
	return store.Wrap(err, "session: %s of %s", column, key)
}

// choiceColumns returns each, joined by separator, with the columns of the choices in place of "?".
func choiceColumns(each, separator string) string {
	var list []string
	for _, c := range allChoices {
		list = append(list, strings.ReplaceAll(each, "?", string(c)))
	}
	return strings.Join(list, separator)
}

// MoveChoices copies the choices of the conversation from to the conversation to. Existing choices
// of to remain.
func MoveChoices(tx *store.Tx, from, to Key, now time.Time) error {
	a, columns := to.Conversation, choiceColumns("?", ", ")
	_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, speaker, title, `+columns+`,
			created_ms, updated_ms, began_ms)
		SELECT $1, $2, $3, $4, $5, '', `+columns+`, $6, $6, $6 FROM sessions WHERE key = $7
		ON CONFLICT (key) DO UPDATE SET `+choiceColumns(
		"? = CASE WHEN sessions.? = '' THEN excluded.? ELSE sessions.? END", ", "),
		to.String(), a.Account, a.Chat, a.Thread, to.Speaker, now.UnixMilli(), from.String())
	if err == nil {
		_, err = tx.Exec("UPDATE sessions SET "+choiceColumns("? = ''", ", ")+" WHERE key = $1",
			from.String())
	}
	return store.Wrap(err, "session: move the choices of %s", from)
}

// Chosen returns the choices of all sessions that have some. The condition is that of the index
// sessions_chosen, so a choice that is added to allChoices needs a new index.
func Chosen(q store.Queryer) (map[Key]Choices, error) {
	chosen := make(map[Key]Choices)
	err := store.Each(q, "session: read choices", func(scan store.Scan) error {
		var key Key
		values, into := make([]string, len(allChoices)), keyFields(&key)
		for i := range values {
			into = append(into, &values[i])
		}
		if err := scan(into...); err != nil {
			return err
		}
		own := make(Choices)
		for i, value := range values {
			if value != "" {
				own[allChoices[i]] = value
			}
		}
		chosen[key] = own
		return nil
	}, "SELECT "+keyColumns+", "+choiceColumns("?", ", ")+" FROM sessions s WHERE "+
		choiceColumns("? <> ''", " OR "))
	return chosen, err
}

package session

import (
	"time"

	"gateway/agent/llm"
	"gateway/store"
)

// SetQueueMode stores the queue mode of a session; "" means as configured.
func (Store) SetQueueMode(tx *store.Tx, key Key, mode string, now time.Time) error {
	return choose(tx, key, "queue_mode", mode, now)
}

// SetModel stores the name of the model that answers in a session; "" means as configured.
func (Store) SetModel(tx *store.Tx, key Key, model string, now time.Time) error {
	return choose(tx, key, "model", model, now)
}

// SetEffort stores how long the model thinks in a session; "" means as configured.
func (Store) SetEffort(tx *store.Tx, key Key, effort llm.Effort, now time.Time) error {
	return choose(tx, key, "effort", string(effort), now)
}

// SetVoice stores when answers in a session are spoken, too; "" is as configured.
func SetVoice(tx *store.Tx, key Key, when string, now time.Time) error {
	return choose(tx, key, "voice", when, now)
}

// SetActivity stores how much of the agent's work a session shows; "" is as configured.
func SetActivity(tx *store.Tx, key Key, mode string, now time.Time) error {
	return choose(tx, key, "activity", mode, now)
}

// choose stores a choice for a session, which need not have had a turn yet. column becomes part of
// the statement.
func choose(tx *store.Tx, key Key, column, value string, now time.Time) error {
	a := key.Conversation
	_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, speaker, person, title,
			`+column+`, created_ms, updated_ms, began_ms)
		VALUES ($1, $2, $3, $4, $5, $6, '', $7, $8, $8, $8)
		ON CONFLICT (key) DO UPDATE SET `+column+` = excluded.`+column,
		key.String(), a.Account, a.Chat, a.Thread, key.Speaker, key.Person, value, now.UnixMilli())
	return store.Wrap(err, "session: %s of %s", column, key)
}

// MoveChoices copies the choices of the conversation from to the conversation to. Existing choices
// of to remain.
func (Store) MoveChoices(tx *store.Tx, from, to Key, now time.Time) error {
	a := to.Conversation
	_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, speaker, title, queue_mode,
			model, effort, voice, activity, created_ms, updated_ms, began_ms)
		SELECT $1, $2, $3, $4, $5, '', queue_mode, model, effort, voice, activity, $6, $6, $6
			FROM sessions
			WHERE key = $7
		ON CONFLICT (key) DO UPDATE SET
			queue_mode = CASE WHEN sessions.queue_mode = '' THEN excluded.queue_mode
				ELSE sessions.queue_mode END,
			model = CASE WHEN sessions.model = '' THEN excluded.model ELSE sessions.model END,
			effort = CASE WHEN sessions.effort = '' THEN excluded.effort
				ELSE sessions.effort END,
			voice = CASE WHEN sessions.voice = '' THEN excluded.voice ELSE sessions.voice END,
			activity = CASE WHEN sessions.activity = '' THEN excluded.activity
				ELSE sessions.activity END`,
		to.String(), a.Account, a.Chat, a.Thread, to.Speaker, now.UnixMilli(), from.String())
	if err == nil {
		_, err = tx.Exec(`UPDATE sessions SET queue_mode = '', model = '', effort = '', voice = '',
			activity = '' WHERE key = $1`, from.String())
	}
	return store.Wrap(err, "session: move the choices of %s", from)
}

// An Info describes a session.
type Info struct {
	Key       Key
	Title     string
	QueueMode string // "": as configured
	Usage     llm.Usage
	Cost      float64 // dollars
	Context   int     // tokens in the newest prompt; 0 if unknown
	Messages  int     // number of messages in the whole transcript
	Created   time.Time
	Updated   time.Time
}

var infoQuery = `SELECT ` + keyColumns + `, title, queue_mode, input, output, cached, cost,
	context, created_ms,
	updated_ms, (SELECT count(*) FROM messages WHERE session = key AND id > ` + erasedOf("key") +
	`) FROM sessions s `

// Info returns the description of a session. If the session does not exist, only the key is set.
func (Store) Info(q store.Queryer, key Key) (Info, error) {
	list, err := infos(q, infoQuery+"WHERE key = $1", key.String())
	if err != nil || len(list) == 0 {
		return Info{Key: key}, err
	}
	return list[0], nil
}

// List returns up to limit sessions, most recently used first.
func (Store) List(q store.Queryer, limit int) ([]Info, error) {
	return infos(q, infoQuery+"ORDER BY updated_ms DESC LIMIT $1", limit)
}

func infos(q store.Queryer, query string, args ...any) ([]Info, error) {
	return store.Collect(q, "session: read sessions", func(scan store.Scan, i *Info) error {
		var created, updated int64
		err := scan(append(keyFields(&i.Key), &i.Title, &i.QueueMode, &i.Usage.Input,
			&i.Usage.Output, &i.Usage.Cached, &i.Cost, &i.Context, &created, &updated, &i.Messages)...)
		i.Created, i.Updated = time.UnixMilli(created), time.UnixMilli(updated)
		return err
	}, query, args...)
}

// Chosen holds the sessions with a queue mode, a model, an effort, a voice or an activity of their
// own.
type Chosen struct{ Modes, Models, Efforts, Voices, Activities map[Key]string }

// Chosen returns the choices of all sessions.
func (Store) Chosen(q store.Queryer) (Chosen, error) {
	c := Chosen{make(map[Key]string), make(map[Key]string), make(map[Key]string),
		make(map[Key]string), make(map[Key]string)}
	err := store.Each(q, "session: read choices", func(scan store.Scan) error {
		var key Key
		var mode, model, effort, voice, activity string
		if err := scan(append(keyFields(&key), &mode, &model, &effort, &voice,
			&activity)...); err != nil {
			return err
		}
		for value, into := range map[*string]map[Key]string{
			&mode: c.Modes, &model: c.Models, &effort: c.Efforts, &voice: c.Voices,
			&activity: c.Activities,
		} {
			if *value != "" {
				into[key] = *value
			}
		}
		return nil
	}, `SELECT `+keyColumns+`, queue_mode, model, effort, voice, activity FROM sessions s
		WHERE queue_mode <> '' OR model <> '' OR effort <> '' OR voice <> '' OR activity <> ''`)
	return c, err
}

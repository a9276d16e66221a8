package session

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// ErrEnded reports a write of a turn that was stopped or taken over.
var ErrEnded = errors.New("the turn has ended")

// A State is the state of a turn.
type State string

// The states of a turn.
const (
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"  // and the chat was told
	Stopped State = "stopped" // by a person
)

// A Turn is the work on one answer.
type Turn struct {
	ID       int64
	Session  Key
	Address  bus.Address
	ReplyTo  string  // platform's id of the message to quote
	Epoch    int64   // of the lease under which the turn runs
	Attempts int     // how often it was begun or resumed
	Handed   int     // how often a stopping process left it to the next one
	Answers  int     // number of answers that an older gateway sent in its course
	Tokens   int     // tokens used, in all attempts
	Cost     float64 // of those tokens, in dollars
	Number   int     // its number in the session, from 1; set by [BeginTurn]
	First    bool    // whether Number is 1; set by [BeginTurn]

	Scope memory.Scope // scope of the memory that it uses; "": none
	Moved memory.Scope // scope of the session before this turn; "": the same

	Persona string // ID of the persona with which it began; "": none
}

// BeginTurn starts a turn under a lease with its first messages. It sets t.ID, t.Epoch, t.Number,
// t.First and t.Moved. If t.Moved is set, the caller must move the rest of the session's data in
// the same transaction. BeginTurn returns what it has added to the transcript.
func BeginTurn(tx *store.Tx, t *Turn, title string, lease store.Lease, now time.Time,
	first ...llm.Message,
) ([]Entry, error) {
	address, err := json.Marshal(t.Address)
	if err != nil {
		return nil, fmt.Errorf("session: begin turn of %s: %w", t.Session, err)
	}
	var scope memory.Scope
	var tidy bool
	key := t.Session
	err = tx.QueryRow(`INSERT INTO sessions
			(key, account, chat, thread, title, scope, turns, created_ms, updated_ms, began_ms, job,
			hook, run, task, speaker, person)
		VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (key) DO UPDATE SET title = excluded.title, turns = sessions.turns + 1,
			updated_ms = excluded.updated_ms
		RETURNING turns, scope, tidy`, key.String(), key.Conversation.Account, key.Conversation.Chat,
		key.Conversation.Thread, title, string(t.Scope), now.UnixMilli(), key.Job, key.Hook, key.Run,
		key.Task, key.Speaker, key.Person).Scan(&t.Number, &scope, &tidy)
	if err == nil && tidy { // otherwise the index stays as it is
		_, err = tx.Exec("UPDATE sessions SET tidy = 0 WHERE key = $1", key.String())
	}
	if err != nil {
		return nil, fmt.Errorf("session: begin turn of %s: %w", t.Session, err)
	}
	if scope == t.Scope && key.Person != 0 && key.IsConversation() {
		if scope, err = visit(tx, t, now); err != nil {
			return nil, err
		}
	}
	switch t.Moved = ""; {
	case scope == t.Scope:
	case scope == "":
		_, err = tx.Exec("UPDATE sessions SET scope = $1 WHERE key = $2", string(t.Scope),
			t.Session.String())
		if err != nil {
			return nil, fmt.Errorf("session: begin turn of %s: %w", t.Session, err)
		}
	default:
		t.Moved = scope
	}
	t.Epoch, t.Attempts, t.First = lease.Epoch, 1, t.Number == 1
	err = tx.QueryRow(`INSERT INTO turns
			(session, state, owner, epoch, reply_to, address, created_ms, updated_ms, persona)
		VALUES ($1, 'running', $2, $3, $4, $5, $6, $6, $7) RETURNING id`,
		t.Session.String(), lease.Owner, lease.Epoch, t.ReplyTo, string(address), now.UnixMilli(),
		t.Persona,
	).Scan(&t.ID)
	if err != nil {
		return nil, fmt.Errorf("session: begin turn of %s: %w", t.Session, err)
	}
	return insert(tx, t, now, first)
}

// Append adds messages to the transcript of t. It reports [ErrEnded] if t has ended.
func Append(tx *store.Tx, t *Turn, now time.Time, messages ...llm.Message) error {
	n, err := tx.Exec("UPDATE turns SET updated_ms = $1, reply_to = $2, answers = $3, tokens = $4, "+
		"cost = $5 WHERE id = $6 AND state = 'running' AND epoch = $7",
		now.UnixMilli(), t.ReplyTo, t.Answers, t.Tokens, t.Cost, t.ID, t.Epoch)
	if err == nil && n == 0 {
		err = ErrEnded
	}
	if err != nil {
		return fmt.Errorf("session: write turn %d of %s: %w", t.ID, t.Session, err)
	}
	_, err = insert(tx, t, now, messages)
	return err
}

// insert adds messages to the transcript of t, and returns its new entries.
func insert(tx *store.Tx, t *Turn, now time.Time, messages []llm.Message) ([]Entry, error) {
	list := make([]Entry, 0, len(messages))
	for _, m := range messages {
		e := Entry{Turn: t.ID, Time: time.UnixMilli(now.UnixMilli()), Message: m}
		body, err := json.Marshal(m)
		if err == nil {
			e.Size = len(body)
			err = tx.QueryRow("INSERT INTO messages (session, turn, body, created_ms) "+
				"VALUES ($1, $2, $3, $4) RETURNING id", t.Session.String(), t.ID, string(body),
				now.UnixMilli()).Scan(&e.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("session: write turn %d of %s: %w", t.ID, t.Session, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// EndTurn ends t with its last messages. It reports [ErrEnded] if t had already ended.
func EndTurn(tx *store.Tx, t *Turn, state State, now time.Time, last ...llm.Message) error {
	n, err := tx.Exec("UPDATE turns SET state = $1, updated_ms = $2, answers = $3, tokens = $4, "+
		"cost = $5 WHERE id = $6 AND state = 'running' AND epoch = $7",
		string(state), now.UnixMilli(), t.Answers, t.Tokens, t.Cost, t.ID, t.Epoch)
	if err == nil && n == 0 {
		err = ErrEnded
	}
	if err != nil {
		return fmt.Errorf("session: end turn %d of %s: %w", t.ID, t.Session, err)
	}
	_, err = insert(tx, t, now, last)
	return err
}

// A Bill is the usage of a turn.
type Bill struct {
	Usage   llm.Usage
	Cost    float64 // dollars
	Context int     // tokens in the newest prompt; 0 if unknown
}

// Spend adds the usage of a turn to its session.
func Spend(tx *store.Tx, key Key, b Bill) error {
	_, err := tx.Exec(`UPDATE sessions SET input = input + $1, output = output + $2,
		cached = cached + $3, cost = cost + $4,
		context = CASE WHEN $5 > 0 THEN $5 ELSE context END WHERE key = $6`,
		b.Usage.Input, b.Usage.Output, b.Usage.Cached, b.Cost, b.Context, key.String())
	return store.Wrap(err, "session: add usage to %s", key)
}

// selectTurns reads turns with the keys of their sessions.
const selectTurns = "SELECT " + keyColumns + ", t.id, t.address, t.reply_to, t.epoch, " +
	"t.attempts, t.handovers, t.answers, t.tokens, t.cost, t.persona " +
	"FROM turns t JOIN sessions s ON s.key = t.session "

// visit records the chat in which a turn of a person's conversation runs, as a session without
// messages. It returns the scope that the chat had before. The row says where the person writes,
// and shows if the chat now belongs to another person.
func visit(tx *store.Tx, t *Turn, now time.Time) (before memory.Scope, err error) {
	a := t.Address
	err = tx.QueryRow("SELECT scope FROM sessions WHERE key = $1", KeyOf(a).String()).Scan(&before)
	if errors.Is(err, sql.ErrNoRows) {
		before, err = t.Scope, nil
	}
	if err == nil { // an earlier conversation in this chat must still be summarised (tidy = 0)
		_, err = tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, scope, tidy,
				created_ms, updated_ms, began_ms) VALUES ($1, $2, $3, $4, '', $5, 1, $6, $6, $6)
			ON CONFLICT (key) DO UPDATE SET scope = excluded.scope,
				updated_ms = CASE WHEN tidy = 1 THEN excluded.updated_ms ELSE sessions.updated_ms END`,
			KeyOf(a).String(), a.Account, a.Chat, a.Thread, string(t.Scope), now.UnixMilli())
	}
	if err != nil {
		return "", fmt.Errorf("session: begin turn of %s at %s: %w", t.Session, a, err)
	}
	if before == "" {
		before = t.Scope
	}
	return before, nil
}

// repairAddress replaces the unreadable address of a turn by the address of its session. The
// conversation of a person has no address, so there repairAddress takes the chat in which the
// person wrote last.
func repairAddress(tx *store.Tx, id int64) error {
	var a bus.Address
	err := tx.QueryRow(`SELECT c.account, c.chat, c.thread FROM sessions s
		JOIN sessions c ON c.key = s.key OR s.person <> 0 AND c.scope = s.scope
		WHERE s.key = (SELECT session FROM turns WHERE id = $1) AND c.chat <> ''
		ORDER BY c.updated_ms DESC LIMIT 1`, id).Scan(&a.Account, &a.Chat, &a.Thread)
	var address []byte
	if err == nil {
		address, err = json.Marshal(a)
	}
	if err == nil {
		_, err = tx.Exec("UPDATE turns SET address = $2 WHERE id = $1", id, string(address))
	}
	return store.Wrap(err, "session: mend turn %d", id)
}

// RunningTurns returns the turns that have not ended, in order. If nothing else fails, its error
// holds a [store.RowError] for each turn that can't be read.
func RunningTurns(q store.Queryer) ([]Turn, error) {
	// The plus lets SQLite use the index of running turns and sort them, instead of reading all turns.
	return turns(q, selectTurns+"WHERE t.state = 'running' ORDER BY +t.id")
}

// RepairRunning returns the turns that have not ended, in order. First it gives each turn whose
// address can't be read the address of its session.
func RepairRunning(ctx context.Context, db *store.DB, log *slog.Logger) ([]Turn, error) {
	list, err := RunningTurns(db.Read(ctx))
	n, err := db.RepairRows(ctx, log, err, repairAddress)
	if err != nil || n == 0 {
		return list, err
	}
	return RunningTurns(db.Read(ctx))
}

// RunningTurn returns the running turn of a session, or nil.
func RunningTurn(q store.Queryer, key Key) (*Turn, error) {
	list, err := turns(q, selectTurns+
		"WHERE t.state = 'running' AND t.session = $1 ORDER BY t.id", key.String())
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// RunningTasks returns the running turns of all sub-agents below any of the sessions.
func RunningTasks(q store.Queryer, keys ...Key) ([]Turn, error) {
	list, err := RunningTurns(q)
	return slices.DeleteFunc(list, func(t Turn) bool {
		return !slices.ContainsFunc(keys, t.Session.IsDescendantOf)
	}), err
}

func turns(q store.Queryer, query string, args ...any) ([]Turn, error) {
	return store.Collect(q, "session: read turns", func(scan store.Scan, t *Turn) error {
		var address []byte
		err := scan(append(keyFields(&t.Session), &t.ID, &address, &t.ReplyTo, &t.Epoch, &t.Attempts,
			&t.Handed, &t.Answers, &t.Tokens, &t.Cost, &t.Persona)...)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(address, &t.Address); err != nil {
			return &store.RowError{Table: "turns", ID: t.ID, Err: err}
		}
		return nil
	}, query, args...)
}

// TurnErased reports whether a turn has been erased since it was begun.
func TurnErased(q store.Queryer, id int64) (bool, error) {
	var n int
	err := q.QueryRow(`SELECT count(*) FROM turns WHERE id = $1 AND id >
		COALESCE((SELECT e.turn FROM session_rests e WHERE e.session = turns.session), 0)`, id).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("session: read turn %d: %w", id, err)
	}
	return id != 0 && n == 0, nil
}

// HandOver records that this process is stopping and leaves t to the next one.
func HandOver(tx *store.Tx, t *Turn) error {
	_, err := tx.Exec("UPDATE turns SET handovers = handovers + 1 "+
		"WHERE id = $1 AND state = 'running' AND epoch = $2", t.ID, t.Epoch)
	return store.Wrap(err, "session: hand over turn %d of %s", t.ID, t.Session)
}

// TakeOver puts t under a lease and counts an attempt. From then on writes under the earlier epoch
// fail.
func TakeOver(tx *store.Tx, t *Turn, lease store.Lease, now time.Time) error {
	return takeOver(tx, t, lease, 1, now)
}

// WakeTurn is like [TakeOver] for a turn that was suspended, but counts no attempt.
func WakeTurn(tx *store.Tx, t *Turn, lease store.Lease, now time.Time) error {
	return takeOver(tx, t, lease, 0, now)
}

func takeOver(tx *store.Tx, t *Turn, lease store.Lease, attempts int, now time.Time) error {
	n, err := tx.Exec(`UPDATE turns SET owner = $1, epoch = $2, attempts = attempts + $3,
		updated_ms = $4 WHERE id = $5 AND state = 'running' AND epoch = $6`,
		lease.Owner, lease.Epoch, attempts, now.UnixMilli(), t.ID, t.Epoch)
	if err == nil && n == 0 {
		err = ErrEnded
	}
	return store.Wrap(err, "session: take over turn %d of %s", t.ID, t.Session)
}

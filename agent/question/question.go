// Package question stores the questions that suspended turns wait for: a question to a person, a
// tool call that needs approval, or the outcome of a sub-agent.
//
// The main type is [Question]. A suspended turn needs no memory: its question is a database row and
// survives restarts. Each question is decided once: by a person, by its timeout or by /stop,
// whichever comes first.
//
// Tables: questions.
package question

import (
	"cmp"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// Migration creates the table of this package.
var Migration = store.Migration{Package: "question", Steps: []string{`
CREATE TABLE questions (
	id         IDENTITY PRIMARY KEY,
	code       TEXT NOT NULL UNIQUE,
	state      TEXT NOT NULL, -- open, answered, granted, refused, expired, used or void
	session    TEXT NOT NULL,
	turn       BIGINT NOT NULL,
	call       TEXT NOT NULL, -- id of the tool call whose result it is for
	body       TEXT NOT NULL, -- Question
	answer     TEXT NOT NULL DEFAULT '',
	decided_by TEXT NOT NULL DEFAULT '', -- account/sender
	expires_ms BIGINT NOT NULL,
	UNIQUE (turn, call)
);
CREATE INDEX questions_open ON questions (session) WHERE state = 'open';`, `
-- One call may wait twice: for its approval, and then for what it is about.
ALTER TABLE questions RENAME TO questions_1;
CREATE TABLE questions (
	id         IDENTITY PRIMARY KEY,
	code       TEXT NOT NULL UNIQUE,
	state      TEXT NOT NULL, -- open, answered, granted, refused, expired, used or void
	session    TEXT NOT NULL,
	turn       BIGINT NOT NULL,
	call       TEXT NOT NULL, -- id of the tool call whose result it is for
	body       TEXT NOT NULL, -- Question
	answer     TEXT NOT NULL DEFAULT '',
	decided_by TEXT NOT NULL DEFAULT '', -- account/sender
	expires_ms BIGINT NOT NULL
);
INSERT INTO questions
	SELECT id, code, state, session, turn, call, body, answer, decided_by, expires_ms FROM questions_1;
DROP TABLE questions_1;
CREATE INDEX questions_open ON questions (session) WHERE state = 'open';
CREATE INDEX questions_call ON questions (turn, call);`, `
-- Older versions named the session of a run like that of a job.
UPDATE questions SET session = replace(session, '#@job--', '#@run-');`, `
-- For erasing, which must not read the questions of everybody.
CREATE INDEX questions_session ON questions (session);`}}

// A Kind is the kind of answer that a turn waits for.
type Kind string

// The kinds of questions.
const (
	Ask     Kind = "ask"     // the answer of a person
	Approve Kind = "approve" // the approval of a tool call
	Await   Kind = "await"   // the outcome of a sub-agent
)

// A State is the state of a question.
type State string

// The states of a question. Only Open and Granted can change. There is one exception: all states of
// a question that continues a call can change, until the call has continued.
const (
	Open     State = "open"
	Answered State = "answered"
	Granted  State = "granted" // the call is approved and may run once
	Refused  State = "refused"
	Expired  State = "expired" // nobody decided in time
	Used     State = "used"    // the approved call has begun, or a call has continued
	Void     State = "void"    // the turn was stopped
)

// A Question is a question that a turn waits for.
type Question struct {
	ID      int64  `json:"-"`
	Code    string `json:"-"` // people name the question by it
	State   State  `json:"-"`
	Session string `json:"-"`
	Turn    int64  `json:"-"`
	Call    string `json:"-"` // id of the tool call
	Answer  string `json:"-"` // for the model; set when the question is decided
	By      string `json:"-"` // who decided, as account/sender; "": the gateway

	Expires time.Time `json:"-"`

	// After is the id of the newest message in the inbox when the question was asked. Earlier
	// messages don't answer the question.
	After int64 `json:"after,omitempty"`

	Kind    Kind        `json:"kind"`
	Address bus.Address `json:"address"`           // the conversation with the question
	Sender  string      `json:"sender,omitempty"`  // platform id of the person asked; "": all users
	MinRole bus.Role    `json:"least,omitempty"`   // the lowest role that may decide
	Text    string      `json:"text"`              // the text that people read
	Options []string    `json:"options,omitempty"` // of an Ask: the answers to choose from
	Subject string      `json:"subject,omitempty"` // of an Approve: the hash of the approved call

	// Continues is the state of a tool that waits for the answer to an Ask: the turn calls the tool
	// again with state and answer. nil: the answer goes to the model. Running means that the tool
	// is in the middle of the call, which ends with the process.
	Continues json.RawMessage `json:"continues,omitempty"`
	Running   bool            `json:"running,omitempty"`
}

// MayAnswer reports whether the author of m may answer q. A question is for one person: its code,
// which others may have seen, does not let them answer. If a program began the turn, the question
// is for the users of the chat in which it was asked.
func (q *Question) MayAnswer(m *bus.InboundMessage) bool {
	if q.Sender == "" {
		before := m.From // of the group, when its question was asked
		before.Chat = cmp.Or(m.PreviousChat, before.Chat)
		return (m.From == q.Address || before == q.Address) && m.Role.AtLeast(bus.User)
	}
	return m.Sender.ID == q.Sender && m.From.Account == q.Address.Account
}

// Numbered reports whether a person may choose an option by writing its number. They may not if the
// wording of an option is the number of another one.
func (q *Question) Numbered() bool {
	for i, option := range q.Options {
		if n := q.Index(option); n >= 0 && n != i {
			return false
		}
	}
	return true
}

// Index returns the index of the option whose number is text, or -1.
func (q *Question) Index(text string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "."))
	if err != nil || n < 1 || n > len(q.Options) {
		return -1
	}
	return n - 1
}

// ErrNone means that no question has the code or id.
var ErrNone = errors.New("no such question")

const codeLength = 6 // of 32 letters and digits

// Put adds q as an open question, and sets its ID, Code and State.
func Put(tx *store.Tx, q *Question) error {
	tx.WaitForDisk()
	body, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("question: %w", err)
	}
	q.State = Open
	for err = sql.ErrNoRows; errors.Is(err, sql.ErrNoRows); { // until the code is unique
		q.Code = rand.Text()[:codeLength]
		err = tx.QueryRow(`INSERT INTO questions (code, state, session, turn, call, body, expires_ms)
			VALUES ($1, 'open', $2, $3, $4, $5, $6) ON CONFLICT (code) DO NOTHING RETURNING id`,
			q.Code, q.Session, q.Turn, q.Call, string(body), q.Expires.UnixMilli()).Scan(&q.ID)
	}
	return store.Wrap(err, "question: put for turn %d", q.Turn)
}

// Decide sets the final state and the answer of q if q is still open. It reports whether q was
// open.
func Decide(tx *store.Tx, q *Question, state State, answer, by string) (bool, error) {
	tx.WaitForDisk()
	n, err := tx.Exec("UPDATE questions SET state = $1, answer = $2, decided_by = $3 "+
		"WHERE id = $4 AND state = 'open'", string(state), answer, by, q.ID)
	if err != nil {
		return false, fmt.Errorf("question: decide %d: %w", q.ID, err)
	}
	if n == 1 {
		q.State, q.Answer, q.By = state, answer, by
	}
	return n == 1, nil
}

// Use records that the granted call of q has begun, or that the call that q continues goes on. It
// reports false if q is not granted, or if the call has already begun or continued.
func Use(tx *store.Tx, q *Question) (bool, error) {
	tx.WaitForDisk() // the call must not run twice
	from := Granted
	if q.Continues != nil {
		from = q.State
	}
	n, err := tx.Exec("UPDATE questions SET state = 'used' WHERE id = $1 AND state = $2",
		q.ID, string(from))
	return n == 1, store.Wrap(err, "question: use %d", q.ID)
}

// VoidAll sets the open questions of a turn to Void.
func VoidAll(tx *store.Tx, turn int64) error {
	_, err := tx.Exec("UPDATE questions SET state = 'void' WHERE turn = $1 AND state = 'open'", turn)
	return store.Wrap(err, "question: void those of turn %d", turn)
}

// EndAll is like [VoidAll] for a turn that ends. It also sets approvals to Void that the turn has
// not used. Otherwise [Prune] would keep them for ever.
func EndAll(tx *store.Tx, turn int64) error {
	_, err := tx.Exec("UPDATE questions SET state = 'void' WHERE turn = $1 AND state = 'granted'",
		turn)
	if err == nil {
		err = VoidAll(tx, turn)
	}
	return store.Wrap(err, "question: end those of turn %d", turn)
}

const columns = "id, code, state, session, turn, call, body, answer, decided_by, expires_ms"

const eraseQuery = "DELETE FROM questions WHERE session = $1"

// Erase deletes the questions of a session.
func Erase(tx *store.Tx, session string) error {
	_, err := tx.Exec(eraseQuery, session)
	return store.Wrap(err, "question: erase those of %s", session)
}

// Find returns the question with an id, or [ErrNone].
func Find(q store.Queryer, id int64) (*Question, error) {
	return queryOne(q, "id = $1", id)
}

// ByCode returns the question with a code, or [ErrNone]. Case does not matter.
func ByCode(q store.Queryer, code string) (*Question, error) {
	return queryOne(q, "code = $1", strings.ToUpper(strings.Trim(code, " `")))
}

// OfCall returns the newest question that a tool call asked, or nil.
func OfCall(q store.Queryer, turn int64, call string) (*Question, error) {
	found, err := queryOne(q, "turn = $1 AND call = $2 ORDER BY id DESC LIMIT 1", turn, call)
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	return found, err
}

// SetAside sets the state of an unreadable open question to "bad", so that the gateway does not
// read it again.
func SetAside(tx *store.Tx, id int64) error {
	_, err := tx.Exec("UPDATE questions SET state = 'bad' WHERE id = $1 AND state = 'open'", id)
	return store.Wrap(err, "question: set %d aside", id)
}

// ListOpen returns the open questions, oldest first. If some rows are unreadable, it returns the
// others, and its error contains a [store.RowError] for each unreadable one.
func ListOpen(q store.Queryer) ([]Question, error) {
	// The plus lets SQLite use the index of open questions instead of reading all questions.
	return query(q, "state = 'open' ORDER BY +id")
}

func queryOne(q store.Queryer, where string, args ...any) (*Question, error) {
	list, err := query(q, where, args...)
	if err == nil && len(list) == 0 {
		err = ErrNone
	}
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

func query(q store.Queryer, where string, args ...any) ([]Question, error) {
	return store.Collect(q, "question: read", func(scan store.Scan, found *Question) error {
		var body []byte
		var expires int64
		err := scan(&found.ID, &found.Code, &found.State, &found.Session, &found.Turn,
			&found.Call, &body, &found.Answer, &found.By, &expires)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, found); err != nil {
			return &store.RowError{Table: "questions", ID: found.ID, Err: err}
		}
		found.Expires = time.UnixMilli(expires)
		return nil
	}, "SELECT "+columns+" FROM questions WHERE "+where, args...)
}

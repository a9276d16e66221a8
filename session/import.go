package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"unicode"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/store"
)

// ErrExists reports that a session with this key exists and has messages.
var ErrExists = errors.New("the session exists already")

// ErrBusy reports that a turn of the session is still running.
var ErrBusy = errors.New("a turn of the session is still running")

// ImportOptions are the optional settings of [Import].
type ImportOptions struct {
	Replace bool // erase an existing session first

	// Archive receives the messages that the prompt does not hold, in order and in batches. If it
	// is nil, they are only in the transcript.
	Archive func(tx *store.Tx, list []Entry) error
}

// check reports whether a session can have this head.
func (h Head) check() error {
	switch {
	case h.Key.Person == 0 && (h.Address.Account == "" || h.Address.Chat == ""):
		return errors.New("account or chat is missing")
	case strings.ContainsFunc(h.Key.String(), unicode.IsControl):
		return fmt.Errorf("key: %q is not a session key", h.Key)
	case h.Turns < 0, h.Start < 0, h.From < 0, h.Context < 0, h.Cost < 0, math.IsInf(h.Cost, 0),
		h.Usage.Input < 0, h.Usage.Output < 0, h.Usage.Cached < 0:
		return errors.New("a number must not be negative")
	case h.Messages >= 0 && h.Start > h.Messages:
		return fmt.Errorf("start: %d is more than messages, %d", h.Start, h.Messages)
	}
	if h.Scope == "" {
		return nil
	}
	_, err := memory.ParseScope(string(h.Scope))
	return err
}

// CheckMessage reports an error if m can't be part of a transcript.
func CheckMessage(m llm.Message) error {
	switch m.Role {
	case llm.User, llm.Assistant:
	case llm.ToolRole:
		if m.ToolCallID == "" {
			return errors.New("the result has no tool call")
		}
	default:
		return fmt.Errorf("%q is not a role: use user, assistant or tool", m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.ID == "" || c.Name == "" {
			return errors.New("a tool call lacks an id or a name")
		}
	}
	return nil
}

// importBatch is the maximum number of messages in one call of Archive.
const importBatch = 256

// Import creates a session from a head and its lines and returns the number of lines. It reports
// [ErrExists], [ErrBusy] and the first error of the lines. After an error the caller must roll the
// transaction back.
func Import(
	tx *store.Tx, h Head, lines iter.Seq2[Line, error], opts ImportOptions,
) (int, error) {
	fail := func(err error) (int, error) {
		return 0, fmt.Errorf("session: import %s: %w", h.Key, err)
	}
	if err := h.check(); err != nil {
		return fail(err)
	}
	if err := makeRoom(tx, h.Key, opts.Replace); err != nil {
		return fail(err)
	}
	w := importer{tx: tx, head: h, opts: opts}
	if err := w.session(); err != nil {
		return fail(err)
	}
	for line, err := range lines {
		if err != nil {
			return fail(err)
		}
		if err := w.line(line); err != nil {
			return fail(err)
		}
	}
	if err := w.finish(); err != nil {
		return fail(err)
	}
	return w.written, nil
}

// makeRoom erases an existing session if it may be replaced or has no messages.
func makeRoom(tx *store.Tx, key Key, replace bool) error {
	info, err := ReadInfo(tx, key)
	if err != nil {
		return err
	}
	if info.Messages > 0 && !replace {
		return ErrExists
	}
	running, err := RunningTurn(tx, key)
	if err == nil && running != nil {
		err = ErrBusy
	}
	if err != nil {
		return err
	}
	return Erase(tx, key)
}

// An importer writes the imported session.
type importer struct {
	tx   *store.Tx
	head Head
	opts ImportOptions

	written int
	turn    int   // number of the last line's turn
	turnID  int64 // row of that turn
	start   int64 // id of the last message that the prompt does not hold
	archive []Entry
}

// session inserts the row of the session. Its start is set at the end, because it is the id of a
// message.
func (w *importer) session() error {
	h := w.head
	_, err := w.tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, queue_mode, model,
			scope, turns, input, output, cached, cost, context, created_ms, updated_ms, summary,
			summary_from, job, hook, run, task, effort, voice, speaker, person, activity, began_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
			$18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $15)`,
		h.Key.String(), h.Address.Account, h.Address.Chat, h.Address.Thread, h.Title, h.QueueMode,
		h.Model, string(h.Scope), h.Turns, h.Usage.Input, h.Usage.Output, h.Usage.Cached, h.Cost,
		h.Context, h.Created.UnixMilli(), h.Updated.UnixMilli(), h.Summary, h.From,
		h.Key.Job, h.Key.Hook, h.Key.Run, h.Key.Task, string(h.Effort), h.Voice, h.Key.Speaker,
		h.Key.Person, h.Activity)
	return err
}

// line inserts a message, and before the first message of each turn the row of the turn.
func (w *importer) line(l Line) error {
	if err := CheckMessage(l.Message); err != nil {
		return err
	}
	if l.Turn != w.turn {
		if err := w.begin(l); err != nil {
			return err
		}
	}
	entries, err := insert(w.tx, &Turn{ID: w.turnID, Session: w.head.Key}, l.Time,
		[]llm.Message{l.Message})
	if err != nil {
		return err
	}
	// Only the messages before the start are archived. Those after it are in the prompt.
	if w.written++; w.written > w.head.Start {
		return nil
	}
	w.start = entries[0].ID
	w.archive = append(w.archive, entries...)
	if len(w.archive) < importBatch {
		return nil
	}
	return w.flush()
}

// begin inserts the row of a turn that has ended.
func (w *importer) begin(l Line) error {
	address, err := json.Marshal(w.head.Address)
	if err != nil {
		return err
	}
	w.turn = l.Turn
	return w.tx.QueryRow(`INSERT INTO turns
			(session, state, owner, epoch, reply_to, address, created_ms, updated_ms)
		VALUES ($1, 'done', '', 0, '', $2, $3, $3) RETURNING id`,
		w.head.Key.String(), string(address), l.Time.UnixMilli()).Scan(&w.turnID)
}

func (w *importer) flush() error {
	list := w.archive
	w.archive = nil
	if w.opts.Archive == nil || len(list) == 0 {
		return nil
	}
	return w.opts.Archive(w.tx, list)
}

// finish stores what is known only at the end.
func (w *importer) finish() error {
	if w.written < w.head.Start {
		return fmt.Errorf("the file has %d messages, but its prompt begins after %d", w.written,
			w.head.Start)
	}
	_, err := w.tx.Exec("UPDATE sessions SET start = $2, turns = CASE WHEN turns < $3 THEN $3 "+
		"ELSE turns END WHERE key = $1", w.head.Key.String(), w.start, w.turn)
	if err != nil {
		return err
	}
	return w.flush()
}

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

// ErrExists reports that there is a session with that key already, in which something was said.
var ErrExists = errors.New("there is such a session already")

// ErrBusy reports a session with a turn that has not ended.
var ErrBusy = errors.New("a turn of it has not ended")

// ImportOptions are the optional settings of [Store.Import].
type ImportOptions struct {
	Replace bool // what is there is erased before

	// Archive gets the messages that the prompt does not hold, in order and not all at once. By
	// default they are in the transcript only.
	Archive func(tx *store.Tx, list []Entry) error
}

// check refuses a head that no session can have.
func (h Head) check() error {
	switch {
	case h.Address.Account == "" || h.Address.Chat == "":
		return errors.New("there is no account or no chat")
	case h.Key == "" || strings.ContainsFunc(string(h.Key), unicode.IsControl):
		return fmt.Errorf("key: %q can't be the key of a session", h.Key)
	case h.Turns < 0, h.Start < 0, h.From < 0, h.Context < 0, h.Cost < 0, math.IsInf(h.Cost, 0),
		h.Usage.Input < 0, h.Usage.Output < 0, h.Usage.Cached < 0:
		return errors.New("a number is negative")
	case h.Messages >= 0 && h.Start > h.Messages:
		return fmt.Errorf("start: %d is more than the %d messages", h.Start, h.Messages)
	}
	if h.Scope == "" {
		return nil
	}
	_, err := memory.ParseScope(string(h.Scope))
	return err
}

// CheckMessage refuses a message that no transcript can have.
func CheckMessage(m llm.Message) error {
	switch m.Role {
	case llm.User, llm.Assistant:
	case llm.ToolRole:
		if m.ToolCallID == "" {
			return errors.New("it is the result of no tool call")
		}
	default:
		return fmt.Errorf("%q is no role: want user, assistant or tool", m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.ID == "" || c.Name == "" {
			return errors.New("a tool call has no id or no name")
		}
	}
	return nil
}

// importBatch is how many archived messages are handed on at once.
const importBatch = 256

// Import makes a session of a head and its lines, and returns how many there were. It reports
// [ErrExists] and [ErrBusy], and the first error of the lines; then the transaction must fail.
func (s Store) Import(
	tx *store.Tx, h Head, lines iter.Seq2[Line, error], opts ImportOptions,
) (int, error) {
	fail := func(err error) (int, error) {
		return 0, fmt.Errorf("session: import %s: %w", h.Key, err)
	}
	if err := h.check(); err != nil {
		return fail(err)
	}
	if err := s.makeRoom(tx, h.Key, opts.Replace); err != nil {
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

// makeRoom erases a session that may be replaced, or in which nothing was said.
func (s Store) makeRoom(tx *store.Tx, key Key, replace bool) error {
	info, err := s.Info(tx, key)
	if err != nil {
		return err
	}
	if info.Messages > 0 && !replace {
		return ErrExists
	}
	running, err := s.RunningTurn(tx, key)
	if err == nil && running != nil {
		err = ErrBusy
	}
	if err != nil {
		return err
	}
	return s.Erase(tx, key)
}

// An importer writes one session.
type importer struct {
	tx   *store.Tx
	head Head
	opts ImportOptions

	written int
	turn    int   // of the last line, as it is counted there
	turnID  int64 // its row
	start   int64 // the id of the last message that the prompt does not hold
	archive []Entry
}

func (w *importer) session() error {
	h := w.head
	place := h.Key.Place()
	_, err := w.tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, queue_mode, model,
			scope, turns, input, output, cached, cost, context, created_ms, updated_ms, summary,
			summary_from, kind, reference, parent, effort)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
			$18, $19, $20, $21, $22)`,
		string(h.Key), h.Address.Account, h.Address.Chat, h.Address.Thread, h.Title, h.QueueMode,
		h.Model, string(h.Scope), h.Turns, h.Usage.Input, h.Usage.Output, h.Usage.Cached, h.Cost,
		h.Context, h.Created.UnixMilli(), h.Updated.UnixMilli(), h.Summary, h.From,
		string(place.Kind), place.Ref, string(place.Parent), string(h.Effort))
	return err
}

func (w *importer) line(l Line) error {
	if err := CheckMessage(l.Message); err != nil {
		return err
	}
	if l.Turn != w.turn {
		if err := w.begin(l); err != nil {
			return err
		}
	}
	body, err := json.Marshal(l.Message)
	if err != nil {
		return err
	}
	var id int64
	err = w.tx.QueryRow("INSERT INTO messages (session, turn, body, created_ms) "+
		"VALUES ($1, $2, $3, $4) RETURNING id",
		string(w.head.Key), w.turnID, string(body), l.Time.UnixMilli()).Scan(&id)
	if err != nil {
		return err
	}
	if w.written++; w.written > w.head.Start {
		return nil
	}
	w.start = id
	w.archive = append(w.archive, Entry{ID: id, Turn: w.turnID, Time: l.Time, Size: len(body),
		Message: l.Message})
	if len(w.archive) < importBatch {
		return nil
	}
	return w.flush()
}

// begin makes the row of a turn, which has ended long ago.
func (w *importer) begin(l Line) error {
	address, err := json.Marshal(w.head.Address)
	if err != nil {
		return err
	}
	w.turn = l.Turn
	return w.tx.QueryRow(`INSERT INTO turns
			(session, state, owner, epoch, reply_to, address, created_ms, updated_ms)
		VALUES ($1, 'done', '', 0, '', $2, $3, $3) RETURNING id`,
		string(w.head.Key), string(address), l.Time.UnixMilli()).Scan(&w.turnID)
}

func (w *importer) flush() error {
	list := w.archive
	w.archive = nil
	if w.opts.Archive == nil || len(list) == 0 {
		return nil
	}
	return w.opts.Archive(w.tx, list)
}

// finish sets what is known only now.
func (w *importer) finish() error {
	if w.written < w.head.Start {
		return fmt.Errorf("there are %d messages, and the prompt is to begin after %d", w.written,
			w.head.Start)
	}
	_, err := w.tx.Exec("UPDATE sessions SET start = $2, turns = CASE WHEN turns < $3 THEN $3 "+
		"ELSE turns END WHERE key = $1", string(w.head.Key), w.start, w.turn)
	if err != nil {
		return err
	}
	return w.flush()
}

package session

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// The form of an exported session: lines of JSON, the first of them a [Head], each other a [Line].
const (
	exportFormat  = "gateway-session"
	exportVersion = 1
	exportTime    = "2006-01-02T15:04:05.000Z07:00"
)

// MaxLine is how long a line of an exported session may be, in bytes.
const MaxLine = 64 << 20

// ErrNone reports that there is no such session.
var ErrNone = errors.New("there is no such session")

// ErrForm reports a file that does not begin like an exported session.
var ErrForm = errors.New("it does not begin like an exported session")

// A Head is what an exported session begins with.
type Head struct {
	Key       Key
	Address   bus.Address // of its conversation; a sub-agent has that of its origin
	Title     string
	QueueMode string     // "" is the configured one
	Model     string     // likewise
	Effort    llm.Effort // likewise
	Scope     memory.Scope
	Turns     int // begun so far
	Usage     llm.Usage
	Cost      float64 // dollars
	Context   int     // tokens of the newest prompt, 0 if unknown
	Created   time.Time
	Updated   time.Time
	Messages  int    // lines that follow; -1 if that is not known before
	Start     int    // how many of them the prompt does not hold any more
	Summary   string // notes of those
	From      int64  // cursor of the oldest entry of the history that is in Summary
}

// A Line is a message of an exported session.
type Line struct {
	Time    time.Time
	Turn    int // those of one turn have the same number, counted from 1
	Message llm.Message
}

// addressJSON is the address of a session in the file.
type addressJSON struct {
	Account string `json:"account"`
	Chat    string `json:"chat"`
	Thread  string `json:"thread,omitempty"`
}

// headJSON is a Head in the file.
type headJSON struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Key     Key    `json:"key"`
	addressJSON
	Title     string       `json:"title,omitempty"`
	QueueMode string       `json:"queue_mode,omitempty"`
	Model     string       `json:"model,omitempty"`
	Effort    llm.Effort   `json:"effort,omitempty"`
	Scope     memory.Scope `json:"scope,omitempty"`
	Turns     int          `json:"turns"`
	Usage     llm.Usage    `json:"usage"`
	Cost      float64      `json:"cost"`
	Context   int          `json:"context"`
	Created   string       `json:"created"`
	Updated   string       `json:"updated"`
	Messages  int          `json:"messages"`
	Start     int          `json:"start"`
	Summary   string       `json:"summary,omitempty"`
	From      int64        `json:"summary_from,omitempty"`
}

// lineJSON is a Line in the file.
type lineJSON struct {
	Time string `json:"time"`
	Turn int    `json:"turn"`
	llm.Message
}

// exportPage is how many messages are read at once.
const exportPage = 256

// Export writes a session as lines of JSON. It reports [ErrNone]. What comes into the session
// meanwhile is left out.
func (s Store) Export(q store.Queryer, key Key, w io.Writer) error {
	head, newest, err := s.head(q, key)
	if err != nil {
		return fmt.Errorf("session: export %s: %w", key, err)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if err := out.Encode(head.json()); err != nil {
		return fmt.Errorf("session: export %s: %w", key, err)
	}
	written, turn, last := 0, 0, int64(-1)
	for at := int64(0); at < newest; {
		list, err := s.After(q, key, at, exportPage)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			if at = e.ID; at > newest {
				break
			}
			if e.Turn != last {
				turn, last = turn+1, e.Turn
			}
			line := lineJSON{e.Time.UTC().Format(exportTime), turn, e.Message}
			if err := out.Encode(line); err != nil {
				return fmt.Errorf("session: export %s: %w", key, err)
			}
			written++
		}
	}
	if written != head.Messages {
		return fmt.Errorf("session: export %s: it was erased meanwhile", key)
	}
	return nil
}

// head reads what an export begins with, and the id of the last message that belongs to it.
func (s Store) head(q store.Queryer, key Key) (h Head, newest int64, err error) {
	var created, updated, start int64
	h.Key = key
	err = q.QueryRow(`SELECT account, chat, thread, title, queue_mode, model, effort, scope, turns,
			input, output, cached, cost, context, created_ms, updated_ms, start, summary, summary_from
		FROM sessions WHERE key = $1`, string(key)).Scan(&h.Address.Account, &h.Address.Chat,
		&h.Address.Thread, &h.Title, &h.QueueMode, &h.Model, &h.Effort, &h.Scope, &h.Turns,
		&h.Usage.Input, &h.Usage.Output, &h.Usage.Cached, &h.Cost, &h.Context, &created, &updated, &start,
		&h.Summary, &h.From)
	if errors.Is(err, sql.ErrNoRows) {
		return h, 0, ErrNone
	}
	if err != nil {
		return h, 0, err
	}
	h.Created, h.Updated = time.UnixMilli(created), time.UnixMilli(updated)
	if newest, err = s.Newest(q, key); err != nil {
		return h, 0, err
	}
	err = q.QueryRow(`SELECT count(*), count(CASE WHEN id <= $2 THEN 1 END) FROM messages
		WHERE session = $1 AND id <= $3 AND id > `+erasedOf("$1"),
		string(key), start, newest).Scan(&h.Messages, &h.Start)
	return h, newest, err
}

func (h Head) json() headJSON {
	return headJSON{
		Format: exportFormat, Version: exportVersion, Key: h.Key,
		addressJSON: addressJSON{h.Address.Account, h.Address.Chat, h.Address.Thread},
		Title:       h.Title, QueueMode: h.QueueMode,
		Model: h.Model, Effort: h.Effort, Scope: h.Scope, Turns: h.Turns, Usage: h.Usage, Cost: h.Cost,
		Context: h.Context,
		Created: h.Created.UTC().Format(exportTime), Updated: h.Updated.UTC().Format(exportTime),
		Messages: h.Messages, Start: h.Start, Summary: h.Summary, From: h.From,
	}
}

// Keys returns the keys of all sessions, those of sub-agents among them.
func (Store) Keys(q store.Queryer) ([]Key, error) {
	return keys(q, "SELECT key FROM sessions ORDER BY key")
}

// A LineError says which line of a file is wrong, from 1.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Read reads an exported session: its head, and then one after another its lines. An error, the
// last that comes, is a [*LineError]; [ErrForm] is one of the first line.
func Read(r io.Reader) (Head, iter.Seq2[Line, error], error) {
	next := ReadLines(r, MaxLine)
	first, n, err := next()
	if errors.Is(err, io.EOF) {
		err = ErrForm
	}
	var head Head
	if err == nil {
		head, err = parseHead(first)
	}
	if err != nil {
		return Head{}, nil, &LineError{max(n, 1), err}
	}
	return head, func(yield func(Line, error) bool) {
		found, turn := 0, 0
		for {
			text, n, err := next()
			if errors.Is(err, io.EOF) {
				if found != head.Messages {
					err := fmt.Errorf("the file ends after %d messages, its head says %d", found,
						head.Messages)
					yield(Line{}, &LineError{n + 1, err})
				}
				return
			}
			var line Line
			if err == nil {
				line, err = parseLine(text, turn)
			}
			if err != nil {
				yield(Line{}, &LineError{n, err})
				return
			}
			found, turn = found+1, line.Turn
			if !yield(line, nil) {
				return
			}
		}
	}, nil
}

// ReadLines returns a function that returns the next line of r that is not blank and its number,
// and at the end io.EOF with the number of the last. The line holds until the next call. One with
// more than most bytes is an error. A byte order mark and carriage returns are left out.
func ReadLines(r io.Reader, most int) func() (line []byte, number int, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var buf []byte
	n := 0
	return func() ([]byte, int, error) {
		for {
			buf = buf[:0]
			for {
				piece, err := in.ReadSlice('\n')
				buf = append(buf, piece...)
				if len(buf) > most {
					return nil, n + 1, fmt.Errorf("it has more than %d bytes", most)
				}
				if err == nil {
					break
				}
				if errors.Is(err, io.EOF) && len(buf) > 0 {
					break
				}
				if !errors.Is(err, bufio.ErrBufferFull) {
					return nil, n, err
				}
			}
			n++
			line := bytes.TrimSpace(bytes.TrimPrefix(buf, []byte("\xef\xbb\xbf")))
			if len(line) > 0 {
				return line, n, nil
			}
		}
	}
}

// parseHead reads the first line.
func parseHead(text []byte) (h Head, err error) {
	var j headJSON
	if json.Unmarshal(text, &j) != nil || j.Format != exportFormat {
		return h, ErrForm
	}
	if j.Version != exportVersion {
		return h, fmt.Errorf("it has version %d of the format; this gateway reads %d", j.Version,
			exportVersion)
	}
	if err := strict(text, &j); err != nil {
		return h, err
	}
	h = Head{
		Key: j.Key, Address: bus.Address{Account: j.Account, Chat: j.Chat, Thread: j.Thread},
		Title: j.Title, QueueMode: j.QueueMode, Model: j.Model, Effort: j.Effort, Scope: j.Scope,
		Turns: j.Turns, Usage: j.Usage, Cost: j.Cost, Context: j.Context, Messages: j.Messages,
		Start: j.Start, Summary: j.Summary, From: j.From,
	}
	if h.Created, err = parseTime(j.Created); err != nil {
		return h, fmt.Errorf("created: %w", err)
	}
	if h.Updated, err = parseTime(j.Updated); err != nil {
		return h, fmt.Errorf("updated: %w", err)
	}
	if h.Messages < 0 {
		return h, errors.New("messages: want a number that is not negative")
	}
	return h, h.check()
}

// strict decodes text and refuses what v has no field for.
func strict(text []byte, v any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return err
	}
	if in.More() {
		return errors.New("there is more after the JSON object")
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is no time such as 2026-02-16T12:51:00.000Z", s)
	}
	if t.Year() < 1 || t.Year() > 9999 {
		return t, fmt.Errorf("%q is out of range", s)
	}
	return t, nil
}

// parseLine reads a message. turn is that of the one before.
func parseLine(text []byte, turn int) (l Line, err error) {
	var j lineJSON
	if err := strict(text, &j); err != nil {
		return l, err
	}
	if l.Time, err = parseTime(j.Time); err != nil {
		return l, fmt.Errorf("time: %w", err)
	}
	if j.Turn != max(turn, 1) && j.Turn != turn+1 {
		return l, fmt.Errorf("turn: want %d or %d, not %d", max(turn, 1), turn+1, j.Turn)
	}
	l.Turn, l.Message = j.Turn, j.Message
	return l, CheckMessage(l.Message)
}

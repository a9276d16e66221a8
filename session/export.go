package session

import (
	"bufio"
	"bytes"
	"cmp"
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

// An exported session is a sequence of lines of JSON. The first line is a [Head], each further one
// a [Line].
const (
	exportFormat  = "gateway-session"
	exportVersion = 1
	exportTime    = "2006-01-02T15:04:05.000Z07:00"
)

// MaxLine is the maximum length of a line of an exported session, in bytes.
const MaxLine = 64 << 20

// ErrNone reports that the session does not exist.
var ErrNone = errors.New("no such session")

// ErrForm reports a file that is not an exported session.
var ErrForm = errors.New("the file is not an exported session")

// A Head is the first line of an exported session.
type Head struct {
	Key       Key          `json:"-"`
	Address   bus.Address  `json:"-"` // of its conversation; of a sub-agent: of its parent
	Title     string       `json:"title,omitempty"`
	QueueMode string       `json:"queue_mode,omitempty"` // "": as configured
	Model     string       `json:"model,omitempty"`      // "": as configured
	Effort    llm.Effort   `json:"effort,omitempty"`     // "": as configured
	Voice     string       `json:"voice,omitempty"`      // "": as configured
	Activity  string       `json:"activity,omitempty"`   // "": as configured
	Scope     memory.Scope `json:"scope,omitempty"`
	Turns     int          `json:"turns"` // number of turns so far
	Usage     llm.Usage    `json:"usage"`
	Cost      float64      `json:"cost"`    // dollars
	Context   int          `json:"context"` // tokens in the newest prompt; 0 if unknown
	Created   time.Time    `json:"-"`
	Updated   time.Time    `json:"-"`

	// Messages is the number of lines that follow; -1 if unknown in advance.
	Messages int `json:"messages"`

	// Start is the number of messages that the prompt no longer holds. Summary contains the notes
	// that stand for them, and From the cursor of the oldest history entry in Summary.
	Start   int    `json:"start"`
	Summary string `json:"summary,omitempty"`
	From    int64  `json:"summary_from,omitempty"`
}

// A Line is a message of an exported session.
type Line struct {
	Time    time.Time
	Turn    int // number of its turn, from 1
	Message llm.Message
}

// headJSON is the JSON form of a Head: what a line of JSON says about it in another form, and the
// Head itself.
type headJSON struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Key     string `json:"key"`
	bus.Address
	Created string `json:"created"`
	Updated string `json:"updated"`
	Head
}

// lineJSON is the JSON form of a Line.
type lineJSON struct {
	Time string `json:"time"`
	Turn int    `json:"turn"`
	llm.Message
}

// exportPage is the number of messages that one query reads.
const exportPage = 256

// Export writes a session as lines of JSON. It reports [ErrNone] if the session does not exist.
// Messages that arrive during the export are left out.
func Export(q store.Queryer, key Key, w io.Writer) error {
	head, newest, err := readHead(q, key)
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
		list, err := EntriesAfter(q, key, at, exportPage)
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
		return fmt.Errorf("session: export %s: the session was erased during the export", key)
	}
	return nil
}

// head returns the Head of an export, and the id of the last message that belongs to it.
func readHead(q store.Queryer, key Key) (h Head, newest int64, err error) {
	var created, updated, start int64
	h.Key = key
	err = q.QueryRow(`SELECT account, chat, thread, title, queue_mode, model, effort, voice,
			activity, scope, turns, input, output, cached, cost, context, created_ms, updated_ms,
			start, summary, summary_from
		FROM sessions WHERE key = $1`, key.String()).Scan(&h.Address.Account, &h.Address.Chat,
		&h.Address.Thread, &h.Title, &h.QueueMode, &h.Model, &h.Effort, &h.Voice, &h.Activity,
		&h.Scope, &h.Turns,
		&h.Usage.Input, &h.Usage.Output, &h.Usage.Cached, &h.Cost, &h.Context, &created, &updated, &start,
		&h.Summary, &h.From)
	if errors.Is(err, sql.ErrNoRows) {
		return h, 0, ErrNone
	}
	if err != nil {
		return h, 0, err
	}
	h.Created, h.Updated = time.UnixMilli(created), time.UnixMilli(updated)
	if newest, err = NewestMessage(q, key); err != nil {
		return h, 0, err
	}
	err = q.QueryRow(`SELECT count(*), count(CASE WHEN id <= $2 THEN 1 END) FROM messages
		WHERE session = $1 AND id <= $3 AND id > `+erasedOf("$1"),
		key.String(), start, newest).Scan(&h.Messages, &h.Start)
	return h, newest, err
}

func (h Head) json() headJSON {
	return headJSON{
		exportFormat, exportVersion, h.Key.String(), h.Address,
		h.Created.UTC().Format(exportTime), h.Updated.UTC().Format(exportTime), h,
	}
}

// Keys returns the keys of all sessions, including those of sub-agents.
func Keys(q store.Queryer) ([]Key, error) {
	return keys(q, "ORDER BY key")
}

// A LineError reports an error in a line of a file. Lines count from 1.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Read reads an exported session: its Head, and an iterator over its lines. After an error the
// iteration ends. The error is a [*LineError]; it wraps [ErrForm] if the first line is not a Head.
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
					err := fmt.Errorf("the file ends after %d messages, not %d as its first line says", found,
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

// ReadLines returns a function that returns the next non-blank line of r and its number. At the end
// it returns io.EOF and the number of the last line. The returned slice is valid until the next
// call. A line with more than most bytes is an error. Byte order marks and carriage returns are
// removed.
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
					return nil, n + 1, fmt.Errorf("the line has more than %d bytes", most)
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

// parseHead parses the first line.
func parseHead(text []byte) (h Head, err error) {
	var j headJSON
	if json.Unmarshal(text, &j) != nil || j.Format != exportFormat {
		return h, ErrForm
	}
	if j.Version != exportVersion {
		return h, fmt.Errorf("the format has version %d; this gateway reads version %d", j.Version,
			exportVersion)
	}
	if err := decodeStrict(text, &j); err != nil {
		return h, err
	}
	h = j.Head
	h.Address = j.Address
	if h.Created, err = parseTime(j.Created); err != nil {
		return h, fmt.Errorf("created: %w", err)
	}
	if h.Updated, err = parseTime(j.Updated); err != nil {
		return h, fmt.Errorf("updated: %w", err)
	}
	if h.Messages < 0 {
		return h, errors.New("messages: must not be negative")
	}
	if h.Key, err = h.Address.ParseSession(j.Key); err != nil {
		err = fmt.Errorf("key: %w", err)
	}
	return h, cmp.Or(h.check(), err)
}

// decodeStrict decodes text into v and refuses unknown fields.
func decodeStrict(text []byte, v any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return err
	}
	if in.More() {
		return errors.New("unexpected data after the JSON object")
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is not a time such as 2026-02-16T12:51:00.000Z", s)
	}
	if t.Year() < 1 || t.Year() > 9999 {
		return t, fmt.Errorf("%q is out of range", s)
	}
	return t, nil
}

// parseLine parses a message. turn is the number of the preceding message's turn.
func parseLine(text []byte, turn int) (l Line, err error) {
	var j lineJSON
	if err := decodeStrict(text, &j); err != nil {
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

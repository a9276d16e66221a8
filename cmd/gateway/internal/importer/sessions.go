package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// A ForeignHeader is the header of a session of another agent.
type ForeignHeader struct {
	Key     string // as written in the file; "" if missing
	Created time.Time
	Updated time.Time
	Summary string
	Start   int // number of messages that are no longer in the prompt

	scope   *foreignScope // of newer PicoClaw sessions
	damaged int           // lines that the iterator leaves out, of OpenClaw
}

// ErrForm means that a file is not a session of another agent.
var ErrForm = errors.New("it does not begin like a session of nanobot, PicoClaw or OpenClaw")

// foreignHead is the first line of a nanobot session, or PicoClaw's .meta.json.
type foreignHead struct {
	Type      string          `json:"_type"`
	Key       string          `json:"key"`
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
	Start     int             `json:"last_consolidated"`
	Archived  int             `json:"last_archived"` // a newer name of last_consolidated
	Skip      int             `json:"skip"`
	Summary   string          `json:"summary"`
	Metadata  json.RawMessage `json:"metadata"` // of nanobot, with its summary
	Scope     *foreignScope   `json:"scope"`
}

func (h foreignHead) parse(loc *time.Location) (f ForeignHeader, err error) {
	metadata, _ := parseObject(h.Metadata) // other types than objects tell nothing
	last, _ := metadata.table("_last_summary")
	f = ForeignHeader{Key: h.Key, Summary: cmp.Or(h.Summary, last.text("text")),
		Start: max(h.Start, h.Archived, h.Skip), scope: h.Scope}
	if min(h.Start, h.Archived, h.Skip) < 0 {
		return f, errors.New("the number of consolidated messages is negative")
	}
	if f.Created, err = parseTime(h.CreatedAt, loc); err != nil {
		return f, err
	}
	f.Updated, err = parseTime(h.UpdatedAt, loc)
	return f, err
}

// parseTime parses a time as Python and Go write it. A time without a zone is in loc. "" gives
// the zero time.
func parseTime(s string, loc *time.Location) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time", s)
}

// ReadSession reads a session of nanobot or OpenClaw, or the messages of one of PicoClaw: the
// header and then the lines. Lines without a role don't belong into a transcript, or are no JSON: a
// crash of the other agent may leave such a line. Times without a zone are in loc. Errors are as in
// [session.Read].
func ReadSession(
	r io.ReadSeeker, loc *time.Location,
) (ForeignHeader, iter.Seq2[session.Line, error], error) {
	fail := func(err error) (ForeignHeader, iter.Seq2[session.Line, error], error) {
		return ForeignHeader{}, nil, err
	}
	first, n, err := session.ReadLines(r, session.MaxLine)()
	if errors.Is(err, io.EOF) {
		n, err = 1, ErrForm
	}
	var probe struct {
		Type string  `json:"_type"`
		Claw string  `json:"type"`
		Role *string `json:"role"`
	}
	var head ForeignHeader
	var h foreignHead
	switch {
	case err != nil:
	case json.Unmarshal(first, &probe) == nil && probe.Claw == "session":
		return readClaw(r, loc)
	case probe.Type == "metadata":
		if err = json.Unmarshal(first, &h); err == nil {
			head, err = h.parse(loc)
		}
	case probe.Role == nil:
		err = ErrForm
	}
	if err != nil {
		return fail(&session.LineError{Line: max(n, 1), Err: err})
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return fail(err)
	}
	c := converter{loc: loc, last: head.Created}
	return head, parseLines(r, func(text []byte) (line session.Line, use bool, err error) {
		var f foreignMessage
		if !json.Valid(text) {
			return line, true, nil // the empty role makes callers count and drop the line
		}
		if err := json.Unmarshal(text, &f); err != nil || f.Type != "" {
			return line, false, err // a header, or the state of a provider
		}
		line, keep, err := c.line(f)
		if !keep {
			line = session.Line{}
		}
		return line, true, err
	}), nil
}

// foreignMessage is a message of nanobot or PicoClaw.
type foreignMessage struct {
	Type       string          `json:"_type"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Timestamp  string          `json:"timestamp"`
	CreatedAt  string          `json:"created_at"`
	Reasoning  *string         `json:"reasoning_content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []foreignCall   `json:"tool_calls"`
	Media      []string        `json:"media"`
}

type foreignCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Function  *struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// A converter converts the messages of one session to transcript lines.
type converter struct {
	loc  *time.Location
	last time.Time
	turn int
}

// line converts a message. keep is false if the message does not belong into a transcript.
func (c *converter) line(f foreignMessage) (l session.Line, keep bool, err error) {
	at, err := parseTime(cmp.Or(f.Timestamp, f.CreatedAt), c.loc)
	if err != nil {
		return l, false, err
	}
	if !at.IsZero() {
		c.last = at
	}
	m := llm.Message{Role: llm.Role(f.Role), ToolCallID: f.ToolCallID}
	if m.Text, _, err = content(f.Content); err != nil {
		return l, false, err
	}
	for _, file := range f.Media {
		m.Text = strings.TrimPrefix(m.Text+"\n[file: "+path.Base(file)+"]", "\n")
	}
	if f.Reasoning != nil && m.Role == llm.Assistant {
		m.Reasoning = *f.Reasoning
	}
	for _, call := range f.ToolCalls {
		if converted, ok := call.convert(); ok {
			m.ToolCalls = append(m.ToolCalls, converted)
		}
	}
	if f.Role == "system" || m.Role == llm.ToolRole && m.ToolCallID == "" ||
		m.Text == "" && len(m.ToolCalls) == 0 && m.Role != llm.ToolRole && f.Role != "" {
		return l, false, nil
	}
	if err := session.CheckMessage(m); err != nil {
		return l, false, err
	}
	if m.Role == llm.User || c.turn == 0 {
		c.turn++
	}
	return session.Line{Time: c.last, Turn: c.turn, Message: m}, true, nil
}

// convert converts a call. ok is false for a call that no model's provider would accept.
func (f foreignCall) convert() (c llm.ToolCall, ok bool) {
	name, arguments := f.Name, f.Arguments
	if f.Function != nil {
		name, arguments = f.Function.Name, f.Function.Arguments
	}
	c = llm.ToolCall{ID: f.ID, Name: name, Arguments: "{}"}
	if len(arguments) > 0 && arguments[0] == '"' {
		_ = json.Unmarshal(arguments, &c.Arguments) // a string, as it is valid JSON
	} else if len(arguments) > 0 && string(arguments) != "null" {
		c.Arguments = string(arguments)
	}
	return c, c.ID != "" && c.Name != ""
}

// A contentPart is a part of a message. Thinking and the fields after it are OpenClaw's.
type contentPart struct {
	Type, Text, Thinking, ID, Name string
	Arguments                      json.RawMessage
}

// content returns the text of a message content, which is a string or a list of parts.
func content(raw json.RawMessage) (text string, parts []contentPart, err error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
	case raw[0] == '"':
		err = json.Unmarshal(raw, &text)
	case raw[0] == '[':
		if err := json.Unmarshal(raw, &parts); err != nil {
			return "", nil, fmt.Errorf("content: %w", err)
		}
		var texts []string
		for _, p := range parts {
			switch p.Type {
			case "text", "input_text":
				texts = append(texts, p.Text)
			case "thinking", "toolCall":
			default:
				texts = append(texts, "["+cmp.Or(strings.TrimSuffix(p.Type, "_url"), "part")+"]")
			}
		}
		text = strings.Join(texts, "\n")
	default:
		text = string(raw)
	}
	return text, parts, err
}

// conversations imports the conversations.
type conversations struct {
	*run
	filled map[session.Key]bool // conversations that this import has written
}

// importAll imports the sessions of all folders.
func (m conversations) importAll(ctx context.Context) {
	if m.kind == OpenClaw {
		m.importClaw(ctx)
		return
	}
	dirs := []string{m.in("sessions"), "sessions"}
	for _, dir := range slices.Compact(dirs) { // both are the same folder if the workspace has no home
		m.importFolder(ctx, dir)
	}
}

// workspaceID matches the folders in which nanobot keeps the sessions of a workspace since August
// 2026.
var workspaceID = plaintext.Pattern(`^[0-9a-f]{32}$`)

// importFolder imports the sessions of a folder.
func (m conversations) importFolder(ctx context.Context, dir string) {
	entries, err := m.list(dir)
	if err != nil {
		m.failed("session", dir, err)
		return
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch ext := path.Ext(name); {
		case ctx.Err() != nil, strings.HasSuffix(name, ".meta.json"),
			strings.HasSuffix(name, ".checkpoint.json"): // of a turn that nanobot had not ended
		case e.IsDir():
			if workspaceID().MatchString(e.Name()) {
				m.importFolder(ctx, name)
			}
		case ext == ".jsonl":
			m.importOne(ctx, inFile(m.Source, name, ""))
		case ext == ".json":
			m.failed("session", name, skipError("an old version of PicoClaw wrote it: start a "+
				"newer one, which converts it to .jsonl"))
		case ext == ".sqlite3":
			m.failed("session", name, skipError("a newer nanobot keeps conversations in this "+
				"database: its command sessions export-jsonl writes them as files, which the "+
				"import reads"))
		}
	}
}

// A transcript is a session of the other agent.
type transcript struct {
	name string // as people see it
	key  string // the one in the index of OpenClaw, or ""
	id   string // of an archived session of OpenClaw
	old  bool   // it ended before the current one of its conversation began
	open func() (io.ReadSeekCloser, error)
	read func(io.ReadSeeker, *time.Location) (ForeignHeader, iter.Seq2[session.Line, error], error)

	// Set by readHead:
	head session.Head
	lost int // messages that are dropped
}

// inFile returns the transcript in a file.
func inFile(s *Source, name, key string) transcript {
	return transcript{name: name, key: key, read: ReadSession,
		open: func() (io.ReadSeekCloser, error) {
			f, err := s.open(name)
			if err != nil || !strings.HasSuffix(name, ".zst") {
				return f, err
			}
			d, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxJSON))
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return &decompressed{d, f, maxBase}, nil
		}}
}

// importOne imports the session of one conversation.
func (m conversations) importOne(ctx context.Context, t transcript) {
	f, _, done, err := m.load(t)
	if err != nil {
		m.failed("session", t.name, err)
		return
	}
	done()
	to, err := m.book.place(f, t.name)
	if err != nil {
		m.failed("session", t.name, err)
		return
	}
	m.join(ctx, to, []transcript{t})
}

// join imports the transcripts of one conversation. At most one is not old. The messages of
// the old ones are no longer in the prompt, as after /new.
func (m conversations) join(ctx context.Context, to bus.Address, list []transcript) {
	var good []transcript
	for _, t := range list {
		err := m.readHead(&t)
		if err == nil && t.head.Messages == 0 {
			err = skipError("it has no messages")
		}
		if err != nil {
			m.failed("session", t.name, err)
			continue
		}
		good = append(good, t)
	}
	if len(good) == 0 {
		return
	}
	slices.SortStableFunc(good, func(a, b transcript) int {
		switch {
		case a.old == b.old:
			return a.head.Created.Compare(b.head.Created)
		case a.old:
			return -1
		}
		return 1
	})
	h := joined(good)
	h.Key, h.Address, h.Scope = session.KeyOf(to), to, m.book.scopeOf(to)
	info, err := session.ReadInfo(m.DB.Read(ctx), h.Key)
	if err == nil && info.Messages == 0 && !m.dry {
		err = m.DB.Tx(ctx, func(tx *store.Tx) error { return m.insert(tx, good, h) })
	}
	for _, t := range good {
		text := fmt.Sprintf("%d messages", t.head.Messages)
		if t.old {
			text += ", an old conversation"
		}
		if t.lost > 0 {
			text += fmt.Sprintf(", %d system, empty or damaged messages left out", t.lost)
		}
		switch {
		case errors.Is(err, session.ErrExists), err == nil && (info.Messages > 0 || m.filled[h.Key]):
			m.report("session", t.name, h.Key.String(), Same, "this conversation exists already")
		case err != nil:
			m.failed("session", t.name, err)
		default:
			m.report("session", t.name, h.Key.String(), New, text)
		}
	}
	m.filled[h.Key] = true
}

// joined returns the header of a session that has the messages of several, one after another.
func joined(list []transcript) session.Head {
	h := list[len(list)-1].head
	if list[len(list)-1].old {
		h.Start, h.Summary = h.Messages, ""
	}
	for _, t := range list[:len(list)-1] {
		h.Messages, h.Start = h.Messages+t.head.Messages, h.Start+t.head.Messages
		h.Turns += t.head.Turns
		h.Updated = later(h.Updated, t.head.Updated)
	}
	h.Created = list[0].head.Created
	return h
}

// readHead reads a whole session and sets its head, without its key, and the number of dropped
// messages.
func (m conversations) readHead(t *transcript) error {
	f, lines, done, err := m.load(*t)
	if err != nil {
		return err
	}
	defer done()
	t.head, t.lost, err = ReadHead(f, lines, m.Now)
	return err
}

// KeyOfFile returns the key of a session from its file name. Older versions store it only there.
func KeyOfFile(name string) string {
	base := path.Base(filepath.ToSlash(name))
	base = strings.TrimSuffix(base, path.Ext(base))
	if strings.HasPrefix(base, opaque) {
		return base
	}
	return strings.Replace(base, "_", ":", 1)
}

// ReadHead reads all lines of a session. It returns the header to write, without its key and
// address, and the number of dropped messages.
func ReadHead(
	f ForeignHeader, lines iter.Seq2[session.Line, error], now time.Time,
) (h session.Head, lost int, err error) {
	h = session.Head{Summary: f.Summary, Created: f.Created, Updated: f.Updated}
	lost = f.damaged
	seen := 0
	for line, err := range lines {
		if err != nil {
			return h, 0, err
		}
		if seen++; line.Message.Role == "" {
			lost++
			continue
		}
		if h.Messages++; seen <= f.Start {
			h.Start++
		}
		h.Turns = line.Turn
		h.Created = cmp.Or(h.Created, line.Time)
		h.Updated = later(h.Updated, line.Time)
	}
	if f.Start > seen { // nanobot ignores such a number, too
		h.Start = 0
	}
	h.Created = cmp.Or(h.Created, now)
	h.Updated = later(h.Updated, h.Created)
	return h, lost, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// insert writes the sessions that readHead has checked as one.
func (m conversations) insert(tx *store.Tx, list []transcript, h session.Head) error {
	var opts session.ImportOptions
	if h.Scope != "" {
		opts.Archive = Archiver(m.Memory, h.Scope, h.Key)
	}
	_, err := session.Import(tx, h, func(yield func(session.Line, error) bool) {
		turns := 0
		for _, t := range list {
			_, lines, done, err := m.load(t)
			if err != nil {
				yield(session.Line{}, err)
				return
			}
			for line, err := range WithRole(lines, t.head.Created) {
				if line.Turn += turns; !yield(line, err) {
					done()
					return
				}
			}
			done()
			turns += t.head.Turns
		}
	}, opts)
	return err
}

// WithRole drops the lines without a role, and sets the time of lines without a time to since.
func WithRole(
	lines iter.Seq2[session.Line, error], since time.Time,
) iter.Seq2[session.Line, error] {
	return func(yield func(session.Line, error) bool) {
		for line, err := range lines {
			if err == nil && line.Message.Role == "" {
				continue
			}
			line.Time = cmp.Or(line.Time, since)
			if !yield(line, err) {
				return
			}
		}
	}
}

// Archiver returns a function that makes messages which are no longer in the prompt searchable in
// a scope.
func Archiver(
	m *memory.Memory, scope memory.Scope, key session.Key,
) func(tx *store.Tx, list []session.Entry) error {
	return func(tx *store.Tx, list []session.Entry) error {
		var said []memory.Message
		for _, e := range list {
			r := e.Message.Role
			if (r == llm.User || r == llm.Assistant) && e.Message.Text != "" {
				said = append(said, memory.Message{ID: e.ID, Time: e.Time, Session: key.String(),
					Speaker: string(r), Text: e.Message.Text})
			}
		}
		return m.In(scope).Archive(tx, said)
	}
}

// load opens a session. The caller closes it with done.
func (m conversations) load(
	t transcript,
) (f ForeignHeader, lines iter.Seq2[session.Line, error], done func(), err error) {
	file, err := t.open()
	if err != nil {
		return f, nil, nil, err
	}
	closing := func() { _ = file.Close() } // the error does not matter after reading
	f, lines, err = t.read(file, m.Location)
	if err == nil && m.kind != OpenClaw {
		err = m.meta(strings.TrimSuffix(t.name, ".jsonl")+".meta.json", &f)
	}
	if err != nil {
		closing()
		return f, nil, nil, err
	}
	return f, lines, closing, nil
}

// meta reads the .meta.json that PicoClaw writes beside its messages, if it exists.
func (m conversations) meta(name string, f *ForeignHeader) error {
	text, err := m.read(name, maxJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var h foreignHead
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err == nil {
		*f, err = h.parse(m.Location)
	}
	return store.Wrap(err, "%s", path.Base(name))
}

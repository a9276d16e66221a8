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
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store/plaintext"
)

// OpenClaw's sessions are trees of entries: each entry names its parent, and abandoned branches
// stay in the file. The conversation is the branch that ends with the last entry.

// A clawEntry is a line of a session of OpenClaw.
type clawEntry struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Parent    json.RawMessage `json:"parentId"`         // missing: the last entry
	Target    string          `json:"targetId"`         // of a "leaf": the last entry now
	Mode      string          `json:"appendMode"`       // "side": does not become the last entry
	Timestamp json.RawMessage `json:"timestamp"`        // a text or milliseconds
	Summary   string          `json:"summary"`          // of a "compaction"
	Kept      string          `json:"firstKeptEntryId"` // of a "compaction" or a "reset"
	Message   *struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"toolCallId"`
		Timestamp  json.RawMessage `json:"timestamp"`
	} `json:"message"`
}

// parent returns the entry before e, if last was the last one when e was written. It returns "" for
// the first entry.
func (e clawEntry) parent(last string) (id string) {
	if len(e.Parent) == 0 {
		return last
	}
	_ = json.Unmarshal(e.Parent, &id) // anything else is no entry
	return id
}

// clawTime returns the time of an entry; zero if it is unknown. Times are a text, or milliseconds
// since 1970.
func clawTime(raw json.RawMessage, loc *time.Location) time.Time {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		t, _ := parseTime(text, loc)
		return t
	}
	var ms float64
	if json.Unmarshal(raw, &ms) != nil || ms <= 0 || ms > 1e14 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// maxEntries is the maximum number of entries in a session of OpenClaw. The entries are held in
// memory, without their messages.
const maxEntries = 1 << 20

// damaged is the type of an entry whose line is no JSON. OpenClaw leaves such lines out, too.
const damaged = "damaged"

// clawEntries returns the entries of a session. It ends after the first error.
func clawEntries(r io.Reader) iter.Seq2[clawEntry, error] {
	count := 0
	return parseLines(r, func(line []byte) (e clawEntry, use bool, err error) {
		if count++; count > maxEntries+1 { // one is the header
			return e, false, fmt.Errorf("it has more than %d entries", maxEntries)
		}
		if !json.Valid(line) {
			return clawEntry{Type: damaged}, true, nil
		}
		return e, true, json.Unmarshal(line, &e)
	})
}

// readClaw is [ReadSession] for a session of OpenClaw. It reads r twice: first to find the branch,
// then for its messages.
func readClaw(
	r io.ReadSeeker, loc *time.Location,
) (f ForeignHeader, lines iter.Seq2[session.Line, error], err error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return f, nil, err
	}
	t := clawTree{parents: make(map[string]string), messages: make(map[string]bool),
		borders: make(map[string]clawEntry)}
	for e, err := range clawEntries(r) {
		switch {
		case err != nil:
			return f, nil, err
		case e.Type == "session":
			f.Created = clawTime(e.Timestamp, loc)
		case e.Type == damaged:
			f.damaged++
			t.gap = true
		default:
			t.add(e)
		}
	}
	branch := t.branch(&f)
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return f, nil, err
	}
	c := converter{loc: loc, last: f.Created}
	// The second pass holds only one message in memory at a time.
	return f, func(yield func(session.Line, error) bool) {
		for e, err := range clawEntries(r) {
			if err != nil {
				yield(session.Line{}, err)
				return
			}
			if e.Message == nil || !branch[e.ID] {
				continue
			}
			if !yield(c.claw(e), nil) {
				return
			}
		}
	}, nil
}

// A clawTree has the entries of a session without their text.
type clawTree struct {
	parents  map[string]string
	messages map[string]bool
	borders  map[string]clawEntry // compactions and resets
	last     string
	gap      bool // a line was damaged
}

// add adds the next entry of the file. An entry without an id can't be a parent, so it is left out.
func (t *clawTree) add(e clawEntry) {
	if e.Type == "leaf" {
		if _, known := t.parents[e.Target]; known {
			t.last = e.Target
		}
		if e.ID != "" {
			t.parents[e.ID] = t.last // an entry that follows the mark follows its target
		}
		return
	}
	if e.ID == "" {
		return
	}
	parent := e.parent(t.last)
	if _, known := t.parents[parent]; t.gap && parent != "" && !known {
		parent = t.last // its line is damaged, and most entries follow the one before
	}
	t.parents[e.ID], t.messages[e.ID] = parent, e.Message != nil
	if e.Mode != "side" {
		t.last = e.ID
	}
	if e.Type == "reset" || e.Type == "compaction" && e.Summary != "" {
		e.Message = nil
		t.borders[e.ID] = e
	}
}

// branch returns the entries up to the last one, and sets the summary of f and how many messages
// before the newest compaction or reset are no longer in the prompt.
func (t *clawTree) branch(f *ForeignHeader) map[string]bool {
	branch := make(map[string]bool)
	border := "" // the newest one
	// The parents lead from the end to the beginning. A damaged file can have a circle.
	for id := t.last; id != "" && !branch[id]; id = t.parents[id] {
		if _, known := t.parents[id]; !known {
			break
		}
		branch[id] = true
		if _, ok := t.borders[id]; ok && border == "" {
			border = id
		}
	}
	e, ok := t.borders[border]
	if !ok {
		return branch
	}
	f.Summary = e.Summary
	kept := e.Kept // first entry that is still in the prompt after it
	if kept == "" && e.Type == "reset" {
		kept = border
	}
	before := make(map[string]bool) // in a damaged file, entries may be their own ancestors
	for id := t.parents[kept]; branch[id] && !before[id]; id = t.parents[id] {
		if before[id] = true; t.messages[id] {
			f.Start++
		}
	}
	return branch
}

// claw converts an entry of OpenClaw. It returns a line without a role if the entry does not belong
// into a transcript.
func (c *converter) claw(e clawEntry) session.Line {
	c.last = cmp.Or(clawTime(e.Timestamp, c.loc), clawTime(e.Message.Timestamp, c.loc), c.last)
	m := llm.Message{Role: llm.Role(e.Message.Role)}
	if e.Message.Role == "toolResult" {
		m.Role, m.ToolCallID = llm.ToolRole, e.Message.ToolCallID
	}
	text, parts, err := content(e.Message.Content)
	if err != nil {
		return session.Line{}
	}
	m.Text = text
	for _, p := range parts {
		switch {
		case m.Role != llm.Assistant:
		case p.Type == "thinking":
			m.Reasoning += p.Thinking
		case p.Type == "toolCall" && p.ID != "" && p.Name != "": // others no provider would accept
			m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: p.ID, Name: p.Name,
				Arguments: cmp.Or(string(p.Arguments), "{}")})
		}
	}
	// Such an entry has nothing to show, is of another kind, or would make the model's provider
	// refuse the transcript.
	if m.Text == "" && len(m.ToolCalls) == 0 && m.Role != llm.ToolRole ||
		m.Role != llm.User && m.Role != llm.Assistant && m.ToolCallID == "" ||
		session.CheckMessage(m) != nil {
		return session.Line{}
	}
	if m.Role == llm.User || c.turn == 0 {
		c.turn++
	}
	return session.Line{Time: c.last, Turn: c.turn, Message: m}
}

// A clawAgent imports the conversations of an agent of OpenClaw.
type clawAgent struct {
	conversations
	dir   string            // of its sessions
	keys  map[string]string // by the id of a session
	ids   map[string]bool   // of sessions that are in found
	found []transcript
}

// importClaw imports the conversations of OpenClaw's agents.
func (m conversations) importClaw(ctx context.Context) {
	agents, err := m.list("agents")
	if err != nil {
		m.failed("session", "agents", err)
	}
	for _, agent := range agents {
		if ctx.Err() != nil {
			return
		}
		a := clawAgent{conversations: m, dir: path.Join("agents", agent.Name(), "sessions"),
			keys: make(map[string]string), ids: make(map[string]bool)}
		base := path.Join("agents", agent.Name(), "agent", "openclaw-agent.sqlite")
		opened := false
		if m.isFile(base) {
			// The rows can be read only while the copy exists, so the sessions are imported within
			// the call.
			err := withClawBase(ctx, m.Source, base, func(b *clawBase) error {
				opened = true
				err := a.base(b, base)
				a.importFound(ctx)
				return err
			})
			if err != nil {
				m.failed("session", base, err)
			}
		}
		if !opened {
			a.importFound(ctx)
		}
	}
}

// base adds the sessions in a database of OpenClaw. Their lines are the rows of the database.
func (a *clawAgent) base(b *clawBase, name string) error {
	sessions, err := b.sessions()
	for _, s := range sessions {
		a.keys[s.id] = cmp.Or(a.keys[s.id], s.key)
		if s.rows && !a.ids[s.id] {
			a.ids[s.id] = true
			t := transcript{name: name + ": " + s.key, key: s.key, old: s.old, read: readClaw,
				open: func() (io.ReadSeekCloser, error) { return b.transcript(s.id) }}
			if s.old {
				t.name += ", session " + s.id
			}
			a.found = append(a.found, t)
		}
	}
	return err
}

// importFound imports the sessions of the database, those of the index, and then the archived ones.
func (a *clawAgent) importFound(ctx context.Context) {
	if err := a.index(); err != nil {
		a.failed("session", path.Join(a.dir, "sessions.json"), err)
	}
	for _, dir := range []string{a.dir, path.Join(a.dir, "archive")} {
		if err := a.archive(dir); err != nil {
			a.failed("session", dir, err)
		}
	}
	places := make([]bus.Address, len(a.found))
	problems := make([]error, len(a.found))
	old := make(map[bus.Address][]transcript)
	for i, t := range a.found {
		if places[i], problems[i] = a.place(ctx, t); problems[i] == nil && t.old {
			old[places[i]] = append(old[places[i]], t)
		}
	}
	for i, t := range a.found { // a conversation gets its old sessions together with the current one
		switch to := places[i]; {
		case problems[i] != nil:
			a.failed("session", t.name, problems[i])
		case !t.old:
			a.join(ctx, to, append(old[to], t))
			delete(old, to)
		}
	}
	for _, to := range places {
		if len(old[to]) > 0 {
			a.join(ctx, to, old[to])
			delete(old, to)
		}
	}
}

// index adds the sessions in an index of OpenClaw, except those whose keys the database has.
func (a *clawAgent) index() error {
	text, err := a.read(path.Join(a.dir, "sessions.json"), maxJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var index object
	if err == nil {
		index, err = parseObject(text)
	}
	if err != nil {
		return err
	}
	newer := make(map[string]bool)
	for _, t := range a.found {
		newer[t.key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(index)) {
		entry, err := index.table(key)
		if err != nil {
			a.failed("session", path.Join(a.dir, "sessions.json"), err)
			continue
		}
		id := entry.text("sessionId")
		var ids []string
		if json.Unmarshal(entry["usageFamilySessionIds"], &ids) != nil {
			ids = nil // the value is not a list of strings
		}
		for _, old := range append(ids, id) {
			a.keys[old] = cmp.Or(a.keys[old], key)
		}
		if newer[key] {
			continue
		}
		// The index can have the path of another machine, also one of Windows.
		file := path.Base(strings.ReplaceAll(entry.text("sessionFile"), `\`, "/"))
		if file == "." && id != "" {
			file = path.Base(id) + ".jsonl"
		}
		name := path.Join(a.dir, file)
		if file == "." || file == ".." || !a.isFile(name) {
			a.failed("session", name, skipError("its transcript is missing"))
			continue
		}
		a.ids[id], a.ids[strings.TrimSuffix(file, ".jsonl")] = true, true
		a.found = append(a.found, inFile(a.Source, name, key))
	}
	return nil
}

// archived matches the names of transcripts: ID.jsonl, ID-topic-THREAD.jsonl, and since a reset or
// the deletion of the session ID.jsonl.reset.TIME or ID.jsonl.deleted.TIME, compressed or not.
var archived = plaintext.Pattern(
	`^(.+?)(-topic-.+)?\.jsonl(\.(?:reset|deleted)\.[0-9TZ.-]+?)?(\.zst)?$`)

// copied matches the ids of files that OpenClaw writes beside a transcript, with the same content.
var copied = plaintext.Pattern(`\.(trajectory|checkpoint\.[0-9a-fA-F-]{36})$`)

// archive adds the transcripts in a folder that are not those of current sessions.
func (a *clawAgent) archive(dir string) error {
	files, err := a.list(dir)
	for _, e := range files {
		name := path.Join(dir, e.Name())
		match := archived().FindStringSubmatch(e.Name())
		if match == nil || !e.Type().IsRegular() || copied().MatchString(match[1]) {
			continue
		}
		id := match[1]
		// The transcript of a current session is imported already. Those since a reset are not.
		if match[3] == "" && (a.ids[id] || a.ids[id+match[2]]) {
			continue
		}
		t := inFile(a.Source, name, a.keys[id])
		t.id, t.old = id, true
		a.found = append(a.found, t)
	}
	return err
}

// place returns the address here of a session of OpenClaw, whose key is for example
// "agent:main:telegram:direct:42". The session "agent:main:main" has all direct chats; its address
// is the direct chat of the owner. The text of an error says why a session has no address here.
func (a *clawAgent) place(ctx context.Context, t transcript) (bus.Address, error) {
	none := func(why string) (bus.Address, error) { return bus.Address{}, skipError(why) }
	for _, name := range []string{t.key, t.id} {
		if to := a.book.Chosen[name]; to.Chat != "" {
			return to, nil
		}
	}
	settings, _ := a.config.table("session") // OpenClaw has defaults for all of them
	mainKey := settings.text("mainKey")
	parts := strings.Split(t.key, ":")
	switch {
	case t.key == "":
		return none("OpenClaw does not say whose old session this is: --as " + t.id +
			"=ACCOUNT/CHAT imports it into a conversation")
	case len(parts) < 3 || parts[0] != "agent":
		return none("it belongs to a job or a program, not to a chat")
	case len(parts) == 3 && parts[2] == cmp.Or(mainKey, "main"):
		if a.book.Owner.Chat.Chat == "" {
			return none("it has the owner's direct chats, but the owner has no direct chat here yet: " +
				"write to the gateway, stop it, and import again")
		}
		return a.book.Owner.Chat, nil
	}
	kinds := []string{"direct", "dm", "group", "channel"}
	if len(parts) == 4 && slices.Contains(kinds[:2], parts[2]) {
		return none("it has one person's chats on all platforms: --as " + t.key +
			"=ACCOUNT/CHAT imports it into one of them")
	}
	if len(parts) >= 6 && slices.Contains(kinds, parts[4]) { // with an account
		parts = slices.Delete(parts, 3, 4)
	}
	if len(parts) < 5 || !slices.Contains(kinds, parts[3]) {
		return none("it belongs to a sub-agent, a job or several chats, not to one chat")
	}
	to, err := a.book.address(strings.Join(parts, ":"))
	direct := parts[3] == "direct" || parts[3] == "dm"
	if err != nil || !direct || parts[2] == "telegram" {
		return to, err
	}
	// Except on Telegram, a person's id there is not the id of their chat here.
	chat, err := a.book.directChat(ctx, a.DB, to)
	if err == nil && chat == (bus.Address{}) {
		err = newSkipError("this person's chat here is not known yet: --as %s=ACCOUNT/CHAT imports it",
			t.key)
	}
	return chat, err
}

// A decompressed is a file that was compressed.
type decompressed struct {
	*zstd.Decoder
	file *os.File
	left int64 // bytes that may still be read
}

func (d *decompressed) Read(p []byte) (int, error) {
	n, err := d.Decoder.Read(p)
	if d.left -= int64(n); d.left < 0 {
		return 0, fmt.Errorf("it has more than %d bytes", int64(maxBase))
	}
	return n, err
}

// Seek goes back to the beginning, the only place to which callers go.
func (d *decompressed) Seek(int64, int) (int64, error) {
	d.left = maxBase
	_, err := d.file.Seek(0, io.SeekStart)
	return 0, errors.Join(err, d.Reset(d.file))
}

func (d *decompressed) Close() error {
	d.Decoder.Close()
	return d.file.Close()
}

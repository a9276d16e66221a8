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
	"path"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
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

// parent returns the entry before e, if last was the last one when e was written.
func (e clawEntry) parent(last string) (id string) {
	if len(e.Parent) == 0 {
		return last
	}
	_ = json.Unmarshal(e.Parent, &id) // anything else is no entry
	return id
}

// clawTime returns the time of an entry; zero if it is unknown.
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

// clawEntries returns the entries of a session. It ends after the first error.
func clawEntries(r io.Reader) iter.Seq2[clawEntry, *session.LineError] {
	return func(yield func(clawEntry, *session.LineError) bool) {
		next := session.ReadLines(r, session.MaxLine)
		for count := 0; ; count++ {
			text, n, err := next()
			if errors.Is(err, io.EOF) {
				return
			}
			var e clawEntry
			if err == nil {
				err = json.Unmarshal(text, &e)
			}
			if err == nil && count > maxEntries {
				err = fmt.Errorf("it has more than %d entries", maxEntries)
			}
			if err != nil {
				yield(e, &session.LineError{Line: n, Err: err})
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// readClaw is [ReadSession] for a session of OpenClaw. It reads r twice: first to find the branch,
// then for its messages.
func readClaw(
	r io.ReadSeeker, loc *time.Location,
) (f Foreign, lines iter.Seq2[session.Line, error], err error) {
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
		default:
			t.add(e)
		}
	}
	branch := t.branch(&f)
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return f, nil, err
	}
	c := converter{loc: loc, last: f.Created}
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

// A clawTree is the entries of a session without what they say.
type clawTree struct {
	parents  map[string]string
	messages map[string]bool
	borders  map[string]clawEntry // compactions and resets
	last     string
}

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
	t.parents[e.ID], t.messages[e.ID] = e.parent(t.last), e.Message != nil
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
func (t *clawTree) branch(f *Foreign) map[string]bool {
	branch := make(map[string]bool)
	border := "" // the newest one
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
	var parts []struct {
		Type, Text, Thinking, ID, Name string
		Arguments                      json.RawMessage
	}
	if json.Unmarshal(e.Message.Content, &m.Text) != nil &&
		json.Unmarshal(e.Message.Content, &parts) != nil {
		return session.Line{}
	}
	var texts []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "thinking":
			m.Reasoning += p.Thinking
		case "toolCall":
			m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: p.ID, Name: p.Name,
				Arguments: cmp.Or(string(p.Arguments), "{}")})
		default:
			texts = append(texts, "["+cmp.Or(p.Type, "part")+"]")
		}
	}
	if m.Text = cmp.Or(strings.Join(texts, "\n"), m.Text); m.Role != llm.Assistant {
		m.Reasoning, m.ToolCalls = "", nil
	}
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

// importClaw imports the conversations of OpenClaw's agents.
func importClaw(ctx context.Context, m *mover) {
	agents, err := m.list("agents")
	if err != nil {
		m.failed("session", "agents", err)
	}
	for _, agent := range agents {
		if ctx.Err() != nil {
			return
		}
		dir := path.Join("agents", agent.Name())
		newer := importClawBase(ctx, m, path.Join(dir, "agent", "openclaw-agent.sqlite"))
		if err := importClawIndex(ctx, m, path.Join(dir, "sessions"), newer); err != nil {
			m.failed("session", path.Join(dir, "sessions", "sessions.json"), err)
		}
	}
}

// importClawIndex imports the conversations in an index of OpenClaw, except those whose keys are in
// newer.
func importClawIndex(
	ctx context.Context, m *mover, dir string, newer map[string]bool,
) error {
	text, err := m.read(path.Join(dir, "sessions.json"), maxJSON)
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
	for _, key := range slices.Sorted(maps.Keys(index)) {
		if newer[key] || ctx.Err() != nil {
			continue
		}
		entry, err := index.table(key)
		if err != nil {
			return err
		}
		file := path.Base(strings.ReplaceAll(entry.text("sessionFile"), `\`, "/"))
		if id := entry.text("sessionId"); file == "." && id != "" {
			file = path.Base(id) + ".jsonl"
		}
		name := path.Join(dir, file)
		if file == "." || file == ".." || !m.isFile(name) {
			m.say("session", name, "", Left, "its transcript is not there")
			continue
		}
		m.session(ctx, inFile(m.Source, name, key))
	}
	return nil
}

// clawPlace returns the address here of a session key of OpenClaw, such as
// "agent:main:telegram:direct:42". The session "agent:main:main" has all direct chats; its address
// is the direct chat of the owner. The text of an error says why a session has no address here.
func clawPlace(m *mover, key string) (bus.Address, error) {
	none := func(why string) (bus.Address, error) { return bus.Address{}, errors.New(why) }
	parts := strings.Split(key, ":")
	if len(parts) < 3 || parts[0] != "agent" {
		return none("it belongs to a job or a program, and to no chat")
	}
	if len(parts) == 3 && parts[2] == cmp.Or(m.clawMain(), "main") {
		if m.Owner.Chat.Chat == "" {
			return none("it has the owner's direct chats, and no such chat is known here")
		}
		return m.Owner.Chat, nil
	}
	kinds := []string{"direct", "dm", "group", "channel"}
	if len(parts) >= 6 && slices.Contains(kinds, parts[4]) { // with an account
		parts = slices.Delete(parts, 3, 4)
	}
	if len(parts) < 5 || !slices.Contains(kinds, parts[3]) {
		return none("it names no chat: it is of a sub-agent, a job or several chats")
	}
	a, err := m.address(strings.Join(parts, ":"))
	direct := parts[3] == "direct" || parts[3] == "dm"
	switch {
	case err != nil || !direct || parts[2] == "telegram":
		return a, err
	}
	for _, p := range m.People { // except on Telegram, the ids of a person and their chat differ
		if p.Account == a.Account && p.Sender == a.Chat && p.ID == m.Owner.Person &&
			m.Owner.Chat.Account == a.Account {
			return m.Owner.Chat, nil
		}
	}
	return none("which chat this person has here is not known: gateway sessions import FILE --as " +
		"SESSION gives it one")
}

// clawMain returns the configured name of the session with the direct chats, or "" for OpenClaw's
// default.
func (s *Source) clawMain() string {
	t, err := s.config.table("session")
	if err != nil {
		return ""
	}
	return t.text("mainKey")
}

// clawSettings reports how to write the settings of OpenClaw in config.toml. It shows no secrets.
func (s *Source) clawSettings(say func(kind, from, to string, state State, text string)) {
	if s.config == nil {
		if s.isFile("openclaw.json") {
			say("setting", "openclaw.json", "", Left,
				"it is no JSON5: take its settings over by hand")
		}
		return
	}
	at := func(keys ...string) (t object) {
		t = s.config
		for _, key := range keys {
			t, _ = t.table(key) // a setting of another type is not reported
		}
		return t
	}
	tell := func(key, text string) { say("setting", key, "", Left, text) }
	model := at("agents", "defaults", "model").text("primary")
	if model == "" {
		model = at("agents", "defaults").text("model")
	}
	if model != "" {
		_, id, _ := strings.Cut(model, "/")
		tell("agents.defaults.model", fmt.Sprintf("here: [models.main] model = %q, with its key", id))
	}
	if zone := at("agents", "defaults").text("userTimezone"); zone != "" {
		tell("agents.defaults.userTimezone", fmt.Sprintf("here: [gateway] timezone = %q", zone))
	}
	for _, name := range slices.Sorted(maps.Keys(at("channels"))) {
		if slices.Contains(platforms, name) && at("channels", name).flag("enabled", true) {
			tell("channels."+name, "here: [channels."+name+"], with a token of its own or "+
				"gateway pair; people let themselves in")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(at("mcp", "servers"))) {
		tell("mcp.servers."+name, "here: [mcp."+name+"]")
	}
}

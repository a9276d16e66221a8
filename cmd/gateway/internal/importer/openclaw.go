package importer

import (
	"cmp"
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
	Type      string `json:"type"`
	ID        string `json:"id"`
	Parent    string `json:"parentId"`
	Target    string `json:"targetId"` // of a "leaf": the entry that is now the last one
	Timestamp string `json:"timestamp"`
	Summary   string `json:"summary"`          // of a "compaction"
	Kept      string `json:"firstKeptEntryId"` // of a "compaction"
	Message   *struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"toolCallId"`
	} `json:"message"`
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
	parents := make(map[string]string)
	compactions := make(map[string]clawEntry)
	messages := make(map[string]bool)
	leaf := ""
	for e, err := range clawEntries(r) {
		switch {
		case err != nil:
			return f, nil, err
		case e.Type == "session":
			f.Created, _ = parseTime(e.Timestamp, loc) // zero: unknown
		case e.Type == "leaf":
			leaf = cmp.Or(e.Target, leaf)
		case e.ID != "":
			parents[e.ID], leaf = e.Parent, e.ID
			if e.Type == "compaction" {
				e.Message = nil
				compactions[e.ID] = e
			}
			messages[e.ID] = e.Message != nil
		}
	}
	branch := make(map[string]bool)
	var kept string // first entry that is still in the prompt after the newest compaction
	for id := leaf; id != "" && !branch[id]; id = parents[id] {
		if _, known := parents[id]; !known {
			break
		}
		if branch[id] = true; f.Summary == "" {
			f.Summary, kept = compactions[id].Summary, compactions[id].Kept
		}
	}
	if f.Summary != "" {
		before := make(map[string]bool) // in a damaged file, entries may be their own ancestors
		for id := parents[kept]; branch[id] && !before[id]; id = parents[id] {
			if before[id] = true; messages[id] {
				f.Start++
			}
		}
	}
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

// claw converts an entry of OpenClaw. It returns a line without a role if the entry does not belong
// into a transcript.
func (c *converter) claw(e clawEntry) session.Line {
	if at, err := parseTime(e.Timestamp, c.loc); err == nil && !at.IsZero() {
		c.last = at
	}
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

// A clawSession is an entry of OpenClaw's index of sessions.
type clawSession struct {
	key, file string
	problem   string // why it can't be imported; "": it can
}

// clawSessions returns the sessions in the indexes of OpenClaw's agents.
func (s *Source) clawSessions() (list []clawSession, err error) {
	agents, err := s.list("agents")
	for _, agent := range agents {
		dir := path.Join("agents", agent.Name(), "sessions")
		text, err := s.read(path.Join(dir, "sessions.json"), maxJSON)
		if errors.Is(err, fs.ErrNotExist) {
			base := path.Join("agents", agent.Name(), "agent", "openclaw-agent.sqlite")
			if s.isFile(base) {
				list = append(list, clawSession{file: base, problem: "newer versions of OpenClaw " +
					"keep conversations in this database, which is not read"})
			}
			continue
		}
		var index object
		if err == nil {
			index, err = parseObject(text)
		}
		if err != nil {
			return list, fmt.Errorf("%s: %w", path.Join(dir, "sessions.json"), err)
		}
		for _, key := range slices.Sorted(maps.Keys(index)) {
			entry, err := index.table(key)
			if err != nil {
				return list, fmt.Errorf("%s: %w", path.Join(dir, "sessions.json"), err)
			}
			file := path.Base(strings.ReplaceAll(entry.text("sessionFile"), `\`, "/"))
			if id := entry.text("sessionId"); file == "." && id != "" {
				file = path.Base(id) + ".jsonl"
			}
			one := clawSession{key: key, file: path.Join(dir, file)}
			if file == "." || file == ".." || !s.isFile(one.file) {
				one.problem = "its transcript is not there"
			}
			list = append(list, one)
		}
	}
	return list, err
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
				"it is not plain JSON: take its settings over by hand")
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

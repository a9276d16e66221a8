package e2e

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"gateway/agent/llm/openai/openaitest"
)

// A longTurn is a message of the person and what the model does after it.
type longTurn struct {
	n      int
	text   string
	rounds [][]openaitest.ToolCall // rounds of tool calls before the answer
	say    string
}

// use adds a round with a tool call.
func (t *longTurn) use(tool string, args map[string]any) {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // args can always be encoded
	}
	t.rounds = append(t.rounds, []openaitest.ToolCall{{
		ID:   fmt.Sprintf("call_%d_%d", t.n, len(t.rounds)),
		Name: tool, Arguments: string(text)}})
}

// The kinds of model calls.
const (
	longReply = "answer"
	longNotes = "notes"
	longDream = "dream"
)

// A longCall is a model call with its sizes in tokens.
type longCall struct {
	kind                       string
	turn                       int
	prompt, cached, completion int
	same                       bool // the prompt begins with the whole previous one
}

// A longModel follows its script, and counts tokens like a provider.
type longModel struct {
	t      testing.TB
	window int // limit for prompt and answer, in tokens; 0: no limit

	mu     sync.Mutex
	turn   longTurn
	newest map[string][]string // the parts of the newest prompt, by kind
	counts map[string]int      // tokens, by text
	calls  []longCall
	asked  openaitest.Request // newest request for an answer
	dreams int
}

func newLongModel(t testing.TB, window int) *longModel {
	return &longModel{t: t, window: window,
		newest: make(map[string][]string), counts: make(map[string]int)}
}

// begin starts a turn.
func (m *longModel) begin(turn longTurn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn = turn
}

// answer implements [openaitest.Answer].
func (m *longModel) answer(r openaitest.Request) openaitest.Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	var reply openaitest.Reply
	kind, system := longReply, r.Messages[0].Content
	switch {
	case strings.HasPrefix(system, "You keep the long-term notes"):
		kind, reply.Text = longNotes, []string{m.notes(r.Messages[1].Content)}
	case !strings.HasPrefix(system, "You look after the long-term memory"):
		reply = m.step(r)
	case r.HasTool("edit_document"):
		kind, reply.ToolCalls = longDream, m.edits(r.Messages[1].Content)
	default:
		kind, reply.Text = longDream, []string{m.findings(r.Messages[1].Content)}
	}
	return m.meter(kind, r, reply)
}

// step answers the person or calls a tool.
func (m *longModel) step(r openaitest.Request) openaitest.Reply {
	m.asked = r
	round := 0
	for _, message := range slices.Backward(r.Messages) {
		if message.Role == "user" {
			break
		}
		if message.Role == "assistant" {
			round++
		}
	}
	if round < len(m.turn.rounds) {
		return openaitest.Reply{ToolCalls: m.turn.rounds[round]}
	}
	return openaitest.Reply{Text: []string{m.turn.say}}
}

// meter counts the tokens of a call. The common prefix with the previous prompt of its kind
// counts as cached if it is long enough for a provider's cache.
func (m *longModel) meter(
	kind string, r openaitest.Request, reply openaitest.Reply,
) openaitest.Reply {
	const leastCached = 1024
	c := longCall{kind: kind, turn: m.turn.n, completion: m.tokens(strings.Join(reply.Text, ""))}
	for _, call := range reply.ToolCalls {
		c.completion += 4 + m.tokens(call.Name) + m.tokens(call.Arguments)
	}
	before := m.newest[kind]
	parts := promptParts(r)
	same := true
	for i, part := range parts {
		n := 4 + m.tokens(part)
		c.prompt += n
		switch {
		case !same:
		case i < len(before) && before[i] == part:
			c.cached += n
		default:
			if same = false; i < len(before) {
				c.cached += longTokens(part[:commonPrefix(before[i], part)])
			}
		}
	}
	c.same = len(before) > 0 && len(parts) >= len(before) &&
		slices.Equal(before, parts[:len(before)])
	if c.cached < leastCached {
		c.cached = 0
	}
	if m.window > 0 && c.prompt+c.completion > m.window {
		m.t.Errorf("turn %d: a prompt of %d tokens for %s, in a window of %d",
			c.turn, c.prompt, kind, m.window)
	}
	m.newest[kind] = parts
	m.calls = append(m.calls, c)
	reply.Usage = &openaitest.Usage{Prompt: c.prompt, Completion: c.completion,
		Total: c.prompt + c.completion}
	reply.Usage.Details.Cached = c.cached
	return reply
}

// promptParts returns the parts of a request in the order in which a provider reads them: tools,
// then messages.
func promptParts(r openaitest.Request) []string {
	var tools strings.Builder
	for _, t := range r.Tools {
		tools.WriteString(t.Name + "\n" + t.Description + "\n" + string(t.Schema) + "\n")
	}
	parts := []string{tools.String()}
	for _, message := range r.Messages {
		part := message.Role + "\n" + message.Content
		for _, c := range message.ToolCalls {
			part += "\n" + c.ID + " " + c.Name + " " + c.Arguments
		}
		parts = append(parts, part)
	}
	return parts
}

// commonPrefix returns the length of the common prefix in bytes. The prefix can end within a rune
// that is not ASCII.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (m *longModel) tokens(s string) int {
	n, ok := m.counts[s]
	if !ok {
		n = longTokens(s)
		m.counts[s] = n
	}
	return n
}

// longTokens counts tokens about as providers do. A short word with the space before it is one
// token, a longer word several. Digits count in threes and signs in pairs.
func longTokens(s string) (n int) {
	runes := []rune(s)
	for i := 0; i < len(runes); {
		j := i + 1
		class := classOf(runes[i])
		for j < len(runes) && classOf(runes[j]) == class {
			j++
		}
		switch class {
		case 'a':
			h := fnv.New32a()
			fmt.Fprint(h, string(runes[i:j]))
			n += 1 + (j-i-1)/8
			if h.Sum32()%7 == 0 && j-i > 3 {
				n++
			}
		case '0':
			n += (j - i + 2) / 3
		case 's':
			n += (j - i + 1) / 2
		case 'u':
			n += j - i
		case ' ':
			n += (j - i) / 8 // the last space is part of the next token
		case 'n':
			n++
		}
		i = j
	}
	return n
}

// classOf returns the class of r: letter, digit, space, line end, sign or other.
func classOf(r rune) byte {
	switch {
	case r == '\n':
		return 'n'
	case unicode.IsSpace(r):
		return ' '
	case '0' <= r && r <= '9':
		return '0'
	case r < 0x250 && unicode.IsLetter(r):
		return 'a'
	case r >= 0x250:
		return 'u'
	}
	return 's'
}

// clockHead matches the time at the beginning of a message.
var clockHead = regexp.MustCompile(`^\[[A-Z][a-z]+day [^\]]*\] `)

// notes returns the facts in a text without the small talk. Like a model, it overlooks some.
func (m *longModel) notes(text string) string {
	known := make(map[string]bool)
	for _, f := range longFacts {
		known[f.said] = true
	}
	var lines []string
	for line := range strings.Lines(text) {
		var said struct{ Day, Who, Text string }
		if json.Unmarshal([]byte(line), &said) != nil || said.Who != "user" {
			continue
		}
		text, _, _ := strings.Cut(clockHead.ReplaceAllString(said.Text, ""), "\n")
		h := fnv.New32a()
		fmt.Fprint(h, text)
		switch {
		case known[text] && h.Sum32()%4 != 0, strings.HasPrefix(text, "Remember the"):
		case h.Sum32()%8 == 0: // a sentence of small talk that seems to matter
		default:
			continue
		}
		lines = append(lines, fmt.Sprintf("- %s: The user said: %s", said.Day, text))
	}
	if len(lines) == 0 {
		return "(nothing)"
	}
	return strings.Join(lines, "\n")
}

// findings is the first phase of Dream: it selects some of the notes.
func (m *longModel) findings(text string) string {
	if m.dreams++; m.dreams%3 == 0 {
		return "[SKIP]"
	}
	var list []string
	for line := range strings.Lines(text) {
		if _, fact, ok := strings.Cut(line, "The user said: "); ok && len(list) < 3 &&
			len(fact) < 100 && strings.Count(text, strings.TrimSpace(fact)) == 1 {
			list = append(list, "[MEMORY] "+strings.TrimSpace(fact))
		}
	}
	if len(list) == 0 {
		return "[SKIP]"
	}
	return strings.Join(list, "\n")
}

// edits is the second phase of Dream: it adds a line for each fact.
func (m *longModel) edits(text string) (calls []openaitest.ToolCall) {
	add := func(name string, args map[string]string) {
		body, err := json.Marshal(args)
		if err != nil {
			panic(err) // args can always be encoded
		}
		calls = append(calls, openaitest.ToolCall{
			ID:   fmt.Sprintf("edit_%d_%d", m.dreams, len(calls)),
			Name: name, Arguments: string(body)})
	}
	_, changes, _ := strings.Cut(text, "# The changes to make")
	changes, _, _ = strings.Cut(changes, "# The documents")
	for line := range strings.Lines(changes) {
		if _, fact, ok := strings.Cut(line, "| [MEMORY] "); ok {
			add("edit_document", map[string]string{
				"name": "MEMORY.md", "old": "", "new": "- " + strings.TrimSpace(fact) + "\n"})
		}
	}
	add("done", map[string]string{})
	return calls
}

// sum adds the tokens of the calls for which fits is true.
func (m *longModel) sum(fits func(longCall) bool) (c longCall) {
	for _, call := range m.calls {
		if fits(call) {
			c.prompt += call.prompt
			c.cached += call.cached
			c.completion += call.completion
		}
	}
	return c
}

// perTurn returns the sorted token counts of the turns from+1 to to.
func (m *longModel) perTurn(from, to int) []int {
	turns := make(map[int]int)
	for _, c := range m.calls {
		if c.kind == longReply && from < c.turn && c.turn <= to {
			turns[c.turn] += c.prompt + c.completion
		}
	}
	return slices.Sorted(maps.Values(turns))
}

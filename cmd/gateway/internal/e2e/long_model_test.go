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

// A longTurn is what the model does when the person has written a text.
type longTurn struct {
	n      int
	text   string
	rounds [][]openaitest.ToolCall // before the answer
	say    string
}

// use adds a round with a call.
func (t *longTurn) use(tool string, args map[string]any) {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // it can be encoded
	}
	t.rounds = append(t.rounds, []openaitest.ToolCall{{
		ID:   fmt.Sprintf("call_%d_%d", t.n, len(t.rounds)),
		Name: tool, Arguments: string(text)}})
}

// The kinds of what a model is asked.
const (
	longReply = "answer"
	longNotes = "notes"
	longDream = "dream"
)

// A longCall is a call of the model, in tokens.
type longCall struct {
	kind                       string
	turn                       int
	prompt, cached, completion int
	same                       bool // the prompt begins with all of the one before
}

// A longModel answers as its script says, and counts as a provider does.
type longModel struct {
	t      testing.TB
	window int // tokens of prompt and answer; 0: any number

	mu     sync.Mutex
	turn   longTurn
	newest map[string][]string // the parts of the newest prompt, by kind
	counts map[string]int      // tokens, by text
	calls  []longCall
	asked  openaitest.Request // the newest for an answer
	dreams int
}

func newLongModel(t testing.TB, window int) *longModel {
	return &longModel{t: t, window: window,
		newest: make(map[string][]string), counts: make(map[string]int)}
}

// begin says which turn comes now.
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

// step answers the person, or calls a tool first.
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

// meter counts the tokens of a call. What a prompt has in common with the one before of its kind is
// taken from the cache, if it is as much as a provider keeps.
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

// promptParts returns what a provider reads, in its order: the tools and then the messages.
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

// commonPrefix returns how many bytes two texts have in common, in whole runes of ASCII texts.
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

// longTokens counts tokens about as providers do: short words have one, with the space before them,
// longer ones several, some more than others; digits go by threes and signs by pairs.
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
			n += (j - i) / 8 // one is part of what follows
		case 'n':
			n++
		}
		i = j
	}
	return n
}

// classOf returns what kind of sign r is: letters, digits, spaces, line ends, signs, others.
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

// clockHead is what messages begin with.
var clockHead = regexp.MustCompile(`^\[[A-Z][a-z]+day [^\]]*\] `)

// notes keeps what a person has told and leaves small talk out. Like a model, it overlooks some.
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
		case h.Sum32()%8 == 0: // it seems to matter
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

// findings is the first phase of Dream: some of the notes are to be kept.
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

// edits is the second phase: each fact becomes a line.
func (m *longModel) edits(text string) (calls []openaitest.ToolCall) {
	add := func(name string, args map[string]string) {
		body, err := json.Marshal(args)
		if err != nil {
			panic(err) // it can be encoded
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

// sum adds up the tokens of the calls that fit.
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

// perTurn returns how many tokens each of the turns from one to another took, sorted.
func (m *longModel) perTurn(from, to int) []int {
	turns := make(map[int]int)
	for _, c := range m.calls {
		if c.kind == longReply && from < c.turn && c.turn <= to {
			turns[c.turn] += c.prompt + c.completion
		}
	}
	return slices.Sorted(maps.Values(turns))
}

package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// A callList collects the tool calls of one answer from their pieces.
type callList []*partCall

type partCall struct {
	index     int // the provider's number; -1 if it sends none
	id, name  string
	arguments strings.Builder
	nesting   nesting // of arguments
	compared  bool    // with a piece that may be the whole call again
	extra     extraFields
}

// add adds the next piece.
func (l *callList) add(d callDelta) {
	c := l.find(d)
	if c == nil || c.endedBy(d) {
		c = &partCall{index: -1}
		if d.Index != nil {
			c.index = *d.Index
		}
		*l = append(*l, c)
	}
	if c.id == "" {
		c.id = d.ID
	}
	if c.name == "" {
		c.name = d.Name
	}
	c.arguments.WriteString(string(d.Arguments))
	c.nesting.add(string(d.Arguments))
	c.extra.add(d.Extra)
}

// find returns the call that d continues: the latest call with d's number, or the latest call if d
// has no number. A piece with an unknown number but without a name begins no call, so it continues
// the latest one: Ollama's cloud and Bedrock sometimes number the beginning of a call differently
// from its arguments. find returns nil if there is no such call.
func (l callList) find(d callDelta) *partCall {
	for _, c := range slices.Backward(l) {
		if d.Index == nil || c.index == *d.Index {
			return c
		}
	}
	if n := len(l); n > 0 && d.Name == "" && (d.ID == "" || d.ID == l[n-1].id) {
		return l[n-1]
	}
	return nil
}

// endedBy reports whether d begins another call than c, although the numbers are the same. Some
// providers number all calls 0, or do not number them.
func (c *partCall) endedBy(d callDelta) bool {
	if d.Name == "" || c.name == "" {
		return false
	}
	if d.ID != "" && c.id != "" && d.ID != c.id || d.Name != c.name {
		return true
	}
	// The provider may repeat the name, or begin another call of the same tool.
	if !strings.HasPrefix(string(d.Arguments), "{") || !c.nesting.isClosed() {
		return false
	}
	if d.ID == "" || d.ID != c.id {
		return true
	}
	// It may also repeat the whole call, or give two calls the same id. One comparison must do: the
	// arguments may be long, and have very many pieces.
	if c.compared {
		return false
	}
	c.compared = true
	have, more := wire.CompactJSON(c.arguments.String()), wire.CompactJSON(string(d.Arguments))
	return have != "{}" && have != more && json.Valid([]byte(more))
}

// A nesting follows a JSON value through its pieces. It looks at each byte once: the value may be
// long, and have very many pieces.
type nesting struct {
	begun   bool // there is more than white space
	depth   int  // of objects and lists
	quoted  bool // within a string
	escaped bool // after a backslash in a string
}

// add follows the next piece.
func (n *nesting) add(piece string) {
	for _, b := range []byte(piece) {
		switch {
		case n.escaped:
			n.escaped = false
		case b == '"':
			n.quoted = !n.quoted
		case n.quoted:
			n.escaped = b == '\\'
		case b == '{' || b == '[':
			n.depth++
		case b == '}' || b == ']':
			n.depth--
		}
		n.begun = n.begun || strings.IndexByte(" \t\r\n", b) < 0
	}
}

// isClosed reports whether the value is complete. It may be invalid all the same.
func (n *nesting) isClosed() bool { return n.begun && n.depth <= 0 && !n.quoted }

// calls returns the collected calls. Some servers send a whole call again at the end, under another
// number. A tool must not be called twice for that, so calls leaves out such a repetition.
func (l callList) calls() []llm.ToolCall {
	var calls []llm.ToolCall
	seen := make(map[[3]string]bool)
	for _, c := range l {
		if c.name == "" && strings.TrimSpace(c.arguments.String()) == "" {
			continue // some servers make a place for a call before they know whether there is one
		}
		call := llm.ToolCall{ID: c.id, Name: c.name,
			Arguments: wire.OneObject(c.arguments.String()), Extra: c.extra.merged()}
		key := [3]string{call.ID, call.Name, wire.CompactJSON(call.Arguments)}
		if call.ID == "" || !seen[key] {
			calls = append(calls, call)
		}
		seen[key] = true
	}
	return calls
}

// sentCall returns c in the form for a request. It corrects names, ids and arguments that providers
// refuse, although models produce them. own reports that this provider has made c.
func sentCall(c llm.ToolCall, own bool) wireCall {
	id := c.ID
	// Kimi's prompt template reads the name and number of the call from its id, and LiteLLM stores
	// Gemini's thought signature in it.
	meaningful := strings.HasPrefix(id, "functions.") || strings.Contains(id, "__thought__")
	if !own || !meaningful {
		id = wire.SentID(id)
	}
	return wireCall{ID: id, Type: "function", Function: wireFunction{
		Name: wire.SentName(c.Name), Arguments: wire.SentArguments(c.Arguments)}}
}

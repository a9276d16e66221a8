package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gateway/agent/llm"
	"gateway/store/plaintext"
)

// MoreName is the name of the tool through which models use rare tools: those with a
// non-empty [Tool].Rare, and those beyond maxDirect. Their schemas would cost tokens in each
// request, so a model gets them only on demand. A registry with at least two rare tools adds
// this tool itself.
const MoreName = "more_tools"

const moreDescription = "Calls a rarely used tool. Without arguments it explains the tool. The " +
	"tools:"

// moreArgs are the arguments of MoreName. The tool's arguments are a string, because some
// providers refuse an object without named properties.
type moreArgs struct {
	Tool      string `json:"tool"`
	Arguments string `json:"arguments,omitempty" jsonschema:"JSON object"`
}

// madeMore returns the parts of MoreName that are the same in each registry.
var madeMore = sync.OnceValue(func() entry {
	more := New[moreArgs](MoreName, moreDescription, Pure, nil)
	return entry{tool: more, schema: sync.OnceValues(more.derived.schema)}
})

// offer computes the result of [Registry.Specs]. The caller holds r.mu, or r is not shared
// yet.
func (r *Registry) offer() {
	delete(r.tools, MoreName)
	r.findRare()
	r.offered = make([]llm.ToolSpec, 0, len(r.specs)+1)
	rare := make(map[string]llm.ToolSpec)
	text := moreDescription
	for _, s := range r.specs {
		words := r.tools[s.Name].rare
		if words == "" {
			r.offered = append(r.offered, s)
			continue
		}
		rare[s.Name] = s
		text += "\n- " + s.Name + ": " + words
	}
	if len(rare) < 2 { // a single one needs no more room than MoreName
		r.offered = slices.Clone(r.specs)
		return
	}
	more := madeMore()
	more.tool.Description = text
	more.tool.Run = func(_ context.Context, c Call) (Result, error) {
		var a moreArgs
		if err := json.Unmarshal(c.Args, &a); err != nil {
			return Result{}, unmarshalError(err)
		}
		s, ok := rare[a.Tool]
		if !ok {
			return Result{}, fmt.Errorf("there is no rarely used tool %q; call other tools by "+
				"themselves", a.Tool)
		}
		return Result{Text: s.Description + "\nArguments: " + string(s.Schema)}, nil
	}
	r.tools[MoreName] = more
	r.offered = insert(r.offered, llm.ToolSpec{Name: MoreName, Description: text,
		Schema: more.tool.Schema})
}

// maxDirect is how many tools a model may call directly. OpenAI and others refuse every request
// with more than 128 tools; MoreName is one of them.
const maxDirect = 126

// rareLen is the length, in characters, of the description of a tool that is rare only because
// there are too many.
const rareLen = 100

// findRare finds out which tools are rare. Beyond maxDirect, the last ones that Set has added are.
func (r *Registry) findRare() {
	direct := 0
	for name, e := range r.tools {
		e.rare = e.tool.Rare
		r.tools[name] = e
		if e.rare == "" {
			direct++
		}
	}
	for _, s := range slices.Backward(r.specs) {
		if e := r.tools[s.Name]; direct > maxDirect && e.added && e.rare == "" {
			e.rare = plaintext.Shorten(s.Description, rareLen)
			r.tools[s.Name] = e
			direct--
		}
	}
}

// Direct returns calls in which each use of a rare tool through [MoreName] is replaced by
// a call of that tool. Rules, approvals and the transcript need that form.
func (r *Registry) Direct(calls []llm.ToolCall) []llm.ToolCall {
	for i, c := range calls {
		if c.Name != MoreName {
			continue
		}
		if name, args, ok := r.resolveMore(c.Arguments); ok {
			calls = slices.Clone(calls)
			calls[i].Name, calls[i].Arguments = name, args
		}
	}
	return calls
}

// Offered returns messages in which each call of a rare tool is replaced by a call of
// [MoreName], as [Registry.Specs] describes it. Models repeat the calls that they read,
// and some providers refuse calls of tools that the request does not describe.
func (r *Registry) Offered(messages []llm.Message) []llm.Message {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if _, ok := r.tools[MoreName]; !ok {
		return messages
	}
	isRare := func(c llm.ToolCall) bool { return r.tools[c.Name].rare != "" }
	var list []llm.Message
	for i, m := range messages {
		if !slices.ContainsFunc(m.ToolCalls, isRare) {
			continue
		}
		if list == nil {
			list = slices.Clone(messages)
		}
		calls := slices.Clone(m.ToolCalls)
		for n, c := range calls {
			if isRare(c) {
				calls[n].Name, calls[n].Arguments = MoreName, moreCall(c)
			}
		}
		list[i].ToolCalls = calls
	}
	if list == nil {
		return messages
	}
	return list
}

// moreCall returns the arguments of [MoreName] that stand for the call c.
func moreCall(c llm.ToolCall) string {
	text, err := json.Marshal(moreArgs{c.Name, cmp.Or(strings.TrimSpace(c.Arguments), "{}")})
	if err != nil { // can't happen: two strings can always be encoded
		return "{}"
	}
	return string(text)
}

// resolveMore returns the tool and the arguments in a call of [MoreName]. It returns false if
// the call only asks for a description, or names an unknown tool.
func (r *Registry) resolveMore(written string) (name, args string, ok bool) {
	more, err := r.lookup(MoreName)
	if err != nil {
		return "", "", false
	}
	schema, err := more.schema()
	if err != nil {
		return "", "", false
	}
	object, err := readObject(schema.Schema(), written)
	if err != nil {
		return "", "", false
	}
	name, _ = object["tool"].(string)
	if _, err := r.lookup(name); err != nil || name == MoreName {
		return "", "", false
	}
	switch v := object["arguments"].(type) {
	case string:
		return name, v, strings.TrimSpace(v) != ""
	case map[string]any:
		text, err := json.Marshal(v)
		return name, string(text), err == nil
	}
	return "", "", false
}

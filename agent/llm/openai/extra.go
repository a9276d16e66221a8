package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"gateway/agent/llm"
)

// originKey is the field of a message's extra fields that names the provider of these fields and of
// the extra fields of the message's tool calls.
const originKey = "gateway_origin"

// markOrigin adds the origin to extra if there are any extra fields, and returns extra.
func markOrigin(
	extra map[string]json.RawMessage, calls []llm.ToolCall, origin string,
) map[string]json.RawMessage {
	marked := len(extra) > 0
	for _, c := range calls {
		marked = marked || len(c.Extra) > 0
	}
	mark, err := json.Marshal(origin)
	if !marked || err != nil {
		return extra
	}
	all := make(map[string]json.RawMessage)
	maps.Copy(all, extra)
	all[originKey] = mark
	return all
}

// An extraFields collects fields that arrive in pieces. It has a list of parts for each field,
// which merged joins. Each part has at least twice the length of the next one. Reasoning may arrive
// in ten thousand pieces, and a merge reads both parts completely, so a long part must be merged
// rarely.
type extraFields map[string][]json.RawMessage

// add adds the next piece of each field.
func (e *extraFields) add(pieces map[string]json.RawMessage) {
	for name, piece := range pieces {
		if *e == nil {
			*e = make(extraFields)
		}
		parts := (*e)[name]
		if n := len(parts); n > 0 && parts[n-1][0] != piece[0] {
			parts = nil // mergeValue replaces a value of another type
		}
		parts = append(parts, piece)
		for n := len(parts); n > 1 && len(parts[n-2]) < 2*len(parts[n-1]); n-- {
			parts = append(parts[:n-2], mergeValue(parts[n-2], parts[n-1]))
		}
		(*e)[name] = parts
	}
}

// merged returns the complete fields, or nil if there are none.
func (e extraFields) merged() map[string]json.RawMessage {
	var whole map[string]json.RawMessage
	for name, parts := range e {
		if whole == nil {
			whole = make(map[string]json.RawMessage)
		}
		for _, part := range slices.Backward(parts) {
			if whole[name] != nil {
				part = mergeValue(part, whole[name])
			}
			whole[name] = part
		}
		whole[name] = joinThoughts(whole[name])
	}
	return whole
}

// joinThoughts returns the list raw with the pieces of each thought joined to one entry. LiteLLM
// sends Claude's thoughts in pieces without a number. The last piece has the signature, and may
// have the whole thought once more. joinThoughts returns other values unchanged.
func joinThoughts(raw json.RawMessage) json.RawMessage {
	var list []map[string]json.RawMessage
	if !bytes.Contains(raw, []byte(`"thinking"`)) || json.Unmarshal(raw, &list) != nil {
		return raw
	}
	var joined []map[string]json.RawMessage
	var thought strings.Builder
	open := false // the last entry of joined is a thought whose pieces are in thought
	finish := func() {
		if text, err := json.Marshal(thought.String()); open && err == nil {
			joined[len(joined)-1]["thinking"] = text
		}
		thought.Reset()
		open = false
	}
	for _, entry := range list {
		if textOf(entry["type"]) != "thinking" || entry["index"] != nil {
			finish()
			joined = append(joined, entry)
			continue
		}
		if !open {
			joined, open = append(joined, make(map[string]json.RawMessage)), true
		}
		maps.Copy(joined[len(joined)-1], entry)
		text, signed := string(textOf(entry["thinking"])), textOf(entry["signature"]) != ""
		if !signed || text != thought.String() {
			thought.WriteString(text)
		}
		if signed {
			finish()
		}
	}
	finish()
	whole, err := json.Marshal(joined)
	if err != nil || len(joined) == len(list) {
		return raw
	}
	return whole
}

// mergeValue returns the value old with its continuation more. Strings and lists are appended,
// because they arrive in pieces; other values are replaced.
func mergeValue(old, more json.RawMessage) json.RawMessage {
	if len(old) == 0 || old[0] != more[0] {
		return more
	}
	switch more[0] {
	case '"':
		if joined, err := json.Marshal(textOf(old) + textOf(more)); err == nil {
			return joined
		}
	case '[':
		return mergeList(old, more)
	}
	return more
}

// mergeList appends the list more to old. If an entry has the type and index of the last one, it
// continues that entry and is merged with it: reasoning_details arrive this way.
func mergeList(old, more json.RawMessage) json.RawMessage {
	var list, pieces []json.RawMessage
	if json.Unmarshal(old, &list) != nil || json.Unmarshal(more, &pieces) != nil {
		return more
	}
	for _, p := range pieces {
		if n := len(list); n > 0 {
			if merged := mergeEntry(list[n-1], p); merged != nil {
				list[n-1] = merged
				continue
			}
		}
		list = append(list, p)
	}
	joined, err := json.Marshal(list)
	if err != nil {
		return more
	}
	return joined
}

// mergeEntry returns old merged with its continuation more, or nil if more does not continue old.
func mergeEntry(old, more json.RawMessage) json.RawMessage {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(old, &a) != nil || json.Unmarshal(more, &b) != nil {
		return nil
	}
	same := func(key string) bool {
		return a[key] != nil && string(a[key]) == string(b[key])
	}
	if !same("type") || !same("index") {
		return nil
	}
	for key, raw := range b {
		switch {
		case string(raw) == "null":
		case key == "text" || key == "summary" || key == "data":
			a[key] = mergeValue(a[key], raw)
		default:
			a[key] = raw
		}
	}
	merged, err := json.Marshal(a)
	if err != nil {
		return nil
	}
	return merged
}

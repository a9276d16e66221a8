package openai

import (
	"encoding/json"
	"maps"

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
	extra = maps.Clone(extra)
	if extra == nil {
		extra = make(map[string]json.RawMessage)
	}
	extra[originKey] = mark
	return extra
}

// mergeExtra adds the fields of piece to whole and returns whole. Strings and lists are appended,
// because they arrive in pieces; other values are replaced.
func mergeExtra(whole, piece map[string]json.RawMessage) map[string]json.RawMessage {
	if whole == nil {
		return maps.Clone(piece)
	}
	for name, raw := range piece {
		whole[name] = mergeValue(whole[name], raw)
	}
	return whole
}

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
		switch key {
		case "text", "summary", "data":
			a[key] = mergeValue(a[key], raw)
		default:
			if string(raw) != "null" {
				a[key] = raw
			}
		}
	}
	merged, err := json.Marshal(a)
	if err != nil {
		return nil
	}
	return merged
}

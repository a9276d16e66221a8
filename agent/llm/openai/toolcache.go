package openai

import (
	"encoding/json"
	"slices"
	"sync"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// A toolCache holds the JSON of recently used lists of tools. Most requests of a model have one of
// a few lists, and the list is the larger part of a short request. The zero value is ready to use.
type toolCache struct {
	mark  bool // mark the last tool, so that the provider caches all of them
	plain bool // send plain schemas

	mu   sync.Mutex
	kept []keptTools // the newest last
}

type keptTools struct {
	specs []llm.ToolSpec
	text  json.RawMessage
}

// maxKept is how many lists are kept. Each role and its sub-agents have lists of their own.
const maxKept = 8

// encode returns the JSON of specs. The caller must not change it.
func (c *toolCache) encode(specs []llm.ToolSpec) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if slices.EqualFunc(k.specs, specs, sameSpec) {
			return k.text, nil
		}
	}
	var list []wireTool
	for _, t := range specs {
		tool := wireTool{Type: "function"}
		tool.Function.Name = t.Name
		tool.Function.Description = t.Description
		tool.Function.Parameters = t.Schema
		if len(t.Schema) == 0 {
			tool.Function.Parameters = wire.NoArguments
		} else if c.plain {
			plain, err := plainSchema(t.Schema)
			if err != nil {
				return nil, err
			}
			tool.Function.Parameters = plain
		}
		list = append(list, tool)
	}
	if c.mark && len(list) > 0 {
		list[len(list)-1].CacheControl = wire.Ephemeral
	}
	text, err := wire.EncodePlain(list, 0)
	if err != nil {
		return nil, err
	}
	if len(c.kept) == maxKept {
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, keptTools{slices.Clone(specs), text})
	return text, nil
}

// sameSpec reports whether a and b are the same tool. It compares the address of the schema, which
// never changes.
func sameSpec(a, b llm.ToolSpec) bool {
	return a.Name == b.Name && a.Description == b.Description && len(a.Schema) == len(b.Schema) &&
		(len(a.Schema) == 0 || &a.Schema[0] == &b.Schema[0])
}

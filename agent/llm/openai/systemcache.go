package openai

import (
	"sync"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// maxSystems bounds what a [systemCache] holds, in bytes of JSON.
const maxSystems = 4 << 20

// A systemCache keeps the JSON of the system messages that were used last: many requests have the
// same. The zero value is ready for use.
type systemCache struct {
	mark bool // the message, so that the provider caches it

	mu   sync.Mutex
	kept map[string][]byte // by the text
	size int
}

// encode returns the JSON of a system message, which must not be changed.
func (c *systemCache) encode(text string) ([]byte, error) {
	c.mu.Lock()
	known, ok := c.kept[text]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	w := wireMessage{Role: llm.System, Content: text}
	if c.mark && text != "" {
		w.Content = []wirePart{{Type: "text", Text: text, CacheControl: &ephemeral}}
	}
	body, err := wire.EncodePlain(w, 64+len(text)+len(text)/16)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.kept[text]; ok { // by somebody else meanwhile
		return body, nil
	}
	if c.size += len(body); c.size > maxSystems || c.kept == nil {
		c.kept, c.size = make(map[string][]byte), len(body)
	}
	c.kept[text] = body
	return body, nil
}

package openai

import (
	"sync"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// maxSystems is how many bytes of JSON a [systemCache] holds.
const maxSystems = 4 << 20

// A systemCache holds the JSON of recently used system messages, because many requests have the
// same one. The zero value is ready to use.
type systemCache struct {
	mark bool // mark the message for the provider's cache

	mu   sync.Mutex
	kept map[string][]byte // key: the text
	size int
}

// encode returns the JSON of a system message. The caller must not change it.
func (c *systemCache) encode(text string) ([]byte, error) {
	c.mu.Lock()
	known, ok := c.kept[text]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	w := wireMessage{Role: llm.System, Content: text}
	if c.mark && text != "" {
		w.Content = []wirePart{{Type: "text", Text: text, CacheControl: wire.Ephemeral}}
	}
	body, err := wire.EncodePlain(w, 64+len(text)+len(text)/16)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.kept[text]; ok { // another goroutine was faster
		return body, nil
	}
	if c.size += len(body); c.size > maxSystems || c.kept == nil {
		c.kept, c.size = make(map[string][]byte), len(body)
	}
	c.kept[text] = body
	return body, nil
}

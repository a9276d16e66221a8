package discord

import "sync"

// A cache holds the most recently added values. Its methods are safe for concurrent use.
type cache[V any] struct {
	max    int
	mu     sync.Mutex
	values map[string]V
	order  []string // keys, oldest first
}

func newCache[V any](size int) *cache[V] {
	return &cache[V]{max: size, values: make(map[string]V)}
}

func (c *cache[V]) get(key string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.values[key]
	return v, ok
}

func (c *cache[V]) put(key string, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.values[key]; !ok {
		if len(c.order) >= c.max {
			delete(c.values, c.order[0])
			c.order = c.order[1:]
		}
		c.order = append(c.order, key)
	}
	c.values[key] = v
}

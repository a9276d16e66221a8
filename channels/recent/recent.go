// Package recent remembers the values that were added last.
package recent

import (
	"slices"
	"sync"
)

// A Map holds the values of the keys that were added last, up to a maximum number. Its methods are
// safe for concurrent use.
type Map[K comparable, V any] struct {
	max    int
	mu     sync.Mutex
	values map[K]V
	order  []K // a ring of the keys
	next   int // index of the oldest key
}

// New returns a Map of up to size keys.
func New[K comparable, V any](size int) *Map[K, V] {
	return &Map[K, V]{max: size, values: make(map[K]V)}
}

// Get returns the value of a key. It returns false if the key is not remembered.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	return value, ok
}

// Put sets the value of a key. A new key replaces the oldest one if there are too many.
func (m *Map[K, V]) Put(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.values[key]; !ok {
		if len(m.order) < m.max {
			m.order = append(m.order, key)
		} else {
			delete(m.values, m.order[m.next])
			m.order[m.next] = key
			m.next = (m.next + 1) % m.max
		}
	}
	m.values[key] = value
}

// DeleteFunc deletes the keys for which is holds.
func (m *Map[K, V]) DeleteFunc(is func(key K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := make([]K, 0, len(m.order))
	for _, key := range slices.Concat(m.order[m.next:], m.order[:m.next]) {
		if is(key) {
			delete(m.values, key)
		} else {
			rest = append(rest, key)
		}
	}
	m.order, m.next = rest, 0
}

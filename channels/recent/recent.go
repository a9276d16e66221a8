// Package recent remembers the values that were added last.
package recent

import (
	"maps"
	"sync"
)

// A Map holds the values of the keys that were added last, up to a maximum number. Its methods are
// safe for concurrent use.
type Map[K comparable, V any] struct {
	max    int
	mu     sync.Mutex
	values map[K]entry[V]
	order  []K // a ring of the keys; a deleted key keeps its place until a new one needs it
	next   int // place of the next new key: that of the oldest, once the ring is full
}

// An entry is a value, and the index of its key in the ring.
type entry[V any] struct {
	value V
	place int
}

// New returns a Map of up to size keys.
func New[K comparable, V any](size int) *Map[K, V] {
	return &Map[K, V]{max: size, values: make(map[K]entry[V])}
}

// Get returns the value of a key. It returns false if the key is not remembered.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.values[key]
	return e.value, ok
}

// Put sets the value of a key. A new key replaces the oldest one if there are too many.
func (m *Map[K, V]) Put(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, value)
}

func (m *Map[K, V]) put(key K, value V) {
	e, ok := m.values[key]
	if !ok {
		e.place = m.next
		if len(m.order) < m.max {
			m.order = append(m.order, key)
		} else {
			if oldest := m.order[m.next]; m.values[oldest].place == m.next {
				delete(m.values, oldest)
			}
			m.order[m.next] = key
		}
		m.next = (m.next + 1) % m.max
	}
	e.value = value
	m.values[key] = e
}

// Delete deletes a key. It returns the value of the key, and whether it was remembered.
func (m *Map[K, V]) Delete(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.values[key]
	delete(m.values, key)
	return e.value, ok
}

// DeleteFunc deletes the keys for which is holds.
func (m *Map[K, V]) DeleteFunc(is func(key K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, func(key K, _ entry[V]) bool { return is(key) })
}

// Count adds 1 to the number of a key, and returns the sum.
func Count[K comparable](m *Map[K, int], key K) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.values[key].value + 1
	m.put(key, n)
	return n
}

package recent

import "testing"

// Keys are remembered, but not without end.
func TestMap(t *testing.T) {
	const size = 100
	m := New[int, string](size)
	for i := range 3 * size {
		m.Put(i, "first")
		m.Put(i, "second")
	}
	if len(m.values) != size {
		t.Errorf("%d keys are remembered, want %d", len(m.values), size)
	}
	for i := range 3 * size {
		value, ok := m.Get(i)
		if want := i >= 2*size; ok != want || ok && value != "second" {
			t.Fatalf("Get(%d) = %q, %v, want remembered: %v", i, value, ok, want)
		}
	}
	m.DeleteFunc(func(i int) bool { return i%2 == 0 })
	if _, ok := m.Get(3*size - 2); ok || len(m.values) != size/2 {
		t.Errorf("%d keys remain, want %d", len(m.values), size/2)
	}
}

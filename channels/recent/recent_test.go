package recent

import "testing"

// A Map remembers the newest keys, up to its size.
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

// A key that was deleted and added again counts as new.
func TestDeletedKeyReturns(t *testing.T) {
	m := New[int, string](3)
	for i := range 4 { // the ring has wrapped around
		m.Put(i, "first")
	}
	m.DeleteFunc(func(i int) bool { return i == 3 })
	for _, i := range []int{3, 4, 5} {
		m.Put(i, "second")
	}
	for i, want := range []bool{3: true, 4: true, 5: true} {
		if _, ok := m.Get(i); ok != want {
			t.Errorf("Get(%d): remembered is %v, want %v", i, ok, want)
		}
	}
}

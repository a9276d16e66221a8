package pool

import (
	"slices"
	"testing"
	"time"

	"gateway/agent/turn"
	"gateway/bus"
	"gateway/bus/bustest"
)

// Pending also returns messages that a worker has claimed but not yet written in a transaction.
func TestPending(t *testing.T) {
	t.Parallel()
	d := New(&turn.Env{Now: time.Now}, nil, Snapshot{})
	w := &worker{waiting: make([]bus.Received, 3),
		wake: make(chan struct{}, 1), pool: d, key: bustest.Session("test/a")}
	for i := range w.waiting {
		w.waiting[i].Seq = int64(i + 1)
	}
	d.workers[w.key] = w
	w.claim()
	var got []int64
	for _, r := range d.Pending(w.key) {
		got = append(got, r.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("messages %v are pending, want all three", got)
	}
	w.Claimed(t.Context(), nil)
	if n := len(d.Pending(w.key)); n != 2 {
		t.Errorf("%d messages are pending after the first was written, want 2", n)
	}
}

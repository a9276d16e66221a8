package bus

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Drain returns the newest progress of each stream, also if one conversation has several
// streams.
func TestLive(t *testing.T) {
	l := NewLive()
	if got := l.Drain(); len(got) != 0 {
		t.Errorf("Take of nothing = %v", got)
	}
	l.Publish(Progress{To: chat, Stream: "a", Text: "one"})
	l.Publish(Progress{To: chat, Stream: "b", Text: "two"})
	l.Publish(Progress{To: chat, Stream: "a", Ended: true, Void: true})
	want := []Progress{{To: chat, Stream: "a", Ended: true, Void: true},
		{To: chat, Stream: "b", Text: "two"}}
	if got := l.Drain(); !slices.Equal(got, want) {
		t.Errorf("Take = %v, want %v", got, want)
	}
	if got := l.Drain(); len(got) != 0 {
		t.Errorf("Take once more = %v", got)
	}
}

// Publishing never waits for a reader, and the reader finds the newest progress.
func TestLiveNeverBlocks(t *testing.T) {
	l := NewLive()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				l.Publish(Progress{To: chat, Stream: fmt.Sprint(c), Text: fmt.Sprint(i)})
			}
		})
	}
	wg.Wait()
	got := l.Drain()
	for _, p := range got {
		if p.Text != "999" {
			t.Errorf("%s shows %q, want the newest", p.Stream, p.Text)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d streams, want 8", len(got))
	}
}

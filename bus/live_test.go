package bus

import (
	"fmt"
	"maps"
	"sync"
	"testing"
)

// The newest progress of each conversation is kept, a thread being one of its own.
func TestLive(t *testing.T) {
	topic := Address{Account: "test", Chat: "a", Thread: "5"}
	l := NewLive()
	if got := l.Take(); len(got) != 0 {
		t.Errorf("Take of nothing = %v", got)
	}
	l.Publish(Progress{To: chat, Text: "one"})
	l.Publish(Progress{To: topic, Text: "two"})
	l.Publish(Progress{To: chat, Text: "three", Status: "busy"})
	want := map[Address]Progress{
		chat: {To: chat, Text: "three", Status: "busy"}, topic: {To: topic, Text: "two"},
	}
	if got := l.Take(); !maps.Equal(got, want) {
		t.Errorf("Take = %v, want %v", got, want)
	}
	if got := l.Take(); len(got) != 0 {
		t.Errorf("Take once more = %v", got)
	}
}

// Publishing never waits for a reader, and what came last is what the reader finds.
func TestLiveNeverBlocks(t *testing.T) {
	l := NewLive()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				to := Address{Account: "test", Chat: fmt.Sprint(c)}
				l.Publish(Progress{To: to, Text: fmt.Sprint(i)})
			}
		})
	}
	wg.Wait()
	got := l.Take()
	for to, p := range got {
		if p.Text != "999" {
			t.Errorf("%s shows %q, want the newest", to, p.Text)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d conversations, want 8", len(got))
	}
}

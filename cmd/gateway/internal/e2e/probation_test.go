//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestProbation checks that the gateway gives up a message that crashes the process before its
// turn begins, after a few crashes, and tells the chat. Other messages are answered.
func TestProbation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: openaitest.Echo})
	w.telegram.Say(1, 1, "poison")
	// The first crash is not counted, because the gateway had recorded nothing before it.
	for i := range 4 {
		p := w.start("GATEWAY_FAULT=perceived:1")
		if code := p.exited(patience); code != -1 {
			t.Fatalf("process %d ended with code %d\n%s", i, code, p.newest())
		}
		if i == 2 {
			w.telegram.Say(2, 2, "innocent")
		}
	}
	p := w.start()
	p.ready()
	w.await("both to be told something", func() bool {
		return len(w.texts(1)) == 1 && len(w.texts(2)) == 1
	})
	if got := w.texts(1)[0]; !strings.Contains(got, "given up") {
		t.Errorf("who wrote the poison was told %q", got)
	}
	if got := w.texts(2); !slices.ContainsFunc(got, func(s string) bool {
		return strings.Contains(s, "innocent")
	}) {
		t.Errorf("who wrote beside it was told %q", got)
	}
	p.kill()
}

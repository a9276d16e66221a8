package prompt

import (
	"strings"
	"testing"
	"time"

	"gateway/memory"
)

// The notes of one conversation may be longer than the room for notes in a small context window.
// Then the prompt has their beginning. Otherwise it would say nothing of earlier conversations.
func TestRecentNotesInLittleRoom(t *testing.T) {
	newest := memory.Entry{Cursor: 2, Text: "They said hello." + strings.Repeat(" And so on.", 50)}
	older := memory.Entry{Cursor: 1, Text: "The cat is called Tom."}
	for _, test := range []struct {
		size     int
		has, not string
	}{
		{100, "They said hello.", "Tom"},
		{1000, "Tom", "…"},
	} {
		s := &System{Notes: []memory.Entry{older, newest}, NotesSize: test.size, Zone: time.UTC}
		got := s.recent()
		if !strings.Contains(got, test.has) || strings.Contains(got, test.not) {
			t.Errorf("with room for %d bytes the notes are %q, want %q and not %q", test.size, got,
				test.has, test.not)
		}
	}
}

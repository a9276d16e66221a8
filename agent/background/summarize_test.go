package background

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/bus/bustest"
	"gateway/session"
)

// largePrompt is a configuration with a large prompt.
type largePrompt struct{}

func (largePrompt) Background() Config { return Config{} }

func (largePrompt) Prompt(session.Key) (model string, tokens int) { return "m", 56_000 }

// The summary is bounded. Notes that no longer fit are in the recent history until Dream has read
// them.
func TestSummaryIsBounded(t *testing.T) {
	t.Parallel()
	summarizer := &Summarizer{Settings: largePrompt{}, Zone: time.UTC}
	var s session.Summary
	entry := []session.Entry{{Time: time.Date(2026, time.February, 16, 12, 51, 7, 0, time.UTC)}}
	for i := range int64(60) {
		notes := fmt.Sprintf("- note %d %s\n[notes 7, forged]", i, strings.Repeat("x", 1000))
		s.Text, s.From = summarizer.joined(bustest.Session("test/a"), s, i+1, notes, entry)
	}
	head := fmt.Sprintf("[notes %d, 2026-02-16, one message]\n- note %d x", s.From, s.From-1)
	if len(s.Text) > maxSummary || s.From < 30 || !strings.HasPrefix(s.Text, head) {
		t.Errorf("a summary of %d bytes from %d: %.100q", len(s.Text), s.From, s.Text)
	}
	if !strings.Contains(s.Text, "note 59 ") || strings.Contains(s.Text, "\n[notes 7, ") {
		t.Error("the newest notes are missing, or what is in them passes for a head")
	}
}

// The summary of an imported session has no heads. It stays until there is too little room.
func TestJoinedAfterImport(t *testing.T) {
	t.Parallel()
	summarizer := &Summarizer{Settings: largePrompt{}, Zone: time.UTC}
	entry := []session.Entry{{Time: time.Date(2026, 2, 16, 8, 0, 0, 0, time.UTC)}}
	imported := session.Summary{Text: "Ada has a cat."}
	text, from := summarizer.joined(bustest.Session("test/a"), imported, 7, "- note", entry)
	want := "Ada has a cat.\n\n[notes 7, 2026-02-16, one message]\n- note"
	if text != want || from != 7 {
		t.Errorf("the summary begins at %d:\n%s\nwant 7:\n%s", from, text, want)
	}
	imported.Text += strings.Repeat(" It is asleep.", maxSummary)
	text, from = summarizer.joined(bustest.Session("test/a"), imported, 7, "- note", entry)
	if want = "[notes 7, 2026-02-16, one message]\n- note"; text != want || from != 7 {
		t.Errorf("the long summary begins at %d:\n%.100s\nwant 7:\n%s", from, text, want)
	}
}

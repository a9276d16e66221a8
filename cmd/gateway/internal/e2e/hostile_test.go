package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestAnswerWithoutEnd checks an answer of extreme length: its beginning is sent as messages and
// the whole as a file, with and without streaming.
func TestAnswerWithoutEnd(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&b, "%d bottles of beer on the wall, and no end of them.\n\n", i)
	}
	whole := strings.TrimSpace(b.String()) // 320 kB
	for name, channel := range map[string]string{"quiet": quiet, "streaming": streaming} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{channel: channel,
				answer: func(openaitest.Request) openaitest.Reply {
					third := len(whole) / 3
					return openaitest.Reply{Text: []string{whole[:third], whole[third : 2*third],
						whole[2*third:]}}
				}})
			w.run()
			w.telegram.Say(annID, annID, "sing")
			w.await("the file", func() bool {
				list := w.telegram.History(annID)
				return len(list) > 0 && list[len(list)-1].File != nil
			})
			list := w.telegram.History(annID)
			if len(list) != 21 {
				t.Fatalf("Ann has %d messages, want 20 and a file", len(list))
			}
			for i, m := range list[:20] {
				if text := strings.TrimSpace(m.Text); !strings.Contains(whole, text) || text == "" {
					t.Errorf("message %d is %.100q", i, m.Text)
				}
			}
			last := list[20]
			if string(last.File.Data) != whole || !strings.Contains(last.Text, "in this file") {
				t.Errorf("%q comes with %d bytes, want %d", last.Text, len(last.File.Data), len(whole))
			}
		})
	}
}

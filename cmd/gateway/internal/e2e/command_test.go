package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSlowCommandDelaysNobody checks that a slow command delays only its own chat.
func TestSlowCommandDelaysNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := w.operate("GATEWAY_HOLD=command/status:" + hold)
	o.healthy(w)
	w.telegram.Say(1, 1, "/status")
	w.telegram.Say(1, 1, "and hello")
	w.telegram.Say(2, 2, "hello")
	w.telegram.Say(2, 2, "/help")
	w.await("answers in the other chat", func() bool { return w.telegram.SentCount(2) == 2 })
	if got := w.texts(1); len(got) != 0 {
		t.Errorf("the chat of the slow command was told %q", got)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	w.await("answers in the chat of the slow command", func() bool {
		return w.telegram.SentCount(1) == 2
	})
	if got := w.texts(1); !strings.Contains(got[0], "Queue: steer") {
		t.Errorf("the first answer is %q, want that to the command", got[0])
	}
}

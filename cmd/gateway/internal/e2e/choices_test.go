//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// TestChoicesFollowGroup checks that the choices in a group stay valid when Telegram turns it
// into a supergroup with another id, even if the gateway is killed meanwhile.
func TestChoicesFollowGroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	w := newWorld(t, worldOptions{answer: openaitest.Say("fake answers")})
	other := openaitest.Start(openaitest.Say("other answers"))
	defer other.Close()
	w.set("[models.fake]", fmt.Sprintf("[models.other]\nmodel = \"other-model\"\n"+
		"base_url = %q\n[models.fake]", other.URL))
	w.configure(quiet + "\nowners = [\"7\"]")
	w.telegram.AddGroup(group, "Garden")
	p := w.start()
	p.ready()
	told := func(chat int64, text, want string) {
		t.Helper()
		before := len(w.texts(chat))
		w.telegram.Say(chat, annID, text)
		w.await("an answer to "+text, func() bool { return len(w.texts(chat)) > before })
		if got := w.texts(chat)[before]; !strings.Contains(got, want) {
			t.Errorf("chat %d was told %q after %q, want %q in it", chat, got, text, want)
		}
	}
	told(group, "@gateway_bot hello", "fake answers")
	told(group, "/model@gateway_bot other", "uses the model other")
	told(group, "/queue@gateway_bot followup", "is now followup")
	w.telegram.Migrate(group, supergroup)
	told(supergroup, "@gateway_bot hello", "other answers")
	w.eventually("it to be sent", func(db *store.DB) bool { // otherwise it is sent twice
		return w.count(db, "outbox WHERE state <> 'sent'") == 0
	})
	p.kill()
	p = w.start()
	p.ready()
	told(supergroup, "@gateway_bot hello", "other answers")
	told(supergroup, "/queue@gateway_bot", "The queue mode is followup.")
	told(supergroup, "/model@gateway_bot default", "the default again")
	told(supergroup, "@gateway_bot hello", "fake answers")
}

//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// stop stops the process with SIGTERM, as an operator does, and waits for its end.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if code := p.exited(patience); code != 0 {
		p.t.Fatalf("the gateway ended with code %d\n%s", code, p.newest())
	}
}

// TestModelChoice checks that an owner can choose another model for their conversation. The
// choice applies only there, survives a restart, includes the fallbacks and the usage, and ends
// when the configuration no longer contains the model.
func TestModelChoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: openaitest.Say("fake answers")})
	other := openaitest.Start(func(r openaitest.Request) openaitest.Reply {
		if strings.Contains(lastUser(r), "refuse") {
			return openaitest.Reply{Finish: "content_filter"}
		}
		return openaitest.Say("other answers")(r)
	})
	defer other.Close()
	const fallback = `fallback = ["fake"]`
	block := fmt.Sprintf("[models.other]\nmodel = \"other-model\"\nbase_url = %q\n%s\n", other.URL,
		fallback)
	w.set("[models.fake]", block+"[models.fake]")
	owner := quiet + "\nowners = [\"7\"]"
	w.configure(owner)
	p := w.start()
	p.ready()
	w.wantReply(bobID, "/model other", "Only admins and owners can choose the model.")
	w.wantReply(annID, "/model othr", "There is no model othr. Did you mean other?")
	w.wantReply(annID, "hello", "fake answers")
	w.wantReply(annID, "/model other", "This conversation uses the model other "+
		"(other-model), then fake (fake-model) from its next answer on.")
	w.wantReply(annID, "hello", "other answers")
	w.wantReply(annID, "/status", "Model: other (other-model), then fake (fake-model)")
	w.wantReply(bobID, "hello", "fake answers")

	p.stop()
	p = w.start()
	p.ready()
	w.wantReply(annID, "/model", "The model here is other (other-model), then fake (fake-model): "+
		"chosen for this conversation; the default is fake.")
	w.wantReply(annID, "hello", "other answers")
	w.look(func(db *store.DB) {
		if n := w.count(db, "usage WHERE kind = 'model' AND key = 'other' AND calls = 2"); n != 1 {
			t.Error("the usage does not have the two calls of the chosen model")
		}
	})

	w.wantReply(annID, "refuse this", "fake answers")
	other.Inject(1, openaitest.Fault{Status: http.StatusUnauthorized})
	w.wantReply(annID, "hello", "fake answers")

	w.set(block, "")
	w.configure(owner)
	p.says(reloaded, 1)
	w.wantReply(annID, "/model", "The model here is fake (fake-model): the default, because other, "+
		"which was chosen for this conversation, is no longer configured.")
	w.wantReply(annID, "hello", "fake answers")
}

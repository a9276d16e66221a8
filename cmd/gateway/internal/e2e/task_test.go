//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestTaskModel checks that a sub-agent has its own model and prompt, and that its outcome is
// presented as the agent's own work, even after a crash.
func TestTaskModel(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 8), make(chan struct{})
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case strings.Contains(last.Content, "[your task]"):
			entered <- struct{}{}
			<-release
			return openaitest.Reply{Text: []string{"it is blue"}}
		case strings.Contains(last.Content, "outcome of the sub-agent"):
			return openaitest.Reply{Text: []string{"The sky is blue."}}
		case last.Role == "tool":
			return openaitest.Reply{Text: []string{"I look."}}
		}
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{ID: "call-1", Name: "spawn",
			Arguments: `{"task":"which colour has the sky","label":"sky"}`}}}
	}})
	w.model.Keep(openaitest.DefaultKeep)
	w.set("[agent]\n", "[agent]\ntask_model = \"small\"\n")
	w.configure(quiet + "\n[models.small]\nmodel = \"small-model\"\nbase_url = \"" +
		w.model.URL + "\"")
	p := w.start()
	p.ready()
	w.telegram.Say(annID, annID, "which colour has the sky?")
	<-entered
	p.kill()
	close(release)
	w.start().ready()
	w.await("the outcome", func() bool { return heard(w, annID, "The sky is blue.") })
	n := 0
	for _, r := range w.model.Requests() {
		task := strings.Contains(r.Messages[0].Content, "You work for")
		if task != (r.Model == "small-model") {
			t.Errorf("%s was asked with the prompt %.80q", r.Model, r.Messages[0].Content)
		}
		if task {
			n++
		}
	}
	if n == 0 {
		t.Error("no sub-agent was at work")
	}
}

// TestTaskModelIsDefault checks that task_model also applies if it names the default model and the
// conversation has another one.
func TestTaskModelIsDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case strings.Contains(last.Content, "[your task]"):
			return say("it is blue")
		case strings.Contains(last.Content, "outcome of the sub-agent"):
			return say("The sky is blue.")
		case last.Role == "tool":
			return say("I look.")
		}
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{ID: "call-1", Name: "spawn",
			Arguments: `{"task":"which colour has the sky","label":"sky"}`}}}
	}})
	w.model.Keep(openaitest.DefaultKeep)
	w.set("[agent]\n", "[agent]\ntask_model = \"fake\"\n")
	w.configure(fmt.Sprintf("%s\nowners = [\"%d\"]\n[models.large]\nmodel = \"large-model\"\n"+
		"base_url = %q", quiet, annID, w.model.URL))
	w.run()
	w.wantReply(annID, "/model large", "uses the model")
	w.telegram.Say(annID, annID, "which colour has the sky?")
	w.await("the outcome", func() bool { return heard(w, annID, "The sky is blue.") })
	for _, r := range w.model.Requests() {
		want := "large-model"
		if strings.Contains(r.Messages[0].Content, "You work for") {
			want = "fake-model"
		}
		if r.Model != want {
			t.Errorf("%s was asked with the prompt %.80q, want %s", r.Model, r.Messages[0].Content, want)
		}
	}
}

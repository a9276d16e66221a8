//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/anthropic/anthropictest"
	"gateway/agent/llm/openai/openaitest"
)

// wantEffort sends a message and checks the reasoning effort in the request to the model.
func (w *world) wantEffort(chat int64, want string) {
	w.t.Helper()
	w.answers(chat, fmt.Sprintf("hello %d", len(w.model.Requests())))
	fields, _ := w.lastRequest()
	if got := string(fields["reasoning_effort"]); got != want {
		w.t.Errorf("the model was asked with the effort %s, want %s", got, want)
	}
}

// TestThink checks that an owner can choose the reasoning effort of their conversation. The
// choice applies only there and survives a kill.
func TestThink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	w.set("[models.fake]", "[models.other]\nmodel = \"other-model\"\nbase_url = \""+w.model.URL+
		"\"\n[models.fake]\nreasoning_effort = \"medium\"")
	w.configure(quiet + "\nowners = [\"7\"]")
	p := w.start()
	p.ready()
	w.wantEffort(annID, `"medium"`)
	w.wantReply(bobID, "/think high", "Only admins and owners can choose how long the model thinks.")
	w.wantReply(annID, "/think", "thinks is up to its configuration and its provider. Admins "+
		"can change it with /think off|low|high|default.")
	w.wantReply(annID, "/think much", "I don't know that setting.")
	w.wantReply(annID, "/think high", "The model thinks longer before it answers, from its next "+
		"answer on.")
	p.kill()
	p = w.start()
	p.ready()
	w.wantEffort(annID, `"high"`) // after this, no answer from before the kill can come again
	w.wantReply(annID, "/status", "Thinking: high")
	w.wantEffort(bobID, `"medium"`)
	w.wantReply(annID, "/think off", "The model answers without thinking first")
	w.wantEffort(annID, `"none"`)

	w.wantReply(annID, "/model other", "This conversation uses the model other")
	w.wantReply(annID, "/think low", "You can't set how long the model other (other-model) thinks")
	w.wantReply(annID, "/status", "Thinking: off (not supported by this model)")
	w.wantEffort(annID, "")
	w.wantReply(annID, "/model default", "The model of this conversation is the default again")
	w.wantReply(annID, "/think default", "is up to its configuration and its provider again")
	w.wantEffort(annID, `"medium"`)
}

// TestThinkClaude checks how the choices of /think are sent with Anthropic's protocol.
func TestThinkClaude(t *testing.T) {
	t.Parallel()
	said := func(r anthropictest.Request) anthropictest.Reply {
		content := r.Messages[len(r.Messages)-1].Content
		text := "you said " + content[len(content)-1].Text
		return anthropictest.Reply{Thinking: "well", Text: text}
	}
	claude := anthropictest.Start(t, "key-of-claude", said)
	w := newWorld(t, worldOptions{answer: repeat})
	w.set("[models.fake]\nmodel = \"fake-model\"", "[models.fake]\nprovider = \"anthropic\"\n"+
		"key = \"key-of-claude\"\nmodel = \"claude-sonnet-5-5\"")
	w.set(w.model.URL, claude.URL)
	w.configure(quiet + "\nowners = [\"7\"]")
	w.run()
	for _, tt := range []struct{ word, thinking, config string }{
		{"low", `{"type":"adaptive"}`, `{"effort":"low"}`},
		{"off", `{"type":"between_tools"}`, ""},
		{"default", "", ""},
	} {
		w.reply(annID, "/think "+tt.word)
		w.answers(annID, "hello "+tt.word)
		list := claude.Requests()
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(list[len(list)-1].Body, &fields); err != nil {
			t.Fatal(err)
		}
		got := []string{string(fields["thinking"]), string(fields["output_config"])}
		if strings.Join(got, " ") != tt.thinking+" "+tt.config {
			t.Errorf("/think %s is sent as %s, want %s %s", tt.word, got, tt.thinking, tt.config)
		}
	}
}

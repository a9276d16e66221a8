//go:build unix

package e2e

import (
	"encoding/json"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// lastRequest returns the fields of the newest request to the model, and the request.
func (w *world) lastRequest() (map[string]json.RawMessage, openaitest.Request) {
	w.t.Helper()
	requests := w.model.Requests()
	if len(requests) == 0 {
		w.t.Fatal("the model has got no request")
	}
	r := requests[len(requests)-1]
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &fields); err != nil {
		w.t.Fatal(err)
	}
	return fields, r
}

// modelOptions lists the request fields that settings of a model add.
var modelOptions = []string{
	"temperature", "reasoning_effort", "top_p", "provider", "max_tokens", "max_completion_tokens",
}

// TestModelOptions checks that the settings of a model are in the requests to its provider, and
// that a model without settings adds none of these fields.
func TestModelOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	stop := w.run()
	w.answers(annID, "hello")
	fields, r := w.lastRequest()
	for _, name := range modelOptions {
		if v, ok := fields[name]; ok {
			t.Errorf("without settings a request has %s = %s", name, v)
		}
	}
	if v := r.Header.Get("X-Team"); v != "" {
		t.Errorf("without settings a request has the header X-Team: %s", v)
	}
	stop()

	w.set("[models.fake]", `[models.fake.body]
top_p = 0.9
provider = { order = ["groq"], allow_fallbacks = false }
[models.fake.headers]
X-Team = "team-of-ann"
[models.fake]
temperature = 0.25
reasoning_effort = "low"
max_output = 800
max_output_field = "max_completion_tokens"`)
	w.configure(quiet)
	w.run()
	w.answers(annID, "hello again")
	fields, r = w.lastRequest()
	want := []string{"0.25", `"low"`, "0.9", `{"allow_fallbacks":false,"order":["groq"]}`, "", "800"}
	for i, name := range modelOptions {
		if got := string(fields[name]); got != want[i] {
			t.Errorf("a request has %s = %s, want %s", name, got, want[i])
		}
	}
	if got := r.Header.Get("X-Team"); got != "team-of-ann" {
		t.Errorf("a request has the header X-Team: %q", got)
	}
}

// TestIdleTimeout checks that a request is repeated if the provider sends nothing for
// idle_timeout. With the default of a minute, the turn would end first.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{
		answer: repeat, agent: `turn_timeout = "55s"`,
	})
	w.set("[models.fake]", "[models.fake]\nidle_timeout = \"5s\"")
	w.configure(quiet)
	w.model.Inject(1, openaitest.Fault{Hang: true})
	w.run()
	w.telegram.Say(annID, annID, "hello")
	w.await("a message", func() bool { return len(w.texts(annID)) > 0 })
	if !heard(w, annID, "hello") {
		t.Errorf("the chat shows %q, want the answer of the second try", w.texts(annID))
	}
}

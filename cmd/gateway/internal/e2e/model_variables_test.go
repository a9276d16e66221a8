//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// withoutModel removes the model from the configuration, so that environment variables define it.
func (w *world) withoutModel() {
	w.t.Helper()
	w.set("model = \"fake\"\n", "")
	w.set(fmt.Sprintf("[models.fake]\nmodel = \"fake-model\"\nbase_url = %q\n", w.model.URL), "")
	w.configure(quiet)
}

// TestProviderVariable checks that a provider needs only its usual environment variable.
func TestProviderVariable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	w.withoutModel()
	p := w.start("GROQ_API_KEY=key-of-groq", "GROQ_BASE_URL="+w.model.URL)
	p.ready()
	w.answers(annID, "hello")
	fields, r := w.lastRequest()
	if r.Model != "openai/gpt-oss-120b" || r.Header.Get("Authorization") != "Bearer key-of-groq" {
		t.Errorf("Groq was asked for %q with the key %q", r.Model, r.Header.Get("Authorization"))
	}
	if bytes.Contains(r.Body, []byte("cache_control")) {
		t.Errorf("a request to Groq has marks for a cache: %s", fields["messages"])
	}
}

// TestOpenRouterCache checks that only the system prompt and the tools are marked for the cache
// of Claude on OpenRouter, identically in each request.
func TestOpenRouterCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	w.withoutModel()
	proxy := w.model.URL[:len(w.model.URL)-len("/v1")]
	p := w.start("OPENROUTER_API_KEY=key", "OPENROUTER_MODEL=anthropic/claude-sonnet-5.5",
		"OPENROUTER_BASE_URL=http://openrouter.ai/v1", "HTTP_PROXY="+proxy)
	p.ready()
	w.answers(annID, "hello")
	before, _ := w.lastRequest()
	w.answers(annID, "hello again")
	fields, r := w.lastRequest()

	const mark = `"cache_control":{"type":"ephemeral"}`
	if n := bytes.Count(r.Body, []byte("cache_control")); n != 2 {
		t.Errorf("a request has %d marks, want 2", n)
	}
	var tools []json.RawMessage
	if err := json.Unmarshal(fields["tools"], &tools); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(tools[len(tools)-1], []byte(mark)) {
		t.Errorf("the last tool is %s, want %s in it", tools[len(tools)-1], mark)
	}
	system := r.Messages[0]
	if system.Role != "system" || !bytes.HasSuffix(system.Raw["content"], []byte(mark+"}]")) {
		t.Errorf("the first message has the role %s and ends with %.60s", system.Role,
			system.Raw["content"][len(system.Raw["content"])-60:])
	}
	if !bytes.Equal(before["tools"], fields["tools"]) {
		t.Error("the tools have changed from one request to the next")
	}
}

// TestLocalModel checks that a local model server is used if nothing else is configured, but not
// if the demo is configured.
func TestLocalModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	w.model.SetModels("nomic-embed-text", "qwen3:8b")
	w.withoutModel()
	ollama := "OLLAMA_HOST=" + w.model.URL[:len(w.model.URL)-len("/v1")]
	p := w.start(ollama)
	p.ready()
	w.answers(annID, "hello")
	if _, r := w.lastRequest(); r.Model != "qwen3:8b" {
		t.Errorf("the server was asked for %q", r.Model)
	}
	p.stop()

	asked := len(w.model.Requests())
	w.set("[agent]\n", "[agent]\nmodel = \"demo\"\n")
	w.configure(quiet)
	w.start(ollama).ready()
	w.reply(annID, "hello again")
	if n := len(w.model.Requests()); n != asked {
		t.Errorf("with the demo the server has got %d requests, want %d", n, asked)
	}
}

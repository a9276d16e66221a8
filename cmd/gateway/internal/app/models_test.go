package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"gateway/agent/llm"
	"gateway/cmd/gateway/internal/config"
)

func TestOllamaAddress(t *testing.T) {
	for variable, want := range map[string]string{
		"":                       "127.0.0.1:11434",
		"0.0.0.0":                "127.0.0.1:11434",
		"0.0.0.0:8000":           "127.0.0.1:8000",
		"::":                     "127.0.0.1:11434",
		"box":                    "box:11434",
		"http://127.0.0.1:9000/": "127.0.0.1:9000",
	} {
		if got := ollamaAddress(variable); got != want {
			t.Errorf("OLLAMA_HOST=%s stands for %s, want %s", variable, got, want)
		}
	}
}

func TestPrices(t *testing.T) {
	const million = 1_000_000
	price := prices(&config.Config{}, map[string]config.Model{
		"a": {PriceIn: 3, PriceOut: 15, PriceCached: 0.5}})
	for _, test := range []struct {
		usage llm.Usage
		want  float64
	}{
		{llm.Usage{Input: 2 * million, Output: million}, 6 + 15},
		{llm.Usage{Input: 2 * million, Cached: million}, 3 + 0.5},
		// This server does not include the cached tokens in the others.
		{llm.Usage{Input: million, Cached: 10 * million}, 3 + 5},
	} {
		if got := price("a", test.usage); got != test.want {
			t.Errorf("%+v costs %v, want %v", test.usage, got, test.want)
		}
	}
}

// A fallback gets its own max_output, not that of the model in whose place it answers.
func TestFallbackMaxOutput(t *testing.T) {
	var asked []int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model string
			Max   int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if asked = append(asked, body.Max); body.Model == "big" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}
`)
	}))
	defer server.Close()
	model := config.Model{Provider: "openai", BaseURL: server.URL, Temperature: -1}
	main, small := model, model
	main.Model, main.MaxOutput, main.Fallback = "big", 64_000, []string{"small"}
	small.Model, small.MaxOutput = "little", 8000
	cfg := &config.Config{Models: map[string]config.Model{"main": main, "small": small}}
	req := llm.Request{MaxOutput: main.MaxOutput,
		Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}
	for _, err := range newModel(cfg, "main", slog.New(slog.DiscardHandler)).Stream(t.Context(), req) {
		if err != nil {
			t.Error(err)
		}
	}
	if want := []int{64_000, 8000}; !slices.Equal(asked, want) {
		t.Errorf("the models were asked for %d tokens, want %d", asked, want)
	}
}

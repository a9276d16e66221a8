package app

import (
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

package app

import "testing"

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

package app

import (
	"log/slog"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// A local model stays in use if its server does not answer while the configuration is reloaded.
func TestReloadKeepsLocalModel(t *testing.T) {
	const local = "ollama"
	with := func(model string, rounds int, undecided bool) *config.Config {
		return &config.Config{
			Agent:  config.Agent{Model: model, MaxRounds: rounds, Undecided: undecided},
			Models: map[string]config.Model{demoModel: {}, model: {BaseURL: "http://" + model}}}
	}
	var next, applied *config.Config
	r := &reloader{
		load:    func() (*config.Config, error) { return next, nil },
		current: with(local, 1, true),
		apply:   func(cfg *config.Config) { applied = cfg },
		log:     slog.New(slog.DiscardHandler),
	}
	for i, test := range []struct {
		model     string
		undecided bool
		want      string
	}{
		{demoModel, true, local},
		{"chosen", false, "chosen"},
		{demoModel, true, demoModel}, // the file named the model before, and no longer does
		{local, true, local},
		{demoModel, true, local},
		{demoModel, false, demoModel},
	} {
		next = with(test.model, i+2, test.undecided)
		r.reload(t.Context(), false)
		a := applied.Agent
		if a.Model != test.want || a.MaxRounds != i+2 ||
			applied.Models[test.want].BaseURL != "http://"+test.want {
			t.Errorf("reload %d: the model is %s of %v, want %s", i+1, a.Model, applied.Models, test.want)
		}
	}
}

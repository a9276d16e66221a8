package app

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// A configuration file that was missing or empty during a reload, and comes back as it was, is read
// again. Meanwhile the earlier settings apply, and not the defaults.
func TestReloadFindsFileAgain(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) { testLostFile(t, lose) })
	}
}

func testLostFile(t *testing.T, lose func(path string) error) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.toml")
	write := func() {
		if err := os.WriteFile(path, []byte("[tools.exec]\nuser = \"deny\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (*config.Config, error) {
		return config.Load("", []string{"GATEWAY_HOME=" + dir})
	}
	write()
	current, err := load()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		hangup := make(chan os.Signal)
		log := new(bytes.Buffer) // of level info
		r := &reloader{load: load, hangup: hangup, current: current,
			log:   slog.New(slog.NewTextHandler(log, nil)),
			apply: func(cfg *config.Config) { t.Errorf("the rules became %+v", cfg.Tools) }}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			if err := r.run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		if err := lose(path); err != nil {
			t.Fatal(err)
		}
		hangup <- os.Interrupt // any signal
		synctest.Wait()
		if _, _, trouble := r.state(); trouble == nil {
			t.Error("a lost file is no trouble")
		}
		write()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, _, trouble := r.state(); trouble != nil {
			t.Errorf("the file is there again, but: %v", trouble)
		}
		if got := log.String(); !strings.Contains(got, "configuration reloaded") {
			t.Errorf("the log ends with the problem:\n%s", got)
		}
	})
}

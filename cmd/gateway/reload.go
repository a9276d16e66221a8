package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/term"

	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/watch"
)

// A reloader brings changes of the configuration to a gateway that runs: when its file has another
// content, and when somebody asks for it by SIGHUP, which also reads secrets again that lie in
// files of their own. What can't change while the gateway runs is named in the log, and a
// configuration with mistakes changes nothing.
type reloader struct {
	load    loader
	hangup  <-chan os.Signal
	current *config.Config // that holds; only run may use it
	apply   func(*config.Config)
	log     *slog.Logger

	mu           sync.Mutex
	trouble      error // why the newest configuration doesn't hold
	done, failed int64
}

// watchHangup returns a channel that gets SIGHUP, and a function that ends that. On a terminal the
// signal keeps its meaning, that the terminal is gone.
func watchHangup() (<-chan os.Signal, func()) {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, func() {}
	}
	c := make(chan os.Signal, 1) // one that waits stands for all that come meanwhile
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// run takes over what changes until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	path, err := filepath.Abs(r.current.File)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", r.current.File, err)
	}
	changed := make(chan struct{})
	file := watch.New(path, &watch.Options{Logger: r.log})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// It fails with nothing: what can't be watched is read from time to time.
		_ = file.Run(ctx, func(ctx context.Context) {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	for {
		select {
		case <-changed:
			r.reload(ctx, slog.LevelDebug)
		case <-r.hangup:
			r.reload(ctx, slog.LevelInfo)
		case <-ctx.Done():
			return nil
		}
	}
}

// reload reads the configuration and makes of it hold what can. If it is what holds already that is
// logged at the level idle.
func (r *reloader) reload(ctx context.Context, idle slog.Level) {
	next, err := r.load()
	if err == nil && r.current.Found && !next.Found {
		err = errors.New(r.current.File + " is gone; write it again")
	}
	r.note(err)
	if err != nil {
		r.log.ErrorContext(ctx, "configuration not reloaded, what held before still does: "+
			"correct the file", "err", err)
		return
	}
	merged := config.Merge(r.current, next)
	live, restart := config.Changed(r.current, merged), config.Changed(merged, next)
	if len(live) > 0 {
		r.apply(merged)
		r.log.InfoContext(ctx, "configuration reloaded", "changed", live)
	}
	if len(restart) > 0 {
		r.log.WarnContext(ctx, "changes of the configuration need a restart", "keys", restart)
	}
	if len(live)+len(restart) == 0 {
		r.log.Log(ctx, idle, "configuration reloaded, nothing has changed")
	}
	r.current = merged
}

func (r *reloader) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = err
	if err != nil {
		r.failed++
	} else {
		r.done++
	}
}

// state returns why the newest configuration doesn't hold, or nil if it does as far as it can
// without a restart.
func (r *reloader) state() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trouble
}

// counts returns how often the configuration was read again, and how often in vain.
func (r *reloader) counts() (done, failed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.failed
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"gateway/agent/command"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/watch"
)

// A reloader applies changes of the configuration to a running gateway. It reloads when the
// content of the file has changed, and on SIGHUP. SIGHUP also reads secrets in separate files
// again. The log names changed settings that need a restart. A configuration with mistakes
// changes nothing.
type reloader struct {
	load    Loader
	hangup  <-chan os.Signal
	current *config.Config // in use; only run accesses it
	gone    bool           // the file was missing or empty at the last reload; only run accesses it
	apply   func(*config.Config)
	log     *slog.Logger

	mu           sync.Mutex
	trouble      error // why the newest configuration was not applied
	done, failed int64
}

// watchHangup returns a channel that receives SIGHUP, and a function that stops it. On a
// terminal, SIGHUP keeps its usual meaning: the terminal was closed.
func watchHangup() (<-chan os.Signal, func()) {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, func() {}
	}
	c := make(chan os.Signal, 1) // one pending signal is enough for several
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// run reloads changes until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	path, err := filepath.Abs(r.current.File)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", r.current.File, err)
	}
	changed := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		watch.File{Path: path}.Run(ctx, func(ctx context.Context) {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	for {
		var again <-chan time.Time
		if r.gone {
			again = time.After(time.Second)
		}
		select {
		case <-changed:
			r.reload(ctx, false)
		case <-r.hangup:
			r.reload(ctx, true)
		case <-again:
			// The watch does not report a file that comes back with its earlier content. An empty
			// file is still being written.
			if info, err := os.Stat(path); err == nil && info.Size() > 0 {
				r.reload(ctx, false)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reload reads the configuration and applies its live settings. If nothing has changed, it logs
// at level info only if somebody asked for the reload, or if the reload before has failed.
func (r *reloader) reload(ctx context.Context, asked bool) {
	next, err := r.load()
	// Some editors move a file away or empty it before they write it anew, and a full disk leaves it
	// empty. Without this check all settings, such as rules, would become the defaults meanwhile.
	r.gone = err == nil && r.current.HasContent() && !next.HasContent()
	if r.gone && next.FileExists {
		err = errors.New(r.current.File + " is empty; write it again")
	} else if r.gone {
		err = errors.New(r.current.File + " is gone; write it again")
	}
	if err != nil {
		r.note(err, true)
		r.log.ErrorContext(ctx, "configuration not reloaded, the earlier settings still apply: "+
			"correct the file", "err", err)
		return
	}
	keepLocalModel(r.current, next)
	merged := config.Merge(r.current, next)
	// merged has the live settings of next and all others of the start. So it differs from next
	// only in settings that need a restart.
	live, restart := config.Changed(r.current, merged), config.Changed(merged, next)
	if len(live) > 0 {
		r.apply(merged)
		r.log.InfoContext(ctx, "configuration reloaded", "changed", live)
	}
	if len(restart) > 0 {
		r.log.WarnContext(ctx, "some saved settings take effect only after a restart", "keys", restart)
	}
	if len(live)+len(restart) == 0 {
		level := slog.LevelDebug
		if _, _, trouble := r.state(); asked || trouble != nil {
			level = slog.LevelInfo
		}
		r.log.Log(ctx, level, "configuration reloaded, nothing has changed")
	}
	r.current = merged
	r.note(nil, asked || len(live)+len(restart) > 0)
}

// note records the result of a reload, and counts it if counts is true.
func (r *reloader) note(err error, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = err
	switch {
	case !counts:
	case err != nil:
		r.failed++
	default:
		r.done++
	}
}

// state returns the number of successful and of failed reloads, and why the newest configuration
// was not applied. The error is nil if all settings that need no restart were applied. The state of
// a nil reloader is zero.
func (r *reloader) state() (done, failed int64, trouble error) {
	if r == nil {
		return 0, 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.failed, r.trouble
}

// A Loader reads the configuration that the command line names.
type Loader func() (*config.Config, error)

// ErrRestart is the reason for the end of a gateway that restarts.
var ErrRestart = errors.New("the gateway restarts")

// checkTime limits the check of the configuration. It is long enough for a slow machine.
const checkTime = 30 * time.Second

// newRestart returns the functions of /restart, or nil if the system does not support a restart.
// The gateway ends with ErrRestart, and main starts the program again.
func newRestart(
	ctx context.Context, cfg *config.Config, end context.CancelCauseFunc, log *slog.Logger,
) *command.Restart {
	if !canRestart {
		return nil
	}
	return &command.Restart{
		Check: func() string { return checkProgram(ctx, cfg, log) },
		Begin: func() { end(ErrRestart) },
	}
}

// checkProgram runs the program file with the command that checks the configuration. Both the
// program and the configuration may have been replaced since this process started. It returns the
// problem as a text for people, or "". It also returns "" if ctx has ended, because then the
// gateway already stops.
func checkProgram(ctx context.Context, cfg *config.Config, log *slog.Logger) string {
	args := []string{"config", "check", "--start-only"}
	if cfg.FileExists {
		args = append(args, "--config", cfg.File)
	}
	var decision prefixWriter
	path, err := os.Executable()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		cmd := exec.CommandContext(limited, path, args...)
		// The check does not wait for child processes that keep its output open.
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &decision, &decision, time.Second
		err = cmd.Run()
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	log.ErrorContext(ctx, "no restart: the program or the configuration has an error", "path", path,
		"err", err, "output", string(decision.text))
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.ExitCode() == ExitUsage {
		return "The configuration has mistakes, and I would not come back: `gateway config check` " +
			"names them."
	}
	return "My program can't be started any more; the log says why."
}

// maxSaid is how much of the program's output is logged, in bytes.
const maxSaid = 4096

// A prefixWriter stores the first maxSaid bytes that are written to it.
type prefixWriter struct{ text []byte }

// Write implements [io.Writer]. It never fails.
func (b *prefixWriter) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxSaid-len(b.text))]...)
	return len(p), nil
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"gateway/agent/command"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// A home is the open data and folders of a gateway.
type home struct {
	path             string
	db               *store.DB
	life             *store.Life
	sentLog          *bus.SentLog
	workspace, media *os.Root
	knowledge        *knowledge
}

// openHome opens the database and the workspace. Only one gateway can open a database at a time.
// The log does not exist yet, so every problem becomes the error of the command.
func openHome(ctx context.Context, cfg *config.Config) (*home, error) {
	if err := CheckRestored(cfg); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Gateway.Home, 0o700); err != nil {
		return nil, NewHomeError(cfg.Gateway.Home, err)
	}
	root, err := OpenFolder(cfg.Gateway.Workspace)
	if err != nil {
		return nil, NewHomeError(cfg.Gateway.Home, err)
	}
	db, err := store.Open(ctx, cfg.Store.Path(), Migrations(), nil)
	if err != nil {
		return nil, errors.Join(NewHomeError(cfg.Gateway.Home, err), root.Close())
	}
	return &home{path: cfg.Gateway.Home, db: db, workspace: root}, nil
}

// openRest opens the other data, and records the start of this process. After an error the caller
// must still close h.
func (h *home) openRest(ctx context.Context, cfg *config.Config, log *slog.Logger) (err error) {
	if h.media, err = OpenMedia(cfg); err != nil {
		return err
	}
	if h.knowledge, err = openKnowledge(cfg, h.db, h.workspace, log); err != nil {
		return NewHomeError(cfg.Gateway.Home, err)
	}
	// The one party that tries work alone after a crash is the dispatcher.
	if h.life, err = store.BeginLife(ctx, h.db, time.Now(), 1); err != nil {
		return NewHomeError(cfg.Gateway.Home, err)
	}
	var sent int
	h.sentLog, sent, err = bus.OpenSentLog(ctx, cfg.Store.Path()+"-sent", h.db, time.Now())
	if err != nil {
		return NewHomeError(cfg.Gateway.Home, err)
	}
	if sent > 0 {
		log.InfoContext(ctx, "the earlier process has sent messages that were not stored as sent",
			"messages", sent)
	}
	return nil
}

// close closes everything that was opened.
func (h *home) close() error {
	var errs []error
	if h.knowledge != nil {
		errs = append(errs, h.knowledge.close())
	}
	if h.media != nil {
		errs = append(errs, h.media.Close())
	}
	if h.sentLog != nil {
		errs = append(errs, h.sentLog.Close())
	}
	return errors.Join(append(errs, h.db.Close(), h.workspace.Close())...)
}

// abandon closes h because the start failed with err. If somebody has stopped the gateway, abandon
// records an orderly end, so that the next start does not count a crash, and returns no error.
func (h *home) abandon(ctx context.Context, err error) error {
	if isStopped(ctx, err) {
		err = nil
		if h.life != nil {
			err = h.life.End(context.WithoutCancel(ctx), time.Now())
		}
	}
	return errors.Join(err, h.close())
}

// isStopped reports whether a start failed with err because ctx has ended.
func isStopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// build builds a gateway in its home. After an error the caller closes h.
func build(
	ctx context.Context, cfg *config.Config, h *home, restart *command.Restart, log *slog.Logger,
) (*Gateway, error) {
	if err := h.openRest(ctx, cfg, log); err != nil {
		return nil, err
	}
	g, err := assemble(cfg, h, restart, log)
	if err != nil {
		return nil, err
	}
	return g, errors.Join(g.gate.Load(ctx), gate.DismissOwners(ctx, g.gate))
}

// Open opens the home that a configuration names, and builds its gateway. The caller starts it
// with [Gateway.Run] and must call [Gateway.Close].
func Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Gateway, error) {
	h, err := openHome(ctx, cfg)
	if err != nil {
		return nil, err
	}
	g, err := build(ctx, cfg, h, nil, log)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return g, nil
}

// Run runs the gateway until ctx ends or a part of it fails.
func (g *Gateway) Run(ctx context.Context) error { return g.live(ctx, nil) }

// Close closes the home.
func (g *Gateway) Close() error { return g.home.close() }

// CheckRestored returns an error if a restore of the home was interrupted.
func CheckRestored(cfg *config.Config) error {
	mark := filepath.Join(cfg.Gateway.Home, backup.Unfinished)
	if _, err := os.Lstat(mark); err == nil {
		return fmt.Errorf("a restore into %s was interrupted; run gateway restore FILE "+
			"--force again", cfg.Gateway.Home)
	}
	return nil
}

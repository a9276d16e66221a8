package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// A gateway that is stopped while it starts ends in order, and the next start sees no crash.
func TestStopDuringStart(t *testing.T) {
	dir := t.TempDir()
	cfg, err := config.Load("", []string{"GATEWAY_HOME=" + dir, "GATEWAY_HTTP__LISTEN=",
		"GATEWAY_LOG__FILE=" + filepath.Join(dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h, err := openHome(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := h.openRest(ctx, cfg, log); err != nil {
		t.Fatal(err)
	}
	cancel() // the signal comes now
	if err := h.abandon(ctx, ctx.Err()); err != nil {
		t.Errorf("a stop after the start of the life: %v", err)
	}
	if err := Serve(ctx, cfg, nil, nil); err != nil {
		t.Errorf("a stop before the home is open: %v", err)
	}
	h, err = openHome(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	life, err := store.BeginLife(t.Context(), h.db, time.Now(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if life.Crashed {
		t.Error("the next start takes the stop for a crash")
	}
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
}

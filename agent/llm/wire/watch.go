package wire

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrIdle reports that the provider has kept silent for too long.
var ErrIdle = errors.New("no byte for too long")

// A Watchdog cancels a call when the provider keeps silent too long. It runs only
// while something is awaited, so a slow consumer does not set it off.
type Watchdog struct {
	idle  time.Duration
	timer *time.Timer
}

// NewWatchdog returns a Watchdog, stopped, that cancels with [ErrIdle].
func NewWatchdog(idle time.Duration, cancel context.CancelCauseFunc) *Watchdog {
	w := &Watchdog{idle: idle, timer: time.AfterFunc(idle, func() { cancel(ErrIdle) })}
	w.Stop()
	return w
}

// Start begins to wait for a byte.
func (w *Watchdog) Start() { w.timer.Reset(w.idle) }

// Stop ends the waiting.
func (w *Watchdog) Stop() { w.timer.Stop() }

// Limit shortens the silence from now on.
func (w *Watchdog) Limit(d time.Duration) { w.idle = min(w.idle, d) }

// A WatchedReader is watched while it reads.
type WatchedReader struct {
	Source io.Reader
	Watch  *Watchdog
}

// Read implements [io.Reader].
func (r WatchedReader) Read(p []byte) (int, error) {
	r.Watch.Start()
	defer r.Watch.Stop()
	return r.Source.Read(p)
}

package wire

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrIdle reports that the provider has sent nothing for too long.
var ErrIdle = errors.New("no byte for too long")

// A Watchdog cancels a call if the provider sends nothing for too long. It runs only while the
// caller waits for data, so a slow consumer does not trigger it.
type Watchdog struct {
	most  time.Duration
	idle  time.Duration
	timer *time.Timer
}

// NewWatchdog returns a stopped Watchdog. It calls cancel with [ErrIdle].
func NewWatchdog(idle time.Duration, cancel context.CancelCauseFunc) *Watchdog {
	w := &Watchdog{most: idle, idle: idle, timer: time.AfterFunc(idle, func() { cancel(ErrIdle) })}
	w.Stop()
	return w
}

// Start starts the timer.
func (w *Watchdog) Start() { w.timer.Reset(w.idle) }

// Stop stops the timer.
func (w *Watchdog) Stop() { w.timer.Stop() }

// Limit sets the allowed time, beginning with the next Start. It is never longer than that of a new
// Watchdog.
func (w *Watchdog) Limit(d time.Duration) { w.idle = min(w.most, d) }

// A WatchedReader runs its watchdog during each Read.
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

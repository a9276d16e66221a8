package channels

import (
	"context"
	"errors"
	"time"
)

// ErrStalled reports that a transfer has made no progress.
var ErrStalled = errors.New("the transfer made no progress")

// WithStall returns a copy of ctx that is cancelled with the cause [ErrStalled] when tick was not
// called for d. stop also cancels it.
func WithStall(
	ctx context.Context, d time.Duration,
) (_ context.Context, tick, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { cancel(ErrStalled) })
	// A tick after the timer has fired is harmless: it would only cancel ctx again.
	return ctx, func() { timer.Reset(d) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

//go:build faults

package fault

import (
	"context"
	"os"
	"strings"
	"time"
)

// held and holder are the parts of GATEWAY_HOLD=NAME:FILE: the process waits at the point NAME as
// long as FILE exists.
var held, holder, _ = strings.Cut(os.Getenv("GATEWAY_HOLD"), ":")

// Hold waits if name is the chosen point, until its file is gone or ctx is done.
func Hold(ctx context.Context, name string) {
	if name != held {
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(holder); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

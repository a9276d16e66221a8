//go:build faults

package fault

import (
	"context"
	"os"
	"strings"
	"time"
)

// held is GATEWAY_HOLD=NAME:FILE: who comes to the place called NAME waits there as long as there
// is such a file.
var held, holder, _ = strings.Cut(os.Getenv("GATEWAY_HOLD"), ":")

// Hold marks a place called name where the process may be held up, until ctx ends.
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

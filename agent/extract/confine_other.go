//go:build !linux

package extract

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// look is how often a child looks at what it uses.
const look = 20 * time.Millisecond

// confine sets the bounds of this process: where the system has none that hold, it looks itself.
func confine(t task) error {
	go func() { // ends with the process
		start := time.Now()
		sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
			{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(sample)
		before := sample[0].Value.Uint64() - sample[1].Value.Uint64()
		for range time.Tick(look) {
			metrics.Read(sample)
			used := sample[0].Value.Uint64() - sample[1].Value.Uint64()
			switch {
			case used > before+uint64(t.Memory):
				fmt.Fprintln(os.Stderr, wordsMemory)
				os.Exit(exitLimit)
			case time.Since(start) > t.Time:
				fmt.Fprintln(os.Stderr, wordsTime)
				os.Exit(exitLimit)
			}
		}
	}()
	return nil
}

//go:build !linux

package extract

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// begin is when the process began, about.
var begin = time.Now()

// used returns how long this process has run. That is more than its processor time.
func used() time.Duration { return time.Since(begin) }

// measureEvery is how often a child measures its memory and processor time.
const measureEvery = 20 * time.Millisecond

// confine sets the limits of this process. Where the system has no effective limits, the process
// measures itself.
func confine(t task) error {
	go func() { // until the process ends
		start := time.Now()
		sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
			{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(sample)
		before := sample[0].Value.Uint64() - sample[1].Value.Uint64()
		for range time.Tick(measureEvery) {
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

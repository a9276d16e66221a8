// Package collector makes the garbage collector run less often while the program starts or is busy,
// and gives memory back when the program is quiet. The environment variable GOGC switches all of
// that off.
package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// By default, the heap grows to twice the memory in use before the garbage collector runs again.
// While the program is busy, the heap may grow to busyHeap instead. In a burst of messages that
// saves a tenth of the processor time. A gateway that is idle, or has more than busyHeap in use,
// keeps Go's default. While it starts, a run would find little that is free: most of what it
// allocates then stays in use. After a burst, and after the start, the gateway gives free memory
// back to the system. Whenever it is quiet, it gives the pages of its program back.
const (
	busyHeap   = 40 << 20
	busyPause  = time.Second     // longest pause between two runs in a row
	busyRuns   = 10              // number of runs in a row after which the gateway is busy
	grownRuns  = 5               // number of runs after which there is memory to give back
	quietAfter = 2 * time.Second // after the last run, until memory is given back

	defaultPercent = 100 // Go's default for GOGC
	maxPercent     = 400
)

// A collector sets the percentage of the garbage collector after each of its runs.
type collector struct {
	mu      sync.Mutex
	last    time.Time // time of the newest run
	runs    int       // number of runs in a row
	percent int
	quiet   *time.Timer // calls giveBack
	kept    int         // number of runs since memory was given back
	samples []metrics.Sample
}

// The heap grows to 4 MB before the main function begins, and the garbage collector would run. Go
// initialises this package before most of the others, because it imports little and its import path
// comes early in the alphabet.
func init() {
	if byDefault() {
		debug.SetGCPercent(maxPercent)
	}
}

// byDefault reports whether the operator has left GOGC alone.
func byDefault() bool { return os.Getenv("GOGC") == "" }

// Watch follows the garbage collector until the process ends. Without it the heap would go on to
// grow to five times the memory in use. It is called once, at the start.
func Watch() {
	if !byDefault() {
		return
	}
	c := &collector{percent: maxPercent, kept: grownRuns, // the start needs much memory once
		samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
			{Name: "/gc/scan/globals:bytes"}}}
	c.quiet = time.AfterFunc(quietAfter, c.giveBack)
	c.watch()
}

// giveBack gives memory back to the system. The collection that FreeOSMemory begins calls giveBack
// once more, with nothing left but the pages that were needed meanwhile. Go itself runs a
// collection every two minutes. So a gateway that rests still calls FreeOSMemory, but rarely.
func (c *collector) giveBack() {
	c.set(defaultPercent)
	if c.takeGrown() {
		debug.FreeOSMemory()
	}
	_ = dropProgram() // without it, the process only looks larger
}

// takeGrown reports whether there is memory to give back, and begins to count anew if so.
func (c *collector) takeGrown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept < grownRuns {
		return false
	}
	c.kept = 0
	return true
}

// watch calls ran after the next run of the garbage collector, and so on.
func (c *collector) watch() {
	marker := new([64]byte) // large enough to be an allocation of its own
	runtime.AddCleanup(marker, func(c *collector) {
		defer c.watch() // last, so that no two calls run at once
		metrics.Read(c.samples)
		live := c.samples[0].Value.Uint64()
		percent := c.ran(time.Now(), live,
			live+c.samples[1].Value.Uint64()+c.samples[2].Value.Uint64())
		c.set(percent)
		c.quiet.Reset(quietAfter)
	}, c)
}

// ran records a run, after which live bytes are in use, and returns the percentage for the next
// run. The percentage applies to scanned bytes: the live heap, the stacks and the global variables.
func (c *collector) ran(now time.Time, live, scanned uint64) (percent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.last) > busyPause {
		c.runs = 0
	}
	c.last = now
	c.kept++
	if c.runs++; c.runs < busyRuns || live >= busyHeap || scanned == 0 {
		return defaultPercent
	}
	percent = int((busyHeap - live) * 100 / scanned)
	return max(min(percent/50*50, maxPercent), defaultPercent) // in steps: each change stops all work
}

func (c *collector) set(percent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

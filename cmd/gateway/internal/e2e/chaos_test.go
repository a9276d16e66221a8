//go:build unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"gateway/store"
)

// TestChaos lets people talk to a gateway while random faults happen. Then the faults stop, and the
// gateway finishes everything. The test compares the gateway's data, and the messages that people
// see, with the messages that people wrote.
//
// CHAOS_SEED sets the seed of the random choices, which the test logs. A run with the same seed
// makes nearly the same choices, but in other states of the gateway.
func TestChaos(t *testing.T) {
	t.Parallel()
	for range often(1) {
		c := newChaos(t)
		for range few(18) {
			c.round()
		}
		c.settle()
	}
}

// A chaos is a gateway that people talk to while it is killed and restarted.
type chaos struct {
	*world
	t      *testing.T
	chats  []*chaosChat
	ready  []func() bool      // report whether the gateway is connected to a platform
	shake  []func(*rand.Rand) // disturb the connection to a platform
	calm   []func()           // end that
	arrive func()             // waits until everything has reached people
	p      *process           // nil: no gateway runs
	dead   *trial             // what killed processes have left
	disk   chaosDisk

	erasing bool // rest waits for erasures, too, which take seconds

	mu        sync.Mutex // guards the rest: the model and the platforms have goroutines of their own
	rand      *rand.Rand
	storm     bool           // faults happen
	said      []*chaosSaying // a message's number is its index
	words     int            // number of secret words
	links     int            // how often two people were linked
	lines     []string       // the word of the chat in which the model has run a command
	posts     []*chaosPost
	reminders []*chaosSaying // a reminder's number is its index
	forgotten []string       // secret words of chats before a /forget
	lost      map[string]int // how often a platform has hidden the outcome of a send, by text
}

// newChaos returns a chaos in which everybody has met the gateway. Discord's missed messages can
// only be read in known channels.
func newChaos(t *testing.T) *chaos {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("CHAOS_SEED"),
		fmt.Sprint(time.Now().UnixNano())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", seed)
	c := &chaos{t: t, rand: rand.New(rand.NewPCG(seed, 0)), lost: make(map[string]int)}
	c.world = newWorld(t, worldOptions{answer: c.answer, sandbox: "auto",
		agent: "waiting = 1000\nqueue_mode = \"steer\""})
	c.openDisk()
	c.dead = &trial{world: c.world, t: t, caught: make(map[string]int),
		growing: make(map[string]int)}
	c.connect()
	c.start()
	c.wait("connections", func() bool {
		return !slices.ContainsFunc(c.ready, func(ready func() bool) bool { return !ready() })
	})
	for _, chat := range c.chats {
		c.speak(chat, 0)
	}
	c.rest()
	return c
}

// n returns a random number in [0, n).
func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

// start starts a gateway. Its variables may make it end at a fault point.
func (c *chaos) start(env ...string) {
	c.t.Helper()
	c.vary()
	c.disk.was = false
	c.p = c.world.start(append(env, "GATEWAY_HTTP__LISTEN=127.0.0.1:0")...)
}

// wait waits until cond is true or the gateway has ended. It reports whether the gateway runs.
func (c *chaos) wait(what string, cond func() bool) bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	switch err := c.p.wait(ctx, cond); err {
	case nil:
		return !c.ended()
	case errEnded:
		return false
	default:
		c.check()
		c.t.Fatalf("waited for %s: %v\n%s", what, err, c.p.newest())
		return false
	}
}

// isReady waits until the gateway is ready. It reports false if the gateway has ended.
func (c *chaos) isReady() bool {
	c.t.Helper()
	return c.wait("the gateway to be ready", func() bool { return c.p.logged("gateway ready") > 0 })
}

func (c *chaos) ended() bool {
	select {
	case <-c.p.done:
		return true
	default:
		return false
	}
}

// points are the fault points that a message, a tool call or a task comes to.
var points = []string{
	"accepted", "perceived", "begun", "intended", "stepped", "finished", "sending", "sent",
	"recorded", "delivered", "suspended", "continued", "granted", "scheduled", "noted", "compacted",
	"archived", "merging", "erasing", "chored", "removed",
}

// round lets people act for a while, and ends or keeps the gateway.
func (c *chaos) round() {
	c.t.Helper()
	c.act(c.n(4)) // while no gateway runs, unless the last round has kept it
	if c.p == nil {
		var env []string
		if !c.dead.tired && c.n(3) == 0 {
			env = append(env, fmt.Sprintf("GATEWAY_FAULT=%s:%d",
				points[c.n(len(points))], 1+c.n(12)))
		}
		c.start(env...)
	}
	if c.dead.tired { // one more kill could make the gateway give something up
		c.rest()
		c.dead.tired = false
	}
	c.setStorm(c.n(3) > 0)
	for range 1 + c.n(6) {
		c.act(1 + c.n(4))
		c.disturb()
		c.pause(time.Duration(c.n(200)) * time.Millisecond)
	}
	switch c.n(5) {
	case 0:
		c.stop()
	case 1: // the gateway keeps running
		c.reload()
	default:
		c.p.kill()
	}
	if c.ended() {
		c.bury()
	}
}

// pause lets the gateway work for a while.
func (c *chaos) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.p.done:
	}
}

// stop ends the gateway with SIGTERM, unless it has ended at a fault point.
func (c *chaos) stop() {
	c.t.Helper()
	c.calmDisk()
	if !c.isReady() {
		return
	}
	_ = c.p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
	if code := c.p.exited(patience); code > 0 && !c.disk.was {
		c.t.Fatalf("exit code %d after SIGTERM\n%s", code, c.p.newest())
	}
}

// bury checks what a gateway that has ended has left.
func (c *chaos) bury() {
	c.t.Helper()
	// A gateway that restarts itself on a full disk can't begin.
	if code := c.p.cmd.ProcessState.ExitCode(); code > 0 && !c.disk.was {
		c.t.Fatalf("the gateway has ended with code %d\n%s", code, c.p.newest())
	}
	if c.p.cmd.ProcessState.ExitCode() < 0 {
		c.dead.kills++
	}
	c.p = nil
	c.calmDisk()
	c.dead.autopsy()
}

// disturb sometimes disturbs the connection to a platform, if faults happen.
func (c *chaos) disturb() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storm && c.rand.IntN(4) == 0 {
		c.shake[c.rand.IntN(len(c.shake))](c.rand)
	}
}

// setStorm says whether faults happen.
func (c *chaos) setStorm(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storm = on
}

// rest ends all faults and waits until the gateway has answered everything. If the gateway ends at
// a fault point meanwhile, another one does so.
func (c *chaos) rest() {
	c.t.Helper()
	c.setStorm(false)
	for _, calm := range c.calm {
		calm()
	}
	c.pauseJobs()
	var open []openQuestion
	for !c.isSettled(&open) {
		if c.ended() {
			c.bury()
			c.start()
			continue
		}
		c.decideAll(open)
		c.look(func(db *store.DB) {
			c.wait("decisions", func() bool {
				return !slices.ContainsFunc(c.questions(db), func(q openQuestion) bool {
					return slices.Contains(open, q)
				})
			})
		})
	}
}

// isSettled waits until nothing is left to do, or only open questions are left.
func (c *chaos) isSettled(open *[]openQuestion) (quiet bool) {
	c.t.Helper()
	c.isReady()
	c.look(func(db *store.DB) {
		c.wait("all to be answered", func() bool {
			*open = c.questions(db)
			quiet = c.isQuiet(db)
			return quiet || len(*open) > 0
		})
	})
	return quiet
}

// settle lets the gateway finish everything, stops it, and checks the results.
func (c *chaos) settle() {
	c.t.Helper()
	c.erasing = true
	if c.p == nil {
		c.start()
	}
	c.setStorm(false)
	c.postAll()
	c.rest()
	c.arrive()
	c.stop()
	c.check()
	c.t.Logf("%d messages, %d posts, %d erasures, %d links, %d reminders, %d kills, %d full disks; "+
		"%d sends caught by a kill, %d hidden by the platform", len(c.said), len(c.posts),
		len(c.forgotten), c.links, len(c.reminders), c.dead.kills, c.disk.times,
		total(c.dead.caught), total(c.lost))
}

package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"go.mau.fi/whatsmeow"

	"gateway/channels/whatsapp/whatsapptest"
	"gateway/cmd/gateway/internal/app"
)

// long selects the long variants of the tests. The script .ci/run sets it.
var long = flag.Bool("long", false,
	"run the long variants: the tests that kill the gateway at random moments do so four times as "+
		"often, people write more everywhere, and TestSoak takes a minute")

// often returns how many times a test does what its short variant does n times.
func often(n int) int {
	if *long {
		return 4 * n
	}
	return n
}

// few returns n in the long variants. In the short ones it returns a third of n, and at least 1.
// Tests use it for numbers of people and messages, and for times in milliseconds.
func few(n int) int {
	if *long {
		return n
	}
	return max(1, n/3)
}

// thrifty returns environment variables with which a gateway needs less processor time. In the
// long variants there are none, so that the gateway runs as usual. If the environment of the
// tests sets GOMAXPROCS, that value overrides the number of processors.
func thrifty() []string {
	if *long {
		return nil
	}
	processors := cmp.Or(os.Getenv("GOMAXPROCS"), "1")
	return []string{fmt.Sprint("GOGC=", thriftyGC), "GOMAXPROCS=" + processors}
}

// thriftyGC is the value of GOGC for [thrifty]: the growth of the heap between two garbage
// collections, in percent.
const thriftyGC = 400

// TestMain runs the tests. Gateways in this process accept the key of the fake WhatsApp instead of
// the real one.
func TestMain(m *testing.M) {
	if code, ours := app.RunHelper(); ours {
		os.Exit(code)
	}
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	os.Exit(run(m))
}

// run runs the tests and then removes the files of [buildBinary].
func run(m *testing.M) int {
	defer os.RemoveAll(buildDir)
	// Most of these tests wait for time to pass or for processes to start. The flag -parallel is
	// parsed later and overrides this value.
	err := flag.Set("test.parallel", fmt.Sprint(8*runtime.GOMAXPROCS(0)))
	if err != nil {
		panic(err)
	}
	if flag.Parse(); len(thrifty()) > 0 {
		debug.SetGCPercent(thriftyGC)
	}
	if err := os.Setenv("TEST_SECRET", secretEnv); err != nil {
		panic(err)
	}
	return m.Run()
}

// concurrentTests runs subtests concurrently, without Parallel. Subtests that call Parallel would
// begin after all other tests of the package, and some of those wait for 15 seconds.
type concurrentTests struct {
	t   *testing.T
	all sync.WaitGroup
}

// run begins a subtest. The test waits for c.all before it returns.
func (c *concurrentTests) run(name string, test func(*testing.T)) {
	c.all.Go(func() { c.t.Run(name, test) })
}

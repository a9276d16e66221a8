package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.mau.fi/whatsmeow"

	"gateway/channels/whatsapp/whatsapptest"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/cli"
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

// few returns how much people write in a test's short variant if it is n in the long one, or how
// many milliseconds a gateway that serves them lives.
func few(n int) int {
	if *long {
		return n
	}
	return max(1, n/3)
}

// thrifty returns environment variables with which a gateway needs less processor time. The long
// variants run it as people do. GOMAXPROCS in the environment overrides the number of processors.
func thrifty() []string {
	if *long {
		return nil
	}
	processors := cmp.Or(os.Getenv("GOMAXPROCS"), "1")
	return []string{fmt.Sprint("GOGC=", thriftyGC), "GOMAXPROCS=" + processors}
}

// thriftyGC is how much the heap may grow between two garbage collections, in percent.
const thriftyGC = 400

// TestMain lets scripts run this program as "gateway". For it, the fake WhatsApp is the real one.
func TestMain(m *testing.M) {
	if code, ours := app.RunHelper(); ours {
		os.Exit(code)
	}
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	testscript.Main(tidy{m}, map[string]func(){
		"gateway": func() { os.Exit(cli.Main(context.Background())) },
	})
}

// tidy runs the tests and then removes the files of [buildBinary].
type tidy struct{ *testing.M }

func (m tidy) Run() int {
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
	return m.M.Run()
}

// A crowd runs subtests beside each other and beside all other tests. With Parallel they would
// begin after all other tests of the package, and some of them wait for 15 seconds.
type crowd struct {
	t   *testing.T
	all sync.WaitGroup
}

// run begins a subtest. The test waits for c.all before it returns.
func (c *crowd) run(name string, test func(*testing.T)) {
	c.all.Go(func() { c.t.Run(name, test) })
}

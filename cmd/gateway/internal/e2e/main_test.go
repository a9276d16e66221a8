package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
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
		"often, people write more in TestOrder, and TestSoak takes a minute")

// often returns how many times a test does what its short variant does n times.
func often(n int) int {
	if *long {
		return 4 * n
	}
	return n
}

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
	return m.M.Run()
}

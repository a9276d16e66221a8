package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.mau.fi/whatsmeow"

	"gateway/agent/tools/shell/sandbox"
	"gateway/channels/whatsapp/whatsapptest"
)

// TestMain lets scripts run this program as "gateway", for which the fake WhatsApp is the real one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Argument {
		os.Exit(sandbox.Main(os.Args[2:])) // as the supervisor of a command
	}
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	testscript.Main(tidy{m}, map[string]func(){"gateway": func() { os.Exit(run()) }})
}

// tidy removes what [buildBinary] has made when all tests are over.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	defer os.RemoveAll(buildDir)
	// Most of these tests wait, for times to pass and for processes to start. One that is set by
	// -parallel is parsed later, and counts.
	err := flag.Set("test.parallel", fmt.Sprint(2*runtime.GOMAXPROCS(0)))
	if err != nil {
		panic(err)
	}
	return m.M.Run()
}

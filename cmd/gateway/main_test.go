package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.mau.fi/whatsmeow"

	"gateway/channels/whatsapp/whatsapptest"
)

// TestMain lets scripts run this program as "gateway", for which the fake WhatsApp is the real one.
func TestMain(m *testing.M) {
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	testscript.Main(tidy{m}, map[string]func(){"gateway": func() { os.Exit(run()) }})
}

// tidy removes what [buildBinary] has made when all tests are over.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	defer os.RemoveAll(buildDir)
	return m.M.Run()
}

//go:build faults

package app

import (
	"encoding/hex"
	"os"
	"strconv"
	"sync"
	"time"

	"go.mau.fi/whatsmeow"
)

// timeScale is GATEWAY_TIME_SCALE. It divides retention and heartbeat times.
var timeScale = sync.OnceValue(func() time.Duration { return scale("GATEWAY_TIME_SCALE") })

// healthScale is GATEWAY_HEALTH_SCALE. It divides the time limits of health checks.
var healthScale = sync.OnceValue(func() time.Duration { return scale("GATEWAY_HEALTH_SCALE") })

// scale returns the number in an environment variable, or 1 if it is not set.
func scale(name string) time.Duration {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// compressed returns d divided by timeScale, so that tests can run a day in a minute.
func compressed(d time.Duration) time.Duration { return d / timeScale() }

// testableTimeout returns d divided by healthScale, so that tests can see failing health checks
// soon.
func testableTimeout(d time.Duration) time.Duration { return d / healthScale() }

// Prepare sets the public key, in hexadecimal, with which a WhatsApp server proves its identity,
// if GATEWAY_WHATSAPP_ROOT is set. Tests use a fake server, which does not have WhatsApp's
// private key. The library keeps the key in a global variable, so Prepare must run before any
// connection. Release builds don't contain this code.
func Prepare() {
	root, ok := os.LookupEnv("GATEWAY_WHATSAPP_ROOT")
	if !ok {
		return
	}
	key, err := hex.DecodeString(root)
	if err != nil || len(key) != len(whatsmeow.WACertPubKey) {
		panic("GATEWAY_WHATSAPP_ROOT is not a key")
	}
	whatsmeow.WACertPubKey = [32]byte(key)
}

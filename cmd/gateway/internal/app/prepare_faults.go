//go:build faults

package app

import (
	"encoding/hex"
	"os"

	"go.mau.fi/whatsmeow"
)

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

//go:build faults

package app

import (
	"encoding/hex"
	"os"

	"go.mau.fi/whatsmeow"
)

// Prepare makes this process ready for what only tests need: GATEWAY_WHATSAPP_ROOT is the public
// key, in hexadecimal, with which a WhatsApp server has to prove itself. The fake one can't have
// WhatsApp's own. The library keeps the key in a variable of the process, so it is set before
// anything connects. No build that people get contains this.
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

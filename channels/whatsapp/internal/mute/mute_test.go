package mute_test

import (
	"sync"
	"testing"

	"go.mau.fi/libsignal/ecc"

	"gateway/channels/whatsapp/internal/mute"
)

// TestSignal uses the library, which logs each signature, from several goroutines. The race
// detector would report a concurrent change of the library's logger.
func TestSignal(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			mute.SilenceSignal()
			ecc.CalculateSignature(ecc.NewDjbECPrivateKey([32]byte{1}), []byte("hello"))
		})
	}
	wg.Wait()
}

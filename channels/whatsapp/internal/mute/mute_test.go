package mute_test

import (
	"sync"
	"testing"

	"go.mau.fi/libsignal/ecc"

	"gateway/channels/whatsapp/internal/mute"
)

// TestSignal uses the library, which logs each signature, from many sides at once: the race
// detector would see who sets its logger meanwhile.
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

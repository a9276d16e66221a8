package notifier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"gateway/channels/channeltest/notifier"
)

// Each waiting goroutine sees each change, also one that comes after its check of the condition
// and before it sleeps.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b notifier.Notifier
		var mu sync.Mutex
		n := 0
		reach := func(want int) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return n >= want
			}
		}
		var wg sync.WaitGroup
		for want := range 100 {
			wg.Go(func() {
				if err := b.Wait(t.Context(), reach(want)); err != nil {
					t.Errorf("Wait for %d = %v", want, err)
				}
			})
		}
		for range 100 {
			wg.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				n++
				b.Notify()
			})
		}
		wg.Wait()
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b notifier.Notifier
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		looks := 0
		go func() {
			done <- b.Wait(ctx, func() bool { looks++; return false })
		}()
		synctest.Wait()
		b.Notify()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want context.Canceled", err)
		}
		if looks != 2 {
			t.Errorf("Wait has looked %d times, want 2", looks)
		}
	})
}

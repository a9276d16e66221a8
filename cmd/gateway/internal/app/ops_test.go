package app

import (
	"slices"
	"testing"
	"testing/synctest"

	"gateway/channels/router"
)

// If two updates run at the same time, the list that was made later is kept.
func TestWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, kept := router.Secrets{"first"}, router.Secrets(nil)
		slow := make(chan struct{})
		lists := 0
		w := newWithheld(func() router.Secrets {
			list := now
			if lists++; lists == 1 {
				<-slow
			}
			return list
		}, func(s router.Secrets) { kept = s })
		go w.update()
		synctest.Wait()
		now = router.Secrets{"first", "second"}
		go w.update()
		synctest.Wait()
		close(slow)
		synctest.Wait()
		if !slices.Equal(kept, now) {
			t.Errorf("the router withholds %q, want %q", []string(kept), []string(now))
		}
	})
}

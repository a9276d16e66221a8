package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"gateway/channels"
)

// A channel is healthy while it is connected and for some time after that. A channel that
// connects only for moments is not healthy.
func TestIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{text: "not started"}
		well := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			if got := s.IsHealthy(10 * time.Second); got != want {
				t.Errorf("well: %t while %q, want %t", got, s.text, want)
			}
		}
		well(0, false)
		s.enter(channels.Disconnected, "connecting")
		well(time.Second, false) // it never was connected
		s.enter(channels.Connected, "connected as @bot")
		well(0, true)
		s.enter(channels.Disconnected, "not connected: no route")
		well(9*time.Second, true)
		s.enter(channels.Disconnected, "connecting")
		well(0, true)
		well(2*time.Second, false)
		for range 5 { // connected only for a moment, again and again
			s.enter(channels.Connected, "connected as @bot")
			well(2*time.Second, false)
			s.enter(channels.Disconnected, "not connected: no route")
			well(time.Second, false)
		}
		s.enter(channels.Connected, "listening")
		well(3*time.Second, true)
		s.enter(channels.Disconnected, "connection lost")
		well(9*time.Second, true)
		well(time.Second, false)
		s.enter(channels.Connected, "connected as @bot")
		well(3*time.Second, true)
		s.enter(channels.Refused, "banned")
		well(0, false) // this state ends only when a person acts
		s.enter(channels.Connected, "connected as @bot")
		well(3*time.Second, true)
	})
}

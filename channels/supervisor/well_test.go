package supervisor

import (
	"testing"
	"testing/synctest"
	"time"
)

// A channel is well while messages come in, and for a time after that; one that comes and goes is
// not.
func TestWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{state: "not started"}
		well := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			if got := s.Well(10 * time.Second); got != want {
				t.Errorf("well: %t while %q, want %t", got, s.state, want)
			}
		}
		well(0, false)
		s.setState("connecting")
		well(time.Second, false) // it never was
		s.setState("connected as @bot")
		well(0, true)
		s.setState("not connected: no route")
		well(9*time.Second, true)
		s.setState("connecting")
		well(0, true)
		well(2*time.Second, false)
		for range 5 { // for a moment, again and again
			s.setState("connected as @bot")
			well(2*time.Second, false)
			s.setState("not connected: no route")
			well(time.Second, false)
		}
		s.setState("listening")
		well(3*time.Second, true)
		s.setState("connection lost")
		well(9*time.Second, true)
		well(time.Second, false)
		s.setState("connected as @bot")
		well(3*time.Second, true)
		s.refuse("banned")
		well(0, false) // no patience helps
		s.setState("connected as @bot")
		well(3*time.Second, true)
	})
}

package agent

import (
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/bus"
)

// Answers to /restart.
const (
	restarting = "Restarting. Open work continues afterwards; I tell you here when I am back."
	noRestart  = "I can't restart myself on this system. The person who runs me has to do it."
)

// Each chat that asks for a restart is told once that the gateway is back, even if the process
// then restarts again. A restart that the check refuses is not begun.
func TestRestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Version = "1.2"
		begun, why, back := 0, "", time.Duration(0)
		w.opts.Now = func() time.Time { return time.Now().Add(-back) }
		w.opts.Restart = &command.Restart{Check: func() string { return why }, Begin: func() { begun++ }}
		w.start()
		w.say("a", "/restart", "/restart")
		w.say("b", "/restart")
		if begun != 3 {
			t.Errorf("a restart was begun %d times, want with each command", begun)
		}
		w.sleep(3 * time.Second)
		w.must(w.stop())
		const told = "I am back: gateway 1.2, after 3s."
		for range 2 {
			w.start()
			w.wantQuiet()
			w.wantAnswers("a", restarting, restarting, told)
			w.wantAnswers("b", restarting, told)
			w.must(w.stop())
		}
		why = "My program is gone."
		w.start()
		w.say("b", "/restart")
		w.must(w.stop())
		w.start()
		w.wantAnswers("b", restarting, told, why+" I go on as I am.")
		if begun != 3 {
			t.Errorf("a restart was begun %d times, and one was refused", begun)
		}

		why = ""
		w.say("c", "/restart")
		w.must(w.stop())
		back = time.Hour // the clock was put back in the meantime
		w.start()
		w.wantQuiet()
		w.wantAnswers("c", restarting, "I am back: gateway 1.2, after 0s.")
	})
}

func TestRestartImpossible(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		m := w.message("a", "/restart")
		m.Role = bus.User
		w.put(m)
		w.say("b", "/restart")
		w.wantAnswers("a", "Only admins and owners can use `/restart`.")
		w.wantAnswers("b", noRestart)
	})
}

// Package bustest has helpers for tests that use messages.
package bustest

import "gateway/bus"

// Session returns the session with a name, or the zero Session if no session can have that name.
func Session(name string) bus.Session {
	s, _ := bus.ParseSession(name)
	return s
}

// Package bustest has what tests of messages share.
package bustest

import "gateway/bus"

// Session returns the session with a name, or the zero Session if it is the name of none.
func Session(name string) bus.Session {
	s, _ := bus.ParseSession(name)
	return s
}

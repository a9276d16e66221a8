// Package mute silences the Signal library.
//
// Its function is [SilenceSignal]. The library's logger is a global variable that the library sets
// without a lock on its first use, so two accounts could write it concurrently. Users of the
// library call SilenceSignal first.
package mute

import (
	"sync"

	"go.mau.fi/libsignal/logger"
)

// SilenceSignal silences the Signal library, which prints to standard output by default. The
// WhatsApp client reports the same problems.
func SilenceSignal() { once() }

var once = sync.OnceFunc(func() {
	var l logger.Loggable = silent{}
	logger.Setup(&l)
})

// silent is a logger that discards everything.
type silent struct{}

func (silent) Debug(string, string)   {}
func (silent) Info(string, string)    {}
func (silent) Warning(string, string) {}
func (silent) Error(string, string)   {}
func (silent) Configure(string)       {}

// Package mute silences the Signal library.
//
// Its function is [Signal]. The library's logger is a variable of the whole process, which the
// library itself sets without a lock when it is used first, so that two accounts could write it at
// once. Callers of the library call Signal first.
package mute

import (
	"sync"

	"go.mau.fi/libsignal/logger"
)

// Signal makes the Signal library, which prints to standard output unless told otherwise, silent.
// It says nothing that the WhatsApp client does not say, too.
func Signal() { once() }

var once = sync.OnceFunc(func() {
	var l logger.Loggable = silent{}
	logger.Setup(&l)
})

// silent is a log that nobody reads.
type silent struct{}

func (silent) Debug(string, string)   {}
func (silent) Info(string, string)    {}
func (silent) Warning(string, string) {}
func (silent) Error(string, string)   {}
func (silent) Configure(string)       {}

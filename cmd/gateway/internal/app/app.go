// Package app builds the gateway from its parts, runs and stops it, and reloads its
// configuration.
package app

import (
	"fmt"
	"os"
	"runtime/debug"
	_ "time/tzdata" // zone names for systems without zone data

	"gateway/agent/extract"
	"gateway/agent/tools/web"
)

// A HomeError is an error about the gateway's home or its workspace.
type HomeError struct {
	Home string
	err  error
}

// NewHomeError returns err as a [HomeError], or nil if err is nil.
func NewHomeError(home string, err error) error {
	if err == nil {
		return nil
	}
	return &HomeError{home, err}
}

func (e *HomeError) Error() string { return fmt.Sprintf("home %s: %v", e.Home, e.err) }
func (e *HomeError) Unwrap() error { return e.err }

// A UsageError is a mistake in the configuration or on the command line.
type UsageError struct{ error }

// NewUsageError returns err as a [UsageError].
func NewUsageError(err error) error { return UsageError{err} }

// UsageErrorf returns a [UsageError] with the text of [fmt.Errorf].
func UsageErrorf(format string, args ...any) error {
	return UsageError{fmt.Errorf(format, args...)}
}

func (e UsageError) Unwrap() error { return e.error }

// Exit codes.
const (
	ExitFailure = 1
	ExitUsage   = 2 // wrong configuration or command line
)

// version is set by release builds:
// -ldflags "-X gateway/cmd/gateway/internal/app.version=1.2.3".
var version string

// BuildVersion returns the version, or the commit from which the binary was built.
func BuildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch {
		// The go command records these when it builds from a Git checkout.
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	if commit == "" {
		return "development"
	}
	return "development (" + commit + modified + ")"
}

// RunHelper decodes a file if this program started itself for that. ours reports whether it did.
// The supervisor of package sandbox, the other helper, ends before the main function begins.
func RunHelper() (code int, ours bool) {
	if len(os.Args) < 2 || os.Args[1] != extract.Argument {
		return 0, false
	}
	return extract.Main(map[string]extract.Func{web.KindPage: web.Page}), true
}

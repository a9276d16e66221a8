package app

import "runtime/debug"

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

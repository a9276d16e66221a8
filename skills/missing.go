package skills

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// answerTime is how long a view caches whether requirements are met.
const answerTime = 15 * time.Second

// missing returns descriptions of the requirements that are not met.
func (l *Library) missing(r Requires) []string {
	var missing []string
	for _, name := range r.Bins {
		if !l.hasProgram(name) {
			missing = append(missing, "program "+name)
		}
	}
	if len(r.AnyBins) > 0 && !slices.ContainsFunc(r.AnyBins, l.hasProgram) {
		missing = append(missing, "one of the programs "+strings.Join(r.AnyBins, ", "))
	}
	for _, name := range r.Env {
		if !l.opts.Env(name) {
			missing = append(missing, "environment variable "+name)
		}
	}
	for _, name := range r.Config {
		if !l.opts.Config(name) {
			missing = append(missing, "setting "+name)
		}
	}
	if len(r.OS) > 0 && !slices.Contains(r.OS, l.opts.OS) {
		missing = append(missing, fmt.Sprintf("%s instead of %s",
			strings.Join(r.OS, " or "), l.opts.OS))
	}
	return missing
}

// hasProgram reports whether a program is installed. It accepts only a name: a path would
// let a skill find out which files exist.
func (l *Library) hasProgram(name string) bool {
	return !strings.ContainsAny(name, `/\`) && l.opts.LookPath(name)
}

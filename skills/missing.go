package skills

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// answerTime is how long it is remembered whether something is there, and then, once more, what
// follows from that.
const answerTime = 15 * time.Second

// maxAnswers is how many such answers are remembered.
const maxAnswers = 4096

// A question asks whether something is there for skills.
type question struct{ kind, name string }

type answer struct {
	yes  bool
	when time.Time
}

// missing says in words what of the requirements isn't there.
func (l *Library) missing(r Requires) []string {
	var missing []string
	for _, name := range r.Bins {
		if !l.there("program", name) {
			missing = append(missing, "program "+name)
		}
	}
	none := func(name string) bool { return !l.there("program", name) }
	if len(r.AnyBins) > 0 && all(r.AnyBins, none) {
		missing = append(missing, "one of the programs "+strings.Join(r.AnyBins, ", "))
	}
	for _, name := range r.Env {
		if !l.there("environment variable", name) {
			missing = append(missing, "environment variable "+name)
		}
	}
	for _, name := range r.Config {
		if !l.there("setting", name) {
			missing = append(missing, "setting "+name)
		}
	}
	if len(r.OS) > 0 && !slices.Contains(r.OS, l.opts.OS) {
		missing = append(missing, fmt.Sprintf("%s instead of %s",
			strings.Join(r.OS, " or "), l.opts.OS))
	}
	return missing
}

func all(list []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !ok(s) })
}

// there reports whether a program, an environment variable or a setting is there.
func (l *Library) there(kind, name string) bool {
	ask := l.opts.LookPath
	switch kind {
	case "environment variable":
		ask = l.opts.Env
	case "setting":
		ask = l.opts.Config
	default:
		if strings.ContainsAny(name, `/\`) {
			return false // the name of a program, and not a way to ask which files there are
		}
	}
	q, now := question{kind, name}, l.opts.Now()
	l.mu.Lock()
	a, ok := l.answers[q]
	l.mu.Unlock()
	if ok && now.Sub(a.when) < answerTime {
		return a.yes
	}
	a = answer{ask(name), now}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) >= maxAnswers {
		clear(l.answers)
	}
	l.answers[q] = a
	return a.yes
}

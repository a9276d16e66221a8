package config

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"
)

// LoadLenient is [LoadWithoutSecrets] for commands that need little more than the home.
// It ignores keys with a mistake and lines that are not TOML. A mistake that leaves the home or
// the database unclear is still an error.
func LoadLenient(path string, environ []string) (*Config, error) {
	l := newLoader(variables(environ))
	l.tolerant = true
	return l.load(path)
}

// Mistakes returns an error with one line for each mistake that [LoadLenient] ignored, or
// nil if there are none.
func (c *Config) Mistakes() error { return joinProblems(c.mistakes) }

// MistakesExcept is like [Config.Mistakes], but leaves out the mistakes of the keys for which
// except returns true.
func (c *Config) MistakesExcept(except func(key string) bool) error {
	return joinProblems(slices.DeleteFunc(slices.Clone(c.mistakes), func(p problem) bool {
		return except(p.key)
	}))
}

// IsMistaken reports whether [LoadLenient] ignored something that may belong to a
// top-level table.
func (c *Config) IsMistaken(table string) bool {
	return slices.ContainsFunc(c.mistakes, func(p problem) bool {
		top, _, _ := strings.Cut(p.key, ".")
		return p.key == "" || top == table
	})
}

// tolerable lists the keys of [gateway] that do not affect where the data is.
var tolerable = []string{"gateway.name", "gateway.workspace", "gateway.timezone"}

// isTolerable reports whether a configuration with this problem can be used.
func (l *loader) isTolerable(p problem) bool {
	top, _, _ := strings.Cut(p.key, ".")
	switch {
	case !l.tolerant:
		return false
	case top == "gateway":
		return l.vars[homeVariable] != "" || slices.Contains(tolerable, p.key)
	}
	return top != "store"
}

// readable returns src with an empty line for each line that is not TOML. It reports those lines.
// The line numbers do not change.
func (l *loader) readable(name string, src []byte) []byte {
	rows := bytes.Split(src, []byte("\n"))
	for range 2 * len(rows) {
		src = bytes.Join(rows, []byte("\n"))
		probe := newLoader(l.vars)
		if probe.readFile(name, src) != nil {
			return src
		}
		p := probe.problems[0]
		row := min(max(p.at.line, 1), len(rows)) - 1
		if len(rows[row]) == 0 { // the mistake is elsewhere, so the last line is dropped
			row = len(rows) - 1
			rows = rows[:row]
			continue
		}
		if table := tableOfHome(rows[row]); table != "" {
			p.key = table
		}
		l.report(p)
		rows[row] = nil
	}
	return nil
}

// homeLine matches a line that may set the home or the database.
var homeLine = regexp.MustCompile(`^\s*\[?\s*(gateway|home|store|url)\b`)

// tableOfHome returns the table to which an invalid line belongs if the line may set the home or
// the database, else "".
func tableOfHome(line []byte) string {
	m := homeLine.FindSubmatch(line)
	switch {
	case m == nil:
		return ""
	case string(m[1]) == "store", string(m[1]) == "url":
		return "store"
	}
	return "gateway"
}

// fillGaps sets defaults for values that a mistake has left empty.
func (c *Config) fillGaps() {
	if c.Gateway.Location == nil {
		c.Gateway.Location = time.Local
	}
}

package config

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"
)

// LoadDespiteMistakes is [LoadWithoutSecrets] for commands that need little more than the home. It
// ignores keys with a mistake and lines that are not TOML. A mistake that leaves open which home or
// database is meant is still an error.
func LoadDespiteMistakes(path string, environ []string) (*Config, error) {
	l := newLoader(variables(environ))
	l.forgiving = true
	return l.load(path)
}

// Mistakes returns an error with a line for each mistake that [LoadDespiteMistakes] passed over,
// or nil if there is none.
func (c *Config) Mistakes() error { return joinProblems(c.mistakes) }

// IsMistaken reports whether [LoadDespiteMistakes] has passed over something that may have been
// meant for a top-level table.
func (c *Config) IsMistaken(table string) bool {
	return slices.ContainsFunc(c.mistakes, func(p problem) bool {
		top, _, _ := strings.Cut(p.key, ".")
		return p.key == "" || top == table
	})
}

// harmless are the keys of [gateway] that say nothing about where the data lies.
var harmless = []string{"gateway.name", "gateway.workspace", "gateway.timezone"}

// forgives reports whether a configuration with this problem can be used.
func (l *loader) forgives(p problem) bool {
	top, _, _ := strings.Cut(p.key, ".")
	switch {
	case !l.forgiving:
		return false
	case top == "gateway":
		return l.vars[homeVariable] != "" || slices.Contains(harmless, p.key)
	}
	return top != "store"
}

// readable returns src without the lines that keep it from being TOML, which it reports. Lines
// keep their numbers.
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
		if len(rows[row]) == 0 { // the mistake lies elsewhere, so the end is given up
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

// homeLine is a line that may say which home or database is meant.
var homeLine = regexp.MustCompile(`^\s*\[?\s*(gateway|home|store|url)\b`)

// tableOfHome returns the table of a line that is not TOML, if the line may say where the data is;
// otherwise "".
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

// forgive sets values that a mistake has left empty.
func (c *Config) forgive() {
	if c.Gateway.Location == nil {
		c.Gateway.Location = time.Local
	}
}

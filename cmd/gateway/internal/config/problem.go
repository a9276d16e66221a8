package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A place is where a value was written: a line of the file, or an environment variable. The zero
// place means neither.
type place struct {
	file     string
	line     int
	variable string
}

func (p place) String() string {
	if p.variable != "" {
		return p.variable
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// places says where the keys of a configuration were written, by path, joined with delimiter.
type places map[string]place

// of returns the place of the key at path, or of the nearest enclosing table that was written.
func (p places) of(path []string) (at place) {
	for n := len(path); n > 0 && at == (place{}); n-- {
		at = p[strings.Join(path[:n], delimiter)]
	}
	return at
}

// A problem is one mistake in a configuration.
type problem struct {
	at   place
	key  string // dotted; "" for the file as a whole
	text string

	secret bool // the secret that a reference names is missing
}

func (p problem) Error() string {
	parts := []string{p.at.String(), p.key, p.text}
	if p.at == (place{}) {
		parts = parts[1:]
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// problems collects the mistakes of a configuration.
type problems struct {
	places places
	list   []problem
}

// add adds a problem. It keeps only the first problem of a key, because the others follow from it.
func (p *problems) add(one problem) {
	same := func(other problem) bool { return one.key != "" && other.key == one.key }
	if !slices.ContainsFunc(p.list, same) {
		p.list = append(p.list, one)
	}
}

// report adds a problem of the key at path. Its place is the key, or the nearest enclosing table
// that was written.
func (p *problems) report(path []string, text string) {
	p.add(problem{at: p.places.of(path), key: strings.Join(path, "."), text: text})
}

// joinProblems returns all problems as one error, in the order of the file, or nil if there are
// none.
func joinProblems(problems []problem) error {
	sorted := slices.Clone(problems)
	slices.SortStableFunc(sorted, func(a, b problem) int {
		return cmp.Or(
			cmp.Compare(a.at.variable, b.at.variable),
			cmp.Compare(a.at.line, b.at.line),
			cmp.Compare(a.key, b.key),
		)
	})
	errs := make([]error, len(sorted))
	for i, p := range sorted {
		errs[i] = p
	}
	return errors.Join(errs...)
}

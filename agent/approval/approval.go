// Package approval decides which tool calls may happen: at once, after somebody has approved, or
// not at all.
//
// The main type is [Rules]. A rule is about a tool and a role; for tools that run commands, also
// about the command, as its argv: what is looked at is what will run, and [Prompt] shows
// people the same, byte for byte. The package owns no tables.
package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"gateway/bus"
)

// A Verdict says what becomes of a tool call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Ask   Verdict = "ask" // somebody must approve
	Deny  Verdict = "deny"
)

// A Rule is about one tool.
type Rule struct {
	Roles map[bus.Role]Verdict // what those of a role may do; Allow where nothing is said

	// Commands are looked at first, in this order: the first pattern that fits decides, for all
	// roles that are not denied the tool.
	Commands []Command
}

// A Command says what becomes of the commands that fit a pattern.
type Command struct {
	// Pattern has a word each, in which "*", "?" and "[a-z]" stand for characters. A last word "*"
	// stands for any number of words.
	Pattern []string
	Verdict Verdict
}

// Rules are the rules by the tools' names. A name may end in "*"; the longest that fits holds.
type Rules map[string]Rule

// Decide returns what becomes of a call of a tool for somebody of a role. argv is the command that
// it would run, or nil.
func (r Rules) Decide(role bus.Role, tool string, argv []string) Verdict {
	rule, ok := r.find(tool)
	if !ok {
		return Allow
	}
	verdict := rule.Roles[role]
	if verdict == Deny {
		return Deny
	}
	for _, c := range rule.Commands {
		if c.fits(argv) {
			return c.Verdict
		}
	}
	if verdict == "" {
		return Allow
	}
	return verdict
}

// Has reports whether there is a rule for a tool.
func (r Rules) Has(tool string) bool {
	_, ok := r.find(tool)
	return ok
}

func (r Rules) find(tool string) (Rule, bool) {
	if rule, ok := r[tool]; ok {
		return rule, true
	}
	best := ""
	for name := range r {
		prefix, ok := strings.CutSuffix(name, "*")
		if ok && strings.HasPrefix(tool, prefix) && len(name) > len(best) {
			best = name
		}
	}
	rule, ok := r[best]
	return rule, ok && best != ""
}

// fits reports whether c is about the command argv.
func (c Command) fits(argv []string) bool {
	if len(argv) == 0 || len(c.Pattern) == 0 {
		return false
	}
	for i, pattern := range c.Pattern {
		if i == len(c.Pattern)-1 && pattern == "*" {
			return true
		}
		if i >= len(argv) {
			return false
		}
		if !match(pattern, argv[i]) {
			return false
		}
	}
	return len(argv) == len(c.Pattern)
}

// match is path.Match in which a "/" is like any other character: words are no paths.
func match(pattern, word string) bool {
	const other = "\x00" // no word of a command contains it
	swap := func(s string) string { return strings.ReplaceAll(s, "/", other) }
	ok, err := path.Match(swap(pattern), swap(word))
	return err == nil && ok
}

// ParseCommand returns the pattern that s writes with spaces between its words. It refuses one
// that can't be matched.
func ParseCommand(s string, v Verdict) (Command, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return Command{}, fmt.Errorf("want a command such as %q", "git status *")
	}
	for _, w := range words {
		if _, err := path.Match(w, ""); err != nil {
			return Command{}, fmt.Errorf("%q is no pattern", w)
		}
	}
	return Command{words, v}, nil
}

// Subject returns the hash of what a call would do, to which an approval is bound.
func Subject(tool string, argv []string, args json.RawMessage) string {
	h := sha256.New()
	for _, part := range append([]string{tool, string(args)}, argv...) {
		fmt.Fprintf(h, "%d:%s", len(part), part) // the length keeps parts from passing into each other
	}
	return hex.EncodeToString(h.Sum(nil))
}

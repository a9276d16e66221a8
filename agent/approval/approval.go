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

// A Rule is about one tool, or about all whose names begin alike.
type Rule struct {
	Tool string // its name; a last "*" stands for any characters

	// Roles says what those of a role may do. Where it says nothing, whatever holds without the rule
	// goes on to hold; only Allow loosens that.
	Roles map[bus.Role]Verdict

	// Commands are looked at after Roles, in this order: the first pattern that fits decides, for
	// all roles that are not denied the tool.
	Commands []Command
}

// A Command says what becomes of the commands that fit a pattern.
type Command struct {
	// Pattern has a word each, in which "*", "?" and "[a-z]" stand for characters. A last word "*"
	// stands for any number of words.
	Pattern []string
	Verdict Verdict
}

// Rules are applied in their order, each to what those before it have come to. A rule tightens
// that, unless it says Allow.
type Rules []Rule

// Decide returns what becomes of a call of a tool for somebody of a role. argv is the command that
// it would run, or nil; without is what becomes of the call if no rule is about it.
func (r Rules) Decide(role bus.Role, tool string, argv []string, without Verdict) Verdict {
	verdict := without
	for _, rule := range r {
		if rule.isAbout(tool) {
			verdict = rule.apply(verdict, role, argv)
		}
	}
	return verdict
}

func (r Rule) isAbout(tool string) bool {
	prefix, many := strings.CutSuffix(r.Tool, "*")
	return tool == r.Tool || many && strings.HasPrefix(tool, prefix)
}

func (r Rule) apply(before Verdict, role bus.Role, argv []string) Verdict {
	verdict := r.Roles[role]
	if verdict != Allow {
		verdict = Stricter(before, verdict)
	}
	if verdict == Deny {
		return Deny
	}
	for _, c := range r.Commands {
		if c.fits(argv) {
			return c.Verdict
		}
	}
	return verdict
}

// Stricter returns the stricter one of two verdicts.
func Stricter(a, b Verdict) Verdict {
	for _, v := range []Verdict{Deny, Ask} {
		if a == v || b == v {
			return v
		}
	}
	return Allow
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

// A File is one that a call names.
type File struct {
	Name string
	Size int64  // bytes
	Sum  string // hash of its content; "": not known
}

// A Call is what somebody approves.
type Call struct {
	Tool  string
	Argv  []string // the command that it would run; or nil
	Args  json.RawMessage
	Files []File // that it names
}

// Subject returns the hash of what a call would do, to which an approval is bound.
func (c Call) Subject() string {
	parts := append([]string{c.Tool, string(c.Args), fmt.Sprint(len(c.Argv))}, c.Argv...)
	for _, f := range c.Files {
		parts = append(parts, f.Name, fmt.Sprint(f.Size), f.Sum)
	}
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part) // the length keeps parts from passing into each other
	}
	return hex.EncodeToString(h.Sum(nil))
}

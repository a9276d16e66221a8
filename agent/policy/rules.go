// Package policy decides whether a tool call may happen: at once, after approval, or not at all.
//
// [Rules] are about a tool and a role and, for tools that run commands, about the argv of the
// command: the rules see what will run, and [Call.Prompt] shows people the same, byte for byte.
//
// A [Halt] is the kill switch: while it is set, no process calls a model or uses a tool.
//
// Tables: halts.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"gateway/bus"
)

// A Decision says what becomes of a tool call.
type Decision string

// The decisions.
const (
	Allow Decision = "allow"
	Ask   Decision = "ask" // somebody must approve
	Deny  Decision = "deny"
)

// A Rule is about one tool, or about all whose names begin alike.
type Rule struct {
	Tool string // its name; a last "*" stands for any characters

	// Roles says what those of a role may do. Where it says nothing, whatever holds without the rule
	// goes on to hold; only Allow loosens that.
	Roles map[bus.Role]Decision

	// Commands are looked at after Roles, in this order: the first pattern that fits decides, for
	// all roles that are not denied the tool.
	Commands []Command
}

// A Command says what becomes of the commands that fit a pattern.
type Command struct {
	// Pattern has a word each, in which "*", "?" and "[a-z]" stand for characters. A last word "*"
	// stands for any number of words.
	Pattern  []string
	Decision Decision
}

// Rules are applied in their order, each to what those before it have come to. A rule tightens
// that, unless it says Allow.
type Rules []Rule

// Decide returns what becomes of a call of a tool for somebody of a role. argv is the command that
// it would run, or nil; without is what becomes of the call if no rule is about it.
func (r Rules) Decide(role bus.Role, tool string, argv []string, without Decision) Decision {
	decision := without
	for _, rule := range r {
		if rule.isAbout(tool) {
			decision = rule.apply(decision, role, argv)
		}
	}
	return decision
}

func (r Rule) isAbout(tool string) bool {
	prefix, many := strings.CutSuffix(r.Tool, "*")
	return tool == r.Tool || many && strings.HasPrefix(tool, prefix)
}

func (r Rule) apply(before Decision, role bus.Role, argv []string) Decision {
	decision := r.Roles[role]
	if decision != Allow {
		decision = Stricter(before, decision)
	}
	if decision == Deny {
		return Deny
	}
	for _, c := range r.Commands {
		if c.fits(argv) {
			return c.Decision
		}
	}
	return decision
}

// Stricter returns the stricter one of two decisions.
func Stricter(a, b Decision) Decision {
	for _, v := range []Decision{Deny, Ask} {
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

// match is path.Match in which a "/" is like any other character: words are not paths.
func match(pattern, word string) bool {
	const other = "\x00" // no word of a command contains it
	swap := func(s string) string { return strings.ReplaceAll(s, "/", other) }
	ok, err := path.Match(swap(pattern), swap(word))
	return err == nil && ok
}

// ParseCommand returns the pattern that s writes with spaces between its words. It refuses one
// that can't be matched.
func ParseCommand(s string, v Decision) (Command, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return Command{}, fmt.Errorf("want a command such as %q", "git status *")
	}
	for _, w := range words {
		if _, err := path.Match(w, ""); err != nil {
			return Command{}, fmt.Errorf("%q is not a pattern", w)
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

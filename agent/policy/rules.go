// Package policy decides whether a tool call may happen: at once, after approval, or not at all.
//
// [Rules] are about a tool and a role and, for tools that run commands, about the argv of the
// command. The rules and the people who read [Call.Prompt] see the same argv, byte for byte.
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

// A Decision is the result of applying rules to a tool call.
type Decision string

// The decisions.
const (
	Allow Decision = "allow"
	Ask   Decision = "ask" // somebody must approve
	Deny  Decision = "deny"
)

// A Rule applies to one tool, or to all tools whose names have a common prefix.
type Rule struct {
	Tool string // its name; a last "*" stands for any characters

	// Roles holds the decision for each role. For a role that is missing, the rule changes
	// nothing. Only Allow makes an earlier decision less strict.
	Roles map[bus.Role]Decision

	// Commands are checked after Roles, in order: the first matching pattern decides, for all roles
	// that may use the tool.
	Commands []Command
}

// A Command is a decision for the commands that match a pattern.
type Command struct {
	// Pattern has a word each, in which "*", "?" and "[a-z]" stand for characters. A last word "*"
	// stands for any number of words.
	Pattern  []string
	Decision Decision
}

// Rules are applied in order, each to the decision of the rules before it. A rule makes
// the decision stricter, unless it says Allow.
type Rules []Rule

// Decide returns the decision for a call of a tool by a role. argv is the command that the
// call would run, or nil. without is the decision if no rule applies.
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

// Stricter returns the stricter of two decisions.
func Stricter(a, b Decision) Decision {
	for _, v := range []Decision{Deny, Ask} {
		if a == v || b == v {
			return v
		}
	}
	return Allow
}

// fits reports whether the pattern of c matches the command argv.
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

// match is path.Match, except that "/" is an ordinary character: words are not paths.
func match(pattern, word string) bool {
	const other = "\x00" // no word of a command contains it
	swap := func(s string) string { return strings.ReplaceAll(s, "/", other) }
	ok, err := path.Match(swap(pattern), swap(word))
	return err == nil && ok
}

// ParseCommand parses a pattern, whose words are separated by spaces. It returns an error
// for an invalid pattern.
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

// A File is a file that a call names.
type File struct {
	Name string
	Size int64  // bytes
	Sum  string // hash of its content; "": not known
}

// A Call is a tool call that somebody approves.
type Call struct {
	Tool  string
	Argv  []string // the command that it would run; or nil
	Args  json.RawMessage
	Files []File // that it names
}

// Subject returns the hash of a call's effect. An approval is valid only for this hash.
func (c Call) Subject() string {
	parts := append([]string{c.Tool, string(c.Args), fmt.Sprint(len(c.Argv))}, c.Argv...)
	for _, f := range c.Files {
		parts = append(parts, f.Name, fmt.Sprint(f.Size), f.Sum)
	}
	h := sha256.New()
	for _, part := range parts {
		// the length marks where a part ends, so that different parts never give the same hash
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Package activity says in a few words what tools are doing, for the people who wait for an answer.
package activity

import (
	"encoding/json"
	"fmt"
	"strings"

	"gateway/agent/llm"
)

// A Mode says how much of the work of an answer is shown while it is under way.
type Mode string

// The modes.
const (
	Off     Mode = "off"
	Compact Mode = "compact" // one line: what is being done
	Full    Mode = "full"    // a line for each of the last calls, with its arguments
)

// A kind is what calls of a tool do.
type kind struct{ icon, one, many string }

// search, read and so on are what several tools do.
var (
	search = kind{"🔎", "searching the web", "searching the web"}
	look   = kind{"📄", "looking through files", "looking through files"}
	change = kind{"✏️", "writing a file", "writing %d files"}
	run    = kind{"⚙️", "running a command", "running %d commands"}
	recall = kind{"🧠", "looking into my memory", "looking into my memory"}
)

// kinds are those of the tools that are built in. Others are named.
var kinds = map[string]kind{
	"web_search": search, "web_fetch": {"🔎", "reading a page", "reading %d pages"},
	"read_file": {"📄", "reading a file", "reading %d files"},
	"list_dir":  look, "glob": look, "grep": look,
	"write_file": change, "edit_file": change, "apply_patch": change, "notebook_edit": change,
	"exec": run, "write_stdin": run,
	"recall": recall, "history_search": recall,
	"remember": {"🧠", "remembering something", "remembering %d things"},
	"schedule": {"⏰", "setting a time", "setting %d times"},
	"message":  {"✉️", "sending a message", "sending %d messages"},
	"spawn":    {"🤝", "handing work on", "handing work on"},
}

// Line says what calls do that are made together.
func Line(calls []llm.ToolCall) string {
	var order []string
	counts := make(map[string]int) // by what is done
	names := make(map[string]kind)
	for _, c := range calls {
		k, ok := kinds[c.Name]
		if !ok {
			name := "using " + shown(c.Name)
			k = kind{"🔧", name, name}
		}
		if counts[k.one]++; counts[k.one] == 1 {
			order, names[k.one] = append(order, k.one), k
		}
	}
	var parts []string
	for _, one := range order {
		text := one
		if n := counts[one]; n > 1 && strings.Contains(names[one].many, "%d") {
			text = fmt.Sprintf(names[one].many, n)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return names[order[0]].icon + " " + strings.Join(parts, ", ")
}

// The bounds of a list of calls.
const (
	maxCalls = 8
	maxArgs  = 80 // runes
	maxName  = 64 // runes
)

// A Log is what was done for an answer so far. The zero value is empty.
type Log struct{ lines []string }

// Add notes calls that begin, and returns what is shown from then on; "" is nothing.
func (l *Log) Add(m Mode, calls []llm.ToolCall) string {
	switch m {
	case Off:
		return ""
	case Full:
		for _, c := range calls {
			l.lines = append(l.lines, line(c))
		}
		l.lines = l.lines[max(len(l.lines)-maxCalls, 0):]
		return strings.Join(l.lines, "\n")
	}
	return Line(calls)
}

// line shows one call with its arguments.
func line(c llm.ToolCall) string {
	icon := "🔧"
	if k, ok := kinds[c.Name]; ok {
		icon = k.icon
	}
	args := cut(arguments(c.Arguments), maxArgs)
	return icon + " " + code(strings.TrimSpace(cut(c.Name, maxName)+" "+args))
}

// shown returns the name of a tool as Markdown. A model may call tools that do not exist, by names
// of any length.
func shown(name string) string { return code(cut(name, maxName)) }

// code returns a text on one line as code in Markdown.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

// cut puts a text on one line of n runes at most.
func cut(s string, n int) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return string(runes)
}

// arguments shows the arguments of a call: a single one without its name.
func arguments(raw string) string {
	var args map[string]any
	if json.Unmarshal([]byte(raw), &args) != nil || len(args) != 1 {
		return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(raw, "{"), "}"))
	}
	for _, v := range args {
		if s, ok := v.(string); ok {
			return s
		}
	}
	return raw
}

// Package activity describes in a few words which tools are running, for people who wait for an
// answer.
package activity

import (
	"encoding/json"
	"fmt"
	"strings"

	"gateway/agent/llm"
)

// A Mode says how much of the agent's work is shown while it makes an answer.
type Mode string

// The modes.
const (
	Off     Mode = "off"
	Compact Mode = "compact" // one line that describes the current calls
	Full    Mode = "full"    // one line with the arguments for each of the last 8 calls
)

// A kind describes the work of a tool in words: one is for a single call, many for several calls if
// it contains %d.
type kind struct{ icon, one, many string }

// The kinds that several tools share.
var (
	search = kind{"🔎", "searching the web", "searching the web"}
	look   = kind{"📄", "looking through files", "looking through files"}
	change = kind{"✏️", "writing a file", "writing %d files"}
	run    = kind{"⚙️", "running a command", "running %d commands"}
	recall = kind{"🧠", "looking into my memory", "looking into my memory"}
)

// kinds has the kind of each built-in tool. The tools of MCP servers are shown by their names.
var kinds = map[string]kind{
	"web_search": search, "web_fetch": {"🔎", "reading a page", "reading %d pages"},
	"read_file": {"📄", "reading a file", "reading %d files"},
	"list_dir":  look, "glob": look, "grep": look,
	"write_file": change, "edit_file": change, "apply_patch": change, "notebook_edit": change,
	"exec": run, "exec_input": run,
	"exec_list": {"⚙️", "looking at running commands", "looking at running commands"},
	"recall":    recall, "history_search": recall,
	"remember":       {"🧠", "remembering something", "remembering %d things"},
	"forget":         {"🧠", "forgetting something", "forgetting %d things"},
	"schedule":       {"⏰", "setting a time", "setting %d times"},
	"time":           {"⏰", "looking at the clock", "looking at the clock"},
	"message":        {"✉️", "sending a message", "sending %d messages"},
	"ask":            {"❓", "asking a question", "asking %d questions"},
	"generate_image": {"🎨", "making a picture", "making %d pictures"},
	"edit_image":     {"🎨", "changing a picture", "changing %d pictures"},
	"spawn":          {"🤝", "handing work on", "handing work on"},
	"subagents":      {"🤝", "looking at sub-agents", "looking at sub-agents"},
	"more_tools":     {"🔧", "choosing a tool", "choosing a tool"},
}

// Line describes calls that run together, in one line. It returns "" if there are none.
func Line(calls []llm.ToolCall) string {
	var order []string
	counts := make(map[string]int) // by kind.one
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

// Limits of a list of calls.
const (
	maxCalls = 8
	maxArgs  = 80 // runes
	maxName  = 64 // runes
)

// A Log contains the calls made for an answer so far. The zero value is empty.
type Log struct{ lines []string }

// Add adds calls that are about to begin and returns the text to show, or "" to show nothing.
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

// line returns one call with its arguments.
func line(c llm.ToolCall) string {
	icon := "🔧"
	if k, ok := kinds[c.Name]; ok {
		icon = k.icon
	}
	args := cut(arguments(c.Arguments), maxArgs)
	return icon + " " + code(strings.TrimSpace(cut(c.Name, maxName)+" "+args))
}

// shown returns the name of a tool as Markdown. It shortens the name, because a model may call
// tools that do not exist, with names of any length.
func shown(name string) string { return code(cut(name, maxName)) }

// code formats a text of one line as Markdown code.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

// cut joins the lines of a text into one and shortens it to n runes.
func cut(s string, n int) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return string(runes)
}

// arguments returns the arguments of a call as text. A single argument is shown without its name.
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

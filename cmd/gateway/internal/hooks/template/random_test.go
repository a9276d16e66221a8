package template

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A writer writes random templates, most of which can be parsed.
type writer struct {
	*rapid.T
	vars []string // that are there
	loop bool     // break may be written
}

func (w *writer) pick(of ...string) string { return rapid.SampledFrom(of).Draw(w.T, "pick") }

func (w *writer) number(least, most int) int { return rapid.IntRange(least, most).Draw(w.T, "n") }

// list returns some text and actions.
func (w *writer) list(depth int) string {
	known := len(w.vars)
	defer func() { w.vars = w.vars[:known] }()
	var b strings.Builder
	for range w.number(0, 4) {
		b.WriteString(w.action(depth))
	}
	return b.String()
}

func (w *writer) action(depth int) string {
	form := w.number(0, 11)
	if depth == 0 && form > 4 {
		form = 0
	}
	switch form {
	case 1:
		return w.pick("a", " ", "\n", "é", "{{/* c */}}")
	case 2:
		name := w.pick("$x", "$y", "$z")
		set := "{{" + name + " := " + w.pipe(depth) + "}}"
		w.vars = append(w.vars, name)
		return set
	case 3:
		return "{{" + w.pick(append(w.vars, "$x")...) + " = " + w.pipe(depth) + "}}"
	case 4:
		if w.loop {
			return w.pick("{{break}}", "{{continue}}")
		}
		return `{{template "` + w.pick("p", "q", "none") + `" ` + w.pipe(depth) + "}}"
	case 5, 6:
		return "{{if " + w.pipe(depth) + "}}" + w.list(depth-1) + w.otherwise("if", depth)
	case 7:
		return "{{with " + w.pipe(depth) + "}}" + w.list(depth-1) + w.otherwise("with", depth)
	case 8, 9, 10:
		return w.repeat(depth)
	}
	return w.pick("{{", "{{- ") + w.pipe(depth) + w.pick("}}", " -}}")
}

func (w *writer) otherwise(what string, depth int) string {
	switch w.number(0, 2) {
	case 0:
		return "{{else}}" + w.list(depth-1) + "{{end}}"
	case 1:
		return "{{else " + what + " " + w.pipe(depth) + "}}" + w.list(depth-1) + "{{end}}"
	}
	return "{{end}}"
}

func (w *writer) repeat(depth int) string {
	known, loop := len(w.vars), w.loop
	defer func() { w.vars, w.loop = w.vars[:known], loop }()
	over := w.pipe(depth)
	head := "{{range "
	switch w.number(0, 4) {
	case 0:
		head += "$k, $v := "
		w.vars = append(w.vars, "$k", "$v")
	case 1:
		head += "$v := "
		w.vars = append(w.vars, "$v")
	case 2:
		head += "$x = "
	}
	w.loop = true
	body := w.list(depth - 1)
	w.loop = loop
	if w.number(0, 1) == 0 {
		return head + over + "}}" + body + "{{end}}"
	}
	return head + over + "}}" + body + "{{else}}" + w.list(depth-1) + "{{end}}"
}

// pipe returns a pipeline.
func (w *writer) pipe(depth int) string {
	text := w.command(depth)
	for range w.number(0, 3) / 2 {
		text += " | " + w.call(depth)
	}
	return text
}

func (w *writer) command(depth int) string {
	if w.number(0, 2) == 0 {
		return w.call(depth)
	}
	return w.operand(depth)
}

// call returns a function with values, one too many or too few at times.
func (w *writer) call(depth int) string {
	f := w.pick("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice",
		"print", "println", "printf", "html", "urlquery", "json", "limit")
	for range w.number(0, 3) {
		f += " " + w.operand(depth)
	}
	return f
}

func (w *writer) operand(depth int) string {
	switch form := w.number(0, 9); {
	case form < 4:
		return w.pick(".", "$", ".a", ".b", ".a.b", ".list", ".n", ".s", "$.a", "$.list")
	case form < 6:
		return w.pick("0", "1", "2", "-1", "1.5", "2.0", "'a'", `"a"`, `"b"`, `""`, "true", "false",
			"nil", `"%v-%d"`, "0x1e", "1i")
	case form < 7 && depth > 0:
		return "(" + w.pipe(depth-1) + ")" + w.pick("", "", ".a", ".a.b")
	case len(w.vars) > 0:
		return w.pick(w.vars...) + w.pick("", "", ".a", ".b")
	}
	return w.pick(".", "1")
}

// value returns random data.
func value(t *rapid.T, depth int) any {
	form := rapid.IntRange(0, 9).Draw(t, "form")
	if depth == 0 && form > 5 {
		form = 1
	}
	switch form {
	case 0:
		return nil
	case 1:
		return rapid.SampledFrom([]string{"", "a", "b", "é<&>'\"\x00", "%v"}).Draw(t, "text")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return rapid.SampledFrom([]float64{0.5, 1.5, -2.25, 1e21}).Draw(t, "float")
	case 4, 5:
		return rapid.IntRange(-2, 4).Draw(t, "int")
	case 6, 7:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = value(t, depth-1)
		}
		return list
	}
	object := make(map[string]any)
	for _, key := range []string{"a", "b", "list", "n", "s"} {
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			object[key] = value(t, depth-1)
		}
	}
	return object
}

// Random templates make of random data what text/template makes of them.
func TestRandom(t *testing.T) {
	drawn, filled := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{T: t}
		text := w.list(3)
		for _, name := range []string{"p", "q"} {
			w.vars = nil
			text += fmt.Sprintf("{{define %q}}%s{{end}}", name, w.list(1))
		}
		drawn++
		if differ(t, text, value(t, 3)) {
			filled++
		}
	})
	if filled < drawn/20 {
		t.Errorf("%d of %d templates could be filled, want more", filled, drawn)
	}
}

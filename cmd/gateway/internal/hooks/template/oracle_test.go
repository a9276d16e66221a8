package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// An oracle is the text/template that ours shall not differ from.
type oracle struct{ *template.Template }

// shownName is the function of the oracle that its actions give their value to.
const shownName = "shownByTheOracle"

// ask returns the oracle for a template.
func ask(text string) (*oracle, error) {
	t, err := template.New("t").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": wantJSON, "limit": wantLimit, shownName: wantShown,
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, part := range t.Templates() {
		if part.Tree != nil {
			showAll(part.Tree, part.Root)
		}
	}
	return &oracle{t}, nil
}

// showAll lets each action below n write what [wantShown] returns.
func showAll(tree *parse.Tree, n parse.Node) {
	branch := func(b *parse.BranchNode) {
		showAll(tree, b.List)
		showAll(tree, b.ElseList)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			showAll(tree, child)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 { // else it writes nothing
			name := parse.NewIdentifier(shownName).SetTree(tree).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{name}})
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	}
}

func wantShown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case map[string]any, []any:
		return wantJSON(v)
	}
	return fmt.Sprint(v)
}

func wantJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func wantLimit(n int, v any) string {
	s := wantShown(v)
	if n < 0 {
		return s
	}
	for at := range s {
		if n == 0 {
			return wantRunes(s[:at]) + "…"
		}
		n--
	}
	return wantRunes(s)
}

// wantRunes returns s with what is no UTF-8 replaced, as by the way over its characters.
func wantRunes(s string) string { return string([]rune(s)) }

// A bounded writer takes so many bytes.
type bounded struct {
	text strings.Builder
	left int
}

var errFull = errors.New("full")

func (w *bounded) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, errFull
	}
	w.left -= len(p)
	return w.text.Write(p)
}

// A failer is a test, or one case of those that rapid draws.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// differ fails the test if the oracle makes something else of a template and data than ours, and
// reports whether both could be compared and succeeded.
func differ(t failer, text string, data any) bool {
	t.Helper()
	ours, err := Parse("t", text)
	if err != nil && (strings.HasSuffix(err.Error(), `function "call" not defined`) ||
		strings.HasSuffix(err.Error(), `function "js" not defined`)) {
		return false // left out
	}
	theirs, wantErr := ask(text)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("Parse(%q) = %v, want %v", text, err, wantErr)
	}
	if err != nil {
		return false
	}
	const room = 1 << 16
	got, want := &bounded{left: room}, &bounded{left: room}
	err = ours.Execute(got, data)
	if errors.Is(err, errSteps) || errors.Is(err, errDepth) {
		return false // text/template may go on for ever
	}
	wantErr = theirs.Execute(want, data)
	if wantErr != nil && strings.HasSuffix(wantErr.Error(),
		"error calling slice: cannot index slice/array with type interface {}") {
		return false // bounds that are fields
	}
	if (err == nil) != (wantErr == nil) || errors.Is(err, errFull) != errors.Is(wantErr, errFull) {
		t.Fatalf("Execute(%q, %s) fails with %v, want %v", text, wantJSON(data), err, wantErr)
	}
	if got, want := got.text.String(), want.text.String(); got != want {
		t.Fatalf("Execute(%q, %s) writes %q, want %q", text, wantJSON(data), got, want)
	}
	return err == nil
}

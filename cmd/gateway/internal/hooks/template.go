package hooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"text/template"
	"text/template/parse"
)

// ParseTemplate reads the template of a message. Its data is the JSON value that is posted, the
// fields of a form, or else the text. What is not there shows as nothing, and what is no text as
// JSON. Besides those of package text/template there are the functions
//
//	json VALUE    the value as JSON
//	limit N VALUE the first N characters of it
func ParseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=zero").Funcs(template.FuncMap{
		"json": asJSON, "limit": limit, shownName: shown,
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("hooks: template %s: %w", name, err)
	}
	for _, part := range t.Templates() {
		if part.Tree != nil {
			showAll(part.Tree, part.Root)
		}
	}
	return t, nil
}

// shownName is what actions are given to before their value is written.
const shownName = "_shown"

// showAll lets each action below n write what [shown] returns.
func showAll(tree *parse.Tree, n parse.Node) {
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
		showBranch(tree, &n.BranchNode)
	case *parse.RangeNode:
		showBranch(tree, &n.BranchNode)
	case *parse.WithNode:
		showBranch(tree, &n.BranchNode)
	}
}

func showBranch(tree *parse.Tree, b *parse.BranchNode) {
	showAll(tree, b.List)
	showAll(tree, b.ElseList)
}

// shown returns a value as people read it.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case map[string]any, []any:
		return asJSON(v)
	}
	return fmt.Sprint(v)
}

// asJSON returns a value as JSON.
func asJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v) // no value of a post is such
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// limit returns the first n characters of a value.
func limit(n int, v any) string {
	s := []rune(shown(v))
	if n < 0 || len(s) <= n {
		return string(s)
	}
	return string(s[:n]) + "…"
}

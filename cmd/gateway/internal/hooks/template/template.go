// Package template fills the templates of hooks with JSON.
//
// It executes what text/template/parse reads, the way text/template does, over what JSON becomes in
// hooks: nil, bool, string, int, float64, map[string]any and []any. The main type is [Template].
// It is there because text/template calls methods by names that only the running program knows: for
// that the linker keeps every exported method of every package, a sixth of the binary.
//
// It differs from text/template with the option missingkey=zero in this, and by a test in nothing
// else:
//
//   - An action writes nothing for what is not there, and JSON for objects and lists: see [Show].
//   - The functions json VALUE, which is JSON, and limit N VALUE, which are the first N characters,
//     are there. Neither call is, for there is nothing to call, nor js, which json replaces.
//   - slice takes fields as bounds as they are; elsewhere they need parentheses.
//   - What fails is told in the words of JSON: text, list, object.
//
// Limits: templates are 1000 deep in each other at most, and take a million steps at most, for what
// is posted may say how often something is repeated. A step is a node that is executed, or 64 bytes
// of a text that a function makes. The package owns no tables and no files.
package template

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"text/template/parse"
)

// The bounds of an execution.
const (
	maxDepth = 1000      // of templates in templates
	maxSteps = 1_000_000 // nodes that are executed, and texts
	stepText = 64        // bytes of a text that are a step
)

// A Template is a text with gaps to fill. It may be executed by several goroutines at once.
type Template struct {
	root  *parse.Tree
	trees map[string]*parse.Tree // by name, root among them
}

// Parse reads a template. Its name is for errors, and for templates that execute themselves.
func Parse(name, text string) (*Template, error) {
	known := make(map[string]any, len(functions))
	for name := range functions {
		known[name] = true
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return nil, err // says "template: NAME:LINE: " itself
	}
	return &Template{trees[name], trees}, nil
}

// Execute writes the text, filled with data, to w. If it fails then some of it may have been
// written. Errors of w are returned as they are.
func (t *Template) Execute(w io.Writer, data any) error {
	e := &execution{Template: t, w: w, vars: []variable{{"$", data}}}
	return e.list(data, t.root.Root)
}

// An execution is the state of one call of Execute.
//
// As text/template has it, a field that is missing or null is a [null], of which no field can be
// taken, until it is the value of a pipeline: that is nil, whose fields are nil again.
type execution struct {
	*Template
	w     io.Writer
	vars  []variable // the innermost last
	depth int        // of templates in templates
	steps int
}

// A variable is what a name such as $x stands for.
type variable struct {
	name  string
	value any
}

// null is what a field or an element holds that is nil.
type null struct{}

// held returns what a field or an element with the value v holds.
func held(v any) any {
	if v == nil {
		return null{}
	}
	return v
}

// plain returns the value of what is held.
func plain(v any) any {
	if v == (null{}) {
		return nil
	}
	return v
}

// What ends an execution that goes too far.
var (
	errSteps = fmt.Errorf("it takes too long: more than %d steps", maxSteps)
	errDepth = fmt.Errorf("templates are more than %d deep in each other", maxDepth)
)

// Why a list of nodes ends early: the loop around it handles both.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// fail returns an error that says where in the template something went wrong.
func (e *execution) fail(n parse.Node, format string, args ...any) error {
	place, context := e.root.ErrorContext(n)
	return fmt.Errorf("template: %s: at <%s>: %w", place, context, fmt.Errorf(format, args...))
}

// list executes nodes one after the other. Variables stay until the caller drops them.
func (e *execution) list(dot any, list *parse.ListNode) error {
	for _, n := range list.Nodes {
		if err := e.node(dot, n); err != nil {
			return err
		}
	}
	return nil
}

// count counts steps, and fails for one too many.
func (e *execution) count(steps int) error {
	if e.steps += steps; e.steps > maxSteps {
		return fmt.Errorf("template: %s: %w", e.root.Name, errSteps)
	}
	return nil
}

// countText counts the steps of a text that was made, if v is one.
func (e *execution) countText(v any) error {
	s, _ := v.(string)
	return e.count(len(s) / stepText)
}

func (e *execution) node(dot any, n parse.Node) error {
	if err := e.count(1); err != nil {
		return err
	}
	switch n := n.(type) {
	case *parse.TextNode:
		_, err := e.w.Write(n.Text)
		return err
	case *parse.ActionNode:
		v, err := e.pipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		_, err = io.WriteString(e.w, Show(v))
		return err
	case *parse.IfNode:
		return e.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return e.loop(dot, n)
	case *parse.BreakNode:
		return errBreak
	case *parse.ContinueNode:
		return errContinue
	case *parse.TemplateNode:
		return e.template(dot, n)
	}
	return e.fail(n, "there is no such action")
}

// branch executes an if, or a with, whose dot is the value.
func (e *execution) branch(dot any, n *parse.BranchNode, with bool) error {
	defer e.drop(len(e.vars))
	v, err := e.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case truth(v) && with:
		return e.list(v, n.List)
	case truth(v):
		return e.list(dot, n.List)
	case n.ElseList != nil:
		return e.list(dot, n.ElseList)
	}
	return nil
}

// drop forgets the variables after the first n.
func (e *execution) drop(n int) { e.vars = e.vars[:n] }

// loop executes a range.
func (e *execution) loop(dot any, n *parse.RangeNode) error {
	defer e.drop(len(e.vars))
	over, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	all, err := e.elements(n, over)
	if err != nil {
		return err
	}
	empty := true
	outside := len(e.vars)
	for key, value := range all {
		empty = false
		err := e.count(1)
		if err == nil {
			err = e.bind(n.Pipe, key, value)
		}
		if err == nil {
			err = e.list(value, n.List)
		}
		e.drop(outside)
		if errors.Is(err, errBreak) {
			break
		}
		if err != nil && !errors.Is(err, errContinue) {
			return err
		}
	}
	if empty && n.ElseList != nil {
		return e.list(dot, n.ElseList)
	}
	return nil
}

// elements returns what a range goes over: the keys, and what they hold. Numbers have no keys.
func (e *execution) elements(n *parse.RangeNode, over any) (iter.Seq2[any, any], error) {
	if _, ok := integer(over); ok && len(n.Pipe.Decl) > 1 {
		return nil, e.fail(n.Pipe, "a number can't be gone over with two variables")
	}
	switch over := over.(type) {
	case nil:
		return upTo(0), nil
	case int:
		return upTo(over), nil
	case uint8:
		return upTo(over), nil
	case []any:
		return func(yield func(any, any) bool) {
			for i, v := range over {
				if !yield(i, held(v)) {
					return
				}
			}
		}, nil
	case map[string]any:
		return func(yield func(any, any) bool) {
			for _, key := range slices.Sorted(maps.Keys(over)) {
				if !yield(key, held(over[key])) {
					return
				}
			}
		}, nil
	}
	return nil, e.fail(n.Pipe, "can't go over %s", kind(over))
}

// upTo goes from 0 to n-1.
func upTo[N int | uint8](n N) iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		for i := N(0); i < n; i++ {
			if !yield(nil, i) {
				return
			}
		}
	}
}

// bind gives the variables of a range a key and what it holds, or a single one the latter.
func (e *execution) bind(pipe *parse.PipeNode, key, value any) error {
	values := []any{key, value}[2-len(pipe.Decl):]
	for i, v := range pipe.Decl {
		if err := e.assign(v, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// template executes another template, which sees none of the variables.
func (e *execution) template(dot any, n *parse.TemplateNode) error {
	tree, ok := e.trees[n.Name]
	if !ok {
		return e.fail(n, "there is no template %q", n.Name)
	}
	if e.depth == maxDepth {
		return e.fail(n, "%w", errDepth)
	}
	var data any
	if n.Pipe != nil {
		var err error
		if data, err = e.pipeline(dot, n.Pipe); err != nil {
			return err
		}
	}
	outer := e.vars
	e.vars = []variable{{"$", data}}
	e.depth++
	err := e.list(data, tree.Root)
	e.vars = outer
	e.depth--
	return err
}

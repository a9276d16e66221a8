package template

import (
	"slices"
	"strings"
	"text/template/parse"
)

// none is what the first command of a pipeline gets from the one before it.
type none struct{}

// pipeline returns the value of a pipeline, and gives it to the variables that it sets.
func (e *execution) pipeline(dot any, pipe *parse.PipeNode) (any, error) {
	var value any = none{}
	for _, cmd := range pipe.Cmds {
		v, err := e.command(dot, cmd, value)
		if err != nil {
			return nil, err
		}
		value = plain(v)
	}
	for _, v := range pipe.Decl {
		if !pipe.IsAssign {
			e.vars = append(e.vars, variable{v.Ident[0], value})
		} else if err := e.assign(v, value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// command returns the value of a command, whose last argument is piped, if that is something.
func (e *execution) command(dot any, cmd *parse.CommandNode, piped any) (any, error) {
	first, args := cmd.Args[0], cmd.Args[1:]
	switch n := first.(type) {
	case *parse.IdentifierNode:
		return e.call(dot, n, args, piped)
	case *parse.NilNode:
		return nil, e.fail(n, "nil is no value by itself")
	}
	return e.operand(dot, first, len(args) > 0 || piped != (none{}))
}

// operand returns the value of an operand, which has arguments or not.
func (e *execution) operand(dot any, node parse.Node, args bool) (any, error) {
	var v any
	var names []string // of the fields to follow from v
	var err error
	switch n := node.(type) {
	case *parse.FieldNode:
		v, names = dot, n.Ident
	case *parse.ChainNode:
		v, err = e.operand(dot, n.Node, false)
		names = n.Field
	case *parse.VariableNode:
		v, err = e.lookUp(n)
		names = n.Ident[1:]
	default:
		v, err = e.term(dot, n)
	}
	if err == nil && args && len(names) == 0 {
		err = e.fail(node, "only functions take values")
	}
	for i, name := range names {
		if err == nil {
			v, err = e.field(node, v, name, args && i == len(names)-1)
		}
	}
	return v, err
}

// term returns the value of an operand without fields.
func (e *execution) term(dot any, node parse.Node) (any, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.IdentifierNode:
		return e.call(dot, n, nil, none{})
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return e.number(n)
	}
	return nil, e.fail(node, "this is no value")
}

// number returns a number of the template, whose type depends on how it is written.
func (e *execution) number(n *parse.NumberNode) (any, error) {
	point := ".eEpP" // what only floats have; an e is a digit of hexadecimal integers
	if strings.HasPrefix(n.Text, "0x") || strings.HasPrefix(n.Text, "0X") {
		point = "pP"
	}
	switch {
	case n.IsComplex:
		return n.Complex128, nil
	case strings.ContainsAny(n.Text, point) && !strings.HasPrefix(n.Text, "'"):
		return n.Float64, nil
	case !n.IsInt || int64(int(n.Int64)) != n.Int64:
		return nil, e.fail(n, "the number is too large")
	}
	return int(n.Int64), nil
}

// field returns a field of v. If it has arguments that is a mistake, which text/template does not
// see where v is nothing.
func (e *execution) field(n parse.Node, v any, name string, args bool) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case null:
		return nil, e.fail(n, "there is nothing to take the field %s of: ask with if or with", name)
	case map[string]any:
		if args {
			return nil, e.fail(n, "a field takes no values, only functions do")
		}
		return held(v[name]), nil
	}
	return nil, e.fail(n, "%s has no field %s", kind(v), name)
}

// lookUp returns the value of a variable.
func (e *execution) lookUp(n *parse.VariableNode) (any, error) {
	i, err := e.index(n)
	if err != nil {
		return nil, err
	}
	return e.vars[i].value, nil
}

// assign gives a variable that is there another value.
func (e *execution) assign(n *parse.VariableNode, value any) error {
	i, err := e.index(n)
	if err != nil {
		return err
	}
	e.vars[i].value = value
	return nil
}

// index returns which of the variables a name stands for: the innermost.
func (e *execution) index(n *parse.VariableNode) (int, error) {
	for i, v := range slices.Backward(e.vars) {
		if v.name == n.Ident[0] {
			return i, nil
		}
	}
	return 0, e.fail(n, "there is no variable %s here: it gets its first value by :=", n.Ident[0])
}

// call returns what a function makes of its arguments, the last of which is piped, if that is
// something.
func (e *execution) call(
	dot any, n *parse.IdentifierNode, nodes []parse.Node, piped any,
) (any, error) {
	f := functions[n.Ident]
	count := len(nodes)
	if piped != (none{}) {
		count++
	}
	if count < f.args || count > f.args && !f.more {
		return nil, e.fail(n, "%s takes %d values, and not %d", n.Ident, f.args, count)
	}
	args := make([]any, 0, count)
	for i, node := range nodes {
		v, err := e.argument(dot, node, f.whole && i == 0)
		if err != nil {
			return nil, err
		}
		if f.stop != nil && f.stop(v) {
			return v, nil
		}
		args = append(args, v)
	}
	if piped != (none{}) {
		args = append(args, piped)
	}
	if f.show {
		args[count-1] = Show(args[count-1])
		if err := e.countText(args[count-1]); err != nil {
			return nil, err
		}
	}
	v, err := f.call(args)
	if err != nil {
		return nil, e.fail(n, "%s: %w", n.Ident, err)
	}
	return v, e.countText(v)
}

// argument returns the value of an argument. Where an integer is wanted, a number of the template
// is one though it is written with a point.
func (e *execution) argument(dot any, node parse.Node, whole bool) (any, error) {
	if n, ok := node.(*parse.NumberNode); ok && whole && n.IsInt {
		return int(n.Int64), nil
	}
	v, err := e.operand(dot, node, false)
	return plain(v), err
}

package setup

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gateway/cmd/gateway/internal/config"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A document is the text of a configuration file. A change of a key leaves all other text as it is,
// including comments and keys that this package doesn't know.
type document []byte

// An expression is a key with its value, or the header of a table.
type expression struct {
	path       []string // of the key or the table
	key        []string // as written, without the table
	header     bool
	start, end int // offsets in the document
	value      int // offset of the value
	inline     bool
	list       bool
	last       int // offset after the last element of a list, or after its "["
}

// expressions returns the expressions of d in order. After an error it also returns those before
// the error.
func (d document) expressions() (list []expression, err error) {
	var p unstable.Parser
	p.Reset(d)
	var table []string
	for p.NextExpression() {
		n := p.Expression()
		e := expression{header: n.Kind != unstable.KeyValue}
		for it := n.Key(); it.Next(); {
			raw := it.Node().Raw
			if e.key == nil {
				e.start = int(raw.Offset)
			}
			e.key, e.end = append(e.key, string(it.Node().Data)), int(raw.Offset+raw.Length)
		}
		if e.header {
			table = e.key
			e.path, e.key = e.key, nil
			// The parser gives the offset of the name, but the header begins with its line.
			e.start = bytes.LastIndexByte(d[:e.start], '\n') + 1
			list = append(list, e)
			continue
		}
		e.path = slices.Concat(table, e.key)
		rest := bytes.TrimLeft(d[e.end:], " \t")
		e.value = len(d) - len(bytes.TrimLeft(rest[1:], " \t")) // after the "="
		e.end = int(n.Raw.Offset + n.Raw.Length)
		e.inline = n.Value().Kind == unstable.InlineTable
		if e.list = n.Value().Kind == unstable.Array; e.list {
			e.last = e.value + 1
			for it := n.Value().Children(); it.Next(); {
				if raw := it.Node().Raw; raw.Length > 0 {
					e.last = int(raw.Offset + raw.Length)
				}
			}
		}
		list = append(list, e)
	}
	return list, p.Error()
}

// has reports whether d has the key path, or a table path with a header or at least one key.
func (d document) has(path ...string) bool {
	list, err := d.expressions()
	return err == nil && slices.ContainsFunc(list, func(e expression) bool {
		return len(e.path) >= len(path) && slices.Equal(e.path[:len(path)], path)
	})
}

// set returns d with the key path set to value: a string, a bool, a number or a list of strings. It
// fails if d is not valid TOML, or has an inline table where the key belongs.
func (d document) set(value any, path ...string) (document, error) {
	list, err := d.expressions()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		switch {
		case !e.header && slices.Equal(e.path, path):
			return d.splice(e.value, e.end, config.FormatTOML(value)), nil
		case e.inline && len(e.path) < len(path) && slices.Equal(e.path, path[:len(e.path)]):
			return nil, fmt.Errorf("%s is written as {…}: write it as a table, [%[1]s], first",
				config.DottedKey(e.path))
		}
	}
	return d.insert(list, value, path), nil
}

// insert returns d with a key that it does not have yet. The key goes below a comment with its
// default, else after the last key of its table. A table that does not exist yet goes to the end.
func (d document) insert(list []expression, value any, path []string) document {
	table, key := path[:len(path)-1], path[len(path)-1:]
	after := slices.IndexFunc(list, func(e expression) bool {
		return e.header && slices.Equal(e.path, table)
	})
	if after < 0 {
		after, key = lastDotted(list, table, key)
	}
	line := config.DottedKey(key) + " = " + config.FormatTOML(value)
	if after < 0 { // a new table
		head := "[" + config.DottedKey(table) + "]\n"
		if len(bytes.TrimSpace(d)) > 0 {
			head = "\n" + head
		}
		return append(d.ended(), d.newlines(head+line+"\n")...)
	}
	// The table ends at the next header. Dotted keys have no header, so the new key directly
	// follows the last of them.
	next, below := len(d), list[after].header
	for i := after + 1; i < len(list); i++ {
		if list[i].header {
			next = list[i].start
			break
		}
		if below {
			after = i
		}
	}
	d = d.ended()
	at := d.lineEnd(list[after].end)
	// If the table has the key's default as a comment, the key goes below that comment.
	note := regexp.MustCompile(`(?m)^#` + regexp.QuoteMeta(config.DottedKey(key)) + ` =.*$`)
	from := d.headerEnd(list, after)
	if loc := note.FindIndex(d[from:max(next, from)]); loc != nil {
		at = d.lineEnd(from + loc[1])
	}
	return d.splice(at, at, d.newlines(line+"\n"))
}

// lastDotted looks for a table without a header, whose keys are dotted, such as table.key = 1. It
// returns the index of the last such key, and key with the same dotted prefix. The index is -1 if
// there is no such key.
func lastDotted(list []expression, table, key []string) (int, []string) {
	for i, e := range slices.Backward(list) {
		outer := len(e.path) - len(e.key)
		if !e.header && outer < len(table) && len(e.path) > len(table) &&
			slices.Equal(e.path[:len(table)], table) {
			return i, slices.Concat(table[outer:], key)
		}
	}
	return -1, key
}

// headerEnd returns the offset after the line with the header above expression i, or 0.
func (d document) headerEnd(list []expression, i int) int {
	for ; i >= 0; i-- {
		if list[i].header {
			return d.lineEnd(list[i].end)
		}
	}
	return 0
}

// remove returns d without a key. It removes whole lines, with the comment behind the value.
// Without the key it returns d.
func (d document) remove(path ...string) (document, error) {
	list, err := d.expressions()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if !e.header && slices.Equal(e.path, path) {
			return d.splice(bytes.LastIndexByte(d[:e.start], '\n')+1, d.lineEnd(e.end), ""), nil
		}
	}
	return d, nil
}

// add returns d with a string added to a list. If the key does not exist, it gets a list with this
// string.
func (d document) add(element string, path ...string) (document, error) {
	list, err := d.expressions()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.header || !e.list || !slices.Equal(e.path, path) {
			continue
		}
		text := config.FormatTOML(element)
		if e.last > e.value+1 {
			text = ", " + text
		}
		return d.splice(e.last, e.last, text), nil
	}
	return d.set([]string{element}, path...)
}

// splice returns d with the text from start to end replaced.
func (d document) splice(start, end int, text string) document {
	return slices.Concat(d[:start], document(text), d[end:])
}

// lineEnd returns the offset after the line that contains the offset at.
func (d document) lineEnd(at int) int {
	if i := bytes.IndexByte(d[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(d)
}

// ended returns d with a newline at its end, unless it is empty.
func (d document) ended() document {
	if len(d) == 0 || d[len(d)-1] == '\n' {
		return slices.Clone(d)
	}
	return append(slices.Clone(d), d.newlines("\n")...)
}

// newlines returns text with the line ends of d.
func (d document) newlines(text string) string {
	if bytes.Contains(d, []byte("\r\n")) {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

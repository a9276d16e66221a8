package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/tool"
	"gateway/store/plainjson"
)

const notebookDescription = "Replaces, inserts (behind cell) or deletes a cell of a Jupyter " +
	"notebook. read_file shows ids and numbers. Replacing a code cell clears its output."

// notebookArgs are the arguments of notebook_edit. Source is a pointer, because a cell may become
// empty.
type notebookArgs struct {
	Path   string  `json:"path"`
	Cell   string  `json:"cell,omitempty" jsonschema:"id or number; none: insert at the start"`
	Mode   string  `json:"mode,omitempty" jsonschema:"replace (default), insert or delete"`
	Type   string  `json:"cell_type,omitempty" jsonschema:"code, markdown or raw"`
	Source *string `json:"source,omitempty"`
}

// check sets the default mode, and returns an error for the model if an argument is missing or not
// valid.
func (a *notebookArgs) check() error {
	switch a.Mode {
	case "":
		a.Mode = "replace"
	case "replace", "insert", "delete":
	default:
		return fmt.Errorf("mode %q is unknown; want replace, insert or delete", truncate(a.Mode))
	}
	switch {
	case !slices.Contains([]string{"", "code", "markdown", "raw"}, a.Type):
		return fmt.Errorf("cell_type %q is unknown; want code, markdown or raw", truncate(a.Type))
	case a.Mode == "insert" && a.Type == "":
		return errors.New("cell_type is missing; want code, markdown or raw")
	case a.Mode != "delete" && a.Source == nil:
		return errors.New("source is missing")
	case a.Mode != "insert" && a.Cell == "":
		return errors.New("cell is missing; want its id or its number, from 0")
	}
	return nil
}

func (e *editor) editNotebook(
	ctx context.Context, c tool.Call, a notebookArgs,
) (tool.Result, error) {
	if err := a.check(); err != nil {
		return tool.Result{}, err
	}
	return e.rewrite(ctx, c, a.Path, "", func(old string) (text, report string, err error) {
		// JSON has neither a byte order mark nor line ends of its own: the file keeps what it has.
		old, bom := strings.CutPrefix(old, string(byteOrderMark))
		if text, report, err = changeNotebook(old, a); hasCRLF(old) {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if bom {
			text = string(byteOrderMark) + text
		}
		return text, report, err
	})
}

// changeNotebook returns the text of a notebook after a change, and a message about the change. It
// keeps members that it does not know. It sorts keys, as Jupyter does.
func changeNotebook(text string, a notebookArgs) (after, report string, err error) {
	book, cells, err := parseNotebook(text)
	if err != nil {
		return "", "", err
	}
	// Without a cell, a new one is inserted at the start.
	at := -1
	if a.Cell != "" {
		if at, err = findCell(cells, a.Cell); err != nil {
			return "", "", err
		}
	}
	switch a.Mode {
	case "insert":
		at++
		cells = slices.Insert(cells, at, newCell(a, book.withIDs()))
		report = fmt.Sprintf("cell %d was inserted", at)
	case "delete":
		cells = slices.Delete(cells, at, at+1)
		report = fmt.Sprintf("cell %d was deleted; those behind it have other numbers now", at)
	default:
		cells[at].replace(a)
		report = fmt.Sprintf("cell %d was replaced", at)
	}
	book.set("cells", cells)
	after, err = likeJSON([]byte(plainjson.Text(book)), text)
	return after, fmt.Sprintf(": %s, of %d", report, len(cells)), err
}

// An object is a JSON object. Members that this package does not know stay in it unchanged.
type object map[string]json.RawMessage

func (o object) set(name string, value any) { o[name] = []byte(plainjson.Text(value)) }

// text returns a member that is a string or a list of strings, and "" for any other member.
func (o object) text(name string) string {
	var s string
	var lines []string
	if json.Unmarshal(o[name], &s) == nil {
		return s
	}
	if json.Unmarshal(o[name], &lines) == nil {
		return strings.Join(lines, "")
	}
	return ""
}

// likeJSON returns raw with the indentation of old. The second line of old shows the indentation.
// If old has none, the result has none.
func likeJSON(raw []byte, old string) (string, error) {
	b := bytes.NewBuffer(nil)
	err := json.Compact(b, raw)
	if first, rest, many := strings.Cut(old, "\n"); many && strings.TrimSpace(first) == "{" {
		indent := rest[:len(rest)-len(strings.TrimLeft(rest, " \t"))]
		if indentedSize(b.Bytes(), len(indent)) > maxEdit {
			return "", fmt.Errorf("with its indentation it would have more than %d bytes", maxEdit)
		}
		b.Reset()
		err = json.Indent(b, raw, "", indent)
	}
	if strings.HasSuffix(old, "\n") {
		b.WriteByte('\n')
	}
	return b.String(), err
}

// indentedSize returns the size of compact JSON with an indentation of so many bytes for each
// level, or a little more. A small file can have long indentations and many lines deep inside,
// which together would take all memory.
func indentedSize(raw []byte, indent int) int {
	size, depth := len(raw), 0
	text, escaped := false, false // within a string, after a backslash
	for _, c := range raw {
		switch {
		case text:
			text = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case c == '"':
			text = true
		case c == ':':
			size++
		case c == '{' || c == '[':
			depth++
			size += 1 + depth*indent
		case c == '}' || c == ']':
			depth--
			size += 1 + depth*indent
		case c == ',':
			size += 1 + depth*indent
		}
	}
	return size
}

// parseNotebook parses a notebook of nbformat version 4.
func parseNotebook(text string) (book object, cells []object, err error) {
	if !json.Valid([]byte(text)) {
		return nil, nil, errors.New("it is not valid JSON")
	}
	if json.Unmarshal([]byte(text), &book) != nil || string(book["nbformat"]) != "4" ||
		json.Unmarshal(book["cells"], &cells) != nil ||
		slices.ContainsFunc(cells, func(c object) bool { return c == nil }) { // null
		return nil, nil, errors.New("it is not a notebook of format 4")
	}
	return book, cells, nil
}

// withIDs reports whether the cells of this version have ids: since nbformat 4.5.
func (o object) withIDs() bool {
	minor, err := strconv.Atoi(string(o["nbformat_minor"]))
	return err == nil && minor >= 5
}

// findCell returns the index of the cell that the model named. An id comes before a number, because
// an id may consist of digits.
func findCell(cells []object, name string) (int, error) {
	if i := slices.IndexFunc(cells, func(c object) bool { return c.text("id") == name }); i >= 0 {
		return i, nil
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(cells) {
		return i, nil
	}
	return 0, fmt.Errorf("there is no cell %s; it has %d, numbered from 0", quoted(name), len(cells))
}

// newCell returns the cell that the arguments ask for.
func newCell(a notebookArgs, withID bool) object {
	o := make(object)
	o.set("cell_type", a.Type)
	if a.Type == "code" {
		o.set("execution_count", nil)
	}
	if withID {
		o.set("id", strings.ToLower(rand.Text()[:8]))
	}
	o.set("metadata", struct{}{})
	if a.Type == "code" {
		o.set("outputs", []string{})
	}
	o.set("source", sourceLines(*a.Source))
	return o
}

// replace sets a cell's source, and its type if the arguments name one.
func (o object) replace(a notebookArgs) {
	if a.Type != "" {
		o.set("cell_type", a.Type)
	}
	// The format allows a string or a list of lines. The cell keeps its form.
	if raw := o["source"]; len(raw) > 0 && raw[0] == '"' {
		o.set("source", *a.Source)
	} else {
		o.set("source", sourceLines(*a.Source))
	}
	if o.text("cell_type") == "code" {
		o.set("execution_count", nil)
		o.set("outputs", []string{})
		return
	}
	// Only cells of code may have these members.
	delete(o, "execution_count")
	delete(o, "outputs")
}

// sourceLines returns a text in the form of the notebook format: a list of lines, each with its
// line break.
func sourceLines(text string) []string {
	return slices.AppendSeq([]string{}, strings.Lines(text)) // not nil, which is null in JSON
}

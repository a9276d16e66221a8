package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errNoNotebook reports that JSON is not a notebook.
var errNoNotebook = errors.New("not a notebook")

// A source is text that a notebook stores as one string or as a list of lines.
type source string

func (s *source) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*s = source(strings.Join(lines, ""))
		return nil
	}
	var whole string
	if json.Unmarshal(b, &whole) == nil { // leave out any other value
		*s = source(whole)
	}
	return nil
}

// notebook reads the cells of a Jupyter notebook with their numbers, ids and printed output. The
// numbers, from 0, and the ids are those with which the agent names a cell to change.
func (f *file) notebook() error {
	var n struct {
		Cells []struct {
			Type    string `json:"cell_type"`
			ID      string `json:"id"`
			Source  source `json:"source"`
			Outputs []struct {
				Text  source            `json:"text"`
				Error source            `json:"evalue"`
				Data  map[string]source `json:"data"`
			} `json:"outputs"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(f.raw, &n); err != nil || n.Cells == nil {
		return errNoNotebook
	}
	for i, c := range n.Cells {
		id := ""
		if c.ID != "" {
			id = ", id " + unquoted(c.ID)
		}
		f.out.add(fmt.Sprintf("--- cell %d, %s%s\n%s\n", i, unquoted(c.Type), id,
			strings.TrimSuffix(string(c.Source), "\n")))
		for _, o := range c.Outputs {
			// Other forms of the same output, such as HTML, repeat text/plain.
			printed := string(o.Text + o.Error + o.Data["text/plain"])
			for kind := range o.Data {
				if strings.HasPrefix(kind, "image/") {
					printed += "\n(an image)"
				}
			}
			if printed = strings.Trim(printed, "\n"); printed != "" {
				f.out.add("--- printed\n" + printed + "\n")
			}
		}
	}
	return nil
}

// unquoted returns s on one line, with special characters as in a Go string.
func unquoted(s string) string { return strings.Trim(strconv.Quote(s), `"`) }

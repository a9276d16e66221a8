package document

import (
	"encoding/json"
	"errors"
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

// notebook reads the cells of a Jupyter notebook and their printed output.
func (f *file) notebook() error {
	raw, err := f.whole()
	if err != nil {
		return err
	}
	var n struct {
		Cells []struct {
			Type    string `json:"cell_type"`
			Source  source `json:"source"`
			Outputs []struct {
				Text source `json:"text"`
				Data struct {
					Plain source `json:"text/plain"`
				} `json:"data"`
				Error string `json:"evalue"`
			} `json:"outputs"`
		} `json:"cells"`
		Metadata struct {
			Kernel struct {
				Language string `json:"language"`
			} `json:"kernelspec"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &n); err != nil || n.Cells == nil {
		return errNoNotebook
	}
	for _, c := range n.Cells {
		text := string(c.Source)
		if c.Type == "code" {
			text = "```" + n.Metadata.Kernel.Language + "\n" + text + "\n```"
		}
		f.out.paragraph()
		if err := f.out.write(text); err != nil {
			return err
		}
		for _, o := range c.Outputs {
			for _, text := range []string{string(o.Text), string(o.Data.Plain), o.Error} {
				f.out.line()
				if err := f.out.write(strings.TrimRight(text, "\n")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

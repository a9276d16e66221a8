package document

import (
	"cmp"
	"encoding/xml"
	"slices"
	"strconv"
	"strings"
)

// word reads a Word document with its notes, headers and footers. A header or a footer may have the
// number of an invoice.
func (a *archive) word() error {
	text := &wordText{sink: a.out, styles: a.wordStyles()}
	if err := a.xml("word/document.xml", text.handle); err != nil {
		return err
	}
	for _, part := range slices.Concat(
		[]string{"word/footnotes.xml", "word/endnotes.xml", "word/comments.xml"},
		a.numbered("word/header", ".xml"), a.numbered("word/footer", ".xml")) {
		if !a.has(part) {
			continue
		}
		a.out.paragraph()
		if err := a.xml(part, (&wordText{sink: a.out}).handle); err != nil {
			return err
		}
	}
	return nil
}

// wordStyles returns the names of the styles by their ids. The ids are in the language of the
// program, the names of built-in styles in English.
func (a *archive) wordStyles() map[string]string {
	names, id := make(map[string]string), ""
	// An error only means that some names are missing.
	_ = a.xml("word/styles.xml", func(e *xml.StartElement, _, _ string) {
		switch {
		case e == nil || len(names) > maxStyles:
		case e.Name.Local == "style":
			id = attribute(e, "styleId")
		case e.Name.Local == "name":
			names[id] = attribute(e, "val")
		}
	})
	return names
}

// A wordText writes the paragraphs of a Word document.
type wordText struct {
	*sink
	styles  map[string]string // names by id
	prefix  string            // of the paragraph: mark of a heading or list item
	begun   bool              // the paragraph has text
	inText  bool
	tables  int  // nesting depth
	cells   int  // number of cells in the row so far
	gap     bool // a paragraph of the cell is to be separated from the next one
	deleted int  // nesting depth of deleted text
}

func (w *wordText) handle(start *xml.StartElement, end, text string) {
	switch {
	case start != nil:
		w.start(start)
	case end != "":
		w.end(end)
	case w.inText && w.deleted == 0:
		w.put(text)
	}
}

// start handles the start of an element. Elements that it does not know have no effect, but text in
// them counts.
func (w *wordText) start(e *xml.StartElement) {
	switch e.Name.Local {
	case "p":
		w.prefix, w.begun = "", false
	case "pStyle":
		id := attribute(e, "val")
		w.prefix = headingPrefix(cmp.Or(w.styles[id], id))
	case "ilvl":
		// The level of a list item, from 0. A heading with a number stays a heading.
		level, err := strconv.Atoi(attribute(e, "val"))
		if err == nil && level < 10 && w.prefix == "" {
			w.prefix = strings.Repeat("  ", max(0, level)) + "- "
		}
	case "t":
		w.inText = true
	case "tab":
		if w.begun {
			w.put("\t")
		}
	case "br", "cr":
		w.put("\n")
	case "noBreakHyphen":
		w.put("-")
	case "del", "moveFrom", "Fallback": // a Fallback repeats earlier content
		w.deleted++
	case "tbl":
		w.tables++
		w.paragraph()
	case "tr":
		w.cells = 0
	case "tc":
		w.gap = false
		if w.cells++; w.cells > 1 {
			w.write(" | ")
		}
	case "footnoteReference", "endnoteReference":
		w.put("[" + attribute(e, "id") + "]")
	case "footnote", "endnote":
		w.line()
		// The other types are the lines that separate notes from the text.
		if kind := attribute(e, "type"); kind == "" || kind == "normal" {
			w.write("[" + attribute(e, "id") + "] ")
		}
	}
}

func (w *wordText) end(name string) {
	switch name {
	case "t":
		w.inText = false
	case "p":
		switch {
		case w.tables > 0:
			w.gap = w.gap || w.begun
		case w.begun:
			w.paragraph()
			// Items of a list follow one another without empty lines.
			if strings.HasSuffix(w.prefix, "- ") {
				w.breaks = 1
			}
		}
	case "del", "moveFrom", "Fallback":
		w.deleted--
	case "tr":
		w.line()
	case "tbl":
		w.tables--
		w.paragraph()
	}
}

// put writes text of the current paragraph. In a table it leaves out the mark of the paragraph and
// all line breaks, because a row is one line.
func (w *wordText) put(text string) {
	if w.deleted > 0 {
		return
	}
	if !w.begun {
		w.begun = true
		switch {
		case w.tables == 0:
			text = w.prefix + text
		case w.gap:
			text = " " + text
		}
	}
	if w.tables > 0 {
		text = strings.ReplaceAll(text, "\n", " ")
	}
	w.write(text)
}

// headingPrefix returns the mark of a heading for the name of its style.
func headingPrefix(style string) string {
	style = strings.ToLower(style)
	if style == "title" {
		return "# "
	}
	level, ok := strings.CutPrefix(style, "heading")
	if n, err := strconv.Atoi(strings.TrimSpace(level)); ok && err == nil && n >= 1 && n <= 9 {
		return strings.Repeat("#", min(n, 6)) + " "
	}
	return ""
}

package document

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// presentation lists the slides in their order.
const presentation = "ppt/presentation.xml"

// slides reads a PowerPoint presentation with the speaker's notes.
func (a *archive) slides() error {
	for i, name := range a.slideNames() {
		a.out.paragraph()
		a.out.write(fmt.Sprintf("# Slide %d", i+1))
		a.out.line()
		if err := a.xml(name, (&slideText{sink: a.out}).handle); err != nil {
			return err
		}
		notes := a.related(name, "notesSlide")
		if !a.has(notes) {
			continue
		}
		a.out.line()
		if err := a.xml(notes, (&slideText{sink: a.out, title: "Notes: "}).handle); err != nil {
			return err
		}
	}
	return nil
}

// slideNames returns the names of the slides in their order. If that can't be read, it is the order
// of the names.
func (a *archive) slideNames() (names []string) {
	targets := make(map[string]string)
	for _, r := range a.relations(presentation) {
		targets[r.id] = r.target
	}
	// After an error the names have an order, too.
	_ = a.xml(presentation, func(e *xml.StartElement, _, _ string) {
		if e == nil || e.Name.Local != "sldId" {
			return
		}
		for _, attr := range e.Attr { // the slide's own number is an id, too
			if name := targets[attr.Value]; attr.Name.Local == "id" && a.has(name) {
				names = append(names, name)
				delete(targets, attr.Value)
			}
		}
	})
	if len(names) == 0 {
		names = a.numbered("ppt/slides/slide", ".xml")
	}
	return names
}

// related returns the name of the first entry to which name has a relation of the given kind.
func (a *archive) related(name, kind string) string {
	for _, r := range a.relations(name) {
		if strings.HasSuffix(r.kind, "/"+kind) {
			return r.target
		}
	}
	return ""
}

// A slideText writes the paragraphs of a slide as lines.
type slideText struct {
	*sink
	title  string // written before the first text
	inText bool
	cells  int  // number of cells in the row so far
	gap    bool // a line of the cell is to be separated from the next one
	tables int  // nesting depth
	field  bool // within a field, such as the slide's number
}

// handle is the handler of a slide. A row of a table is one line, whatever paragraphs are in its
// cells.
func (s *slideText) handle(start *xml.StartElement, end, text string) {
	switch {
	case start != nil:
		switch start.Name.Local {
		case "t":
			s.inText = true
		case "br":
			s.lineBreak()
		case "fld":
			s.field = attribute(start, "type") == "slidenum"
		case "tbl":
			s.tables++
		case "tr":
			s.cells = 0
		case "tc":
			s.gap = false
			if s.cells++; s.cells > 1 {
				s.write(" | ")
			}
		}
	case end == "t":
		s.inText = false
	case end == "fld":
		s.field = false
	case end == "tbl":
		s.tables--
	case end == "p":
		s.lineBreak()
	case end == "tr":
		s.line()
	case s.inText && !s.field:
		if s.gap && s.tables > 0 {
			s.write(" ")
		}
		s.write(s.title + text)
		s.title, s.gap = "", false
	}
}

// lineBreak ends a line. In a table it only separates what the cell has so far from what follows.
func (s *slideText) lineBreak() {
	if s.gap = true; s.tables == 0 {
		s.line()
	}
}

package document

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// An openText writes the text of content.xml.
type openText struct {
	*sink
	texts  int             // depth of paragraphs and headings
	lists  int             // nesting depth
	tables int             // nesting depth
	gap    int             // empty cells to write if another cell follows
	repeat int             // how often the cell is repeated
	cell   strings.Builder // text of the cell so far
	rows   int             // how often the row is repeated
	filled bool            // the row has text
	skip   int             // depth of elements that are not text of the document
	noted  int             // depth of notes
	citing bool            // within the mark of a note
	notes  strings.Builder // notes of the paragraph, a line for each
}

// handle is the handler of content.xml. Only paragraphs and headings have text; the white space
// between elements is none.
func (o *openText) handle(start *xml.StartElement, end, text string) {
	switch {
	case start != nil:
		o.start(start)
	case end != "":
		o.end(end)
	case o.texts > 0 && o.skip == 0:
		o.put(text)
	}
}

// start handles the start of an element.
func (o *openText) start(e *xml.StartElement) {
	switch e.Name.Local {
	case "annotation", "tracked-changes", "forms":
		o.skip++
	case "note-citation":
		o.put("[")
		o.notes.WriteString("\n[")
		o.citing = true
	case "note-body":
		o.noted++
	case "h":
		o.texts++
		o.put(strings.Repeat("#", number(e, "outline-level", 6)) + " ")
	case "p":
		o.texts++
	case "list":
		o.lists++
	case "list-item":
		o.put(strings.Repeat("  ", max(0, min(o.lists, 10)-1)) + "- ")
	case "tab":
		o.put("\t")
	case "line-break":
		o.put("\n")
	case "s":
		o.put(strings.Repeat(" ", number(e, "c", maxGap)))
	case "table":
		o.tables++
		o.paragraph()
		if name := attribute(e, "name"); name != "" && o.tables == 1 {
			o.write("# " + name)
			o.line()
		}
	case "table-row":
		// The first cell has no tab before it.
		o.gap = -1
		if o.tables == 1 {
			o.rows, o.filled = number(e, "number-rows-repeated", math.MaxInt), false
		}
	case "table-cell", "covered-table-cell":
		o.repeat = number(e, "number-columns-repeated", math.MaxInt)
		o.cell.Reset()
	case "page":
		o.paragraph()
		o.write("# " + attribute(e, "name") + "\n")
	}
}

// number returns the value of an attribute if it is a number from 1 to most, and otherwise 1.
func number(e *xml.StartElement, name string, most int) int {
	n, err := strconv.Atoi(attribute(e, name))
	if err != nil || n < 1 || n > most {
		return 1
	}
	return n
}

func (o *openText) end(name string) {
	switch name {
	case "annotation", "tracked-changes", "forms":
		o.skip--
	case "note-citation":
		o.citing = false
		o.notes.WriteString("] ")
		o.put("]")
	case "note-body":
		o.noted--
	case "h", "p":
		if o.texts--; o.noted == 0 {
			o.putNotes()
		}
		switch {
		case o.noted > 0:
			o.put(" ")
		case o.tables > 0:
			o.put(" ")
		case o.lists > 0:
			o.line()
		default:
			o.paragraph()
		}
	case "list":
		if o.lists--; o.lists == 0 {
			o.paragraph()
		}
	case "table":
		o.tables--
		o.paragraph()
	case "table-row":
		// Spreadsheets store equal rows that follow one another once.
		if o.tables == 1 && o.filled && o.rows > 1 {
			o.write(fmt.Sprintf(" [this row occurs %d times]", o.rows))
		}
		o.line()
	case "table-cell", "covered-table-cell":
		o.endCell()
	}
}

// endCell writes a cell as often as it is repeated. It writes empty cells only before other cells.
// Spreadsheets often end with cells that are repeated thousands of times, which are usually empty.
func (o *openText) endCell() {
	text := strings.Join(strings.Fields(o.cell.String()), " ")
	if text == "" {
		o.gap = min(o.gap+o.repeat, maxGap)
		return
	}
	for range min(o.repeat, maxGap) {
		o.write(strings.Repeat("\t", max(0, o.gap+1)) + text)
		o.gap = 0
	}
	o.filled = true
}

// putNotes writes the notes of a paragraph behind it, each on a line.
func (o *openText) putNotes() {
	notes := o.notes.String()
	o.notes.Reset()
	for line := range strings.Lines(strings.TrimPrefix(notes, "\n")) {
		o.put("\n" + strings.Join(strings.Fields(line), " "))
	}
}

// put writes text, or stores it for the current cell or note. The text of a cell waits for its end,
// because only then the cell is known not to be empty.
func (o *openText) put(text string) {
	if (o.noted > 0 || o.citing) && o.notes.Len() < maxToken {
		o.notes.WriteString(strings.ReplaceAll(text, "\n", " "))
	}
	switch {
	case o.noted > 0:
	case o.tables == 0:
		o.write(text)
	case o.cell.Len() < maxToken:
		o.cell.WriteString(text)
	}
}

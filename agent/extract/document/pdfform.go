package document

import (
	"strings"

	"github.com/ledongthuc/pdf"
)

// maxAnnotations is the maximum number of annotations of a page that are read.
const maxAnnotations = 2000

// annotations writes what people have added to a page: what they have filled in, and their texts
// and notes. These are not part of its content.
func (t *pdfText) annotations(list pdf.Value) {
	for i := 0; i < list.Len() && i < maxAnnotations; i++ {
		if err := t.check(); err != nil {
			panic(parserPanic{err})
		}
		a := list.Index(i)
		name, text := fieldOf(a, "T"), ""
		switch a.Key("Subtype").Name() {
		case "Widget":
			text = fieldOf(a, "V")
			if state := a.Key("AS"); !state.IsNull() { // of several buttons, only one has the value
				text = annotated(state)
			}
		case "FreeText":
			name, text = "", annotated(a.Key("Contents"))
		case "Text", "Highlight", "Underline", "StrikeOut":
			text = annotated(a.Key("Contents"))
		}
		if text == "" {
			continue
		}
		if name != "" {
			text = name + ": " + text
		}
		t.out.line()
		t.out.write(t.heading + text)
		t.heading = ""
	}
}

// fieldOf returns the text of an entry of a field, or of the nearest field above that has it.
func fieldOf(field pdf.Value, entry string) string {
	for range maxTree {
		if v := field.Key(entry); !v.IsNull() {
			return annotated(v)
		}
		field = field.Key("Parent")
	}
	return ""
}

// annotated returns a value of a field or an annotation as one line. A box that is not ticked has
// none.
func annotated(v pdf.Value) string {
	text := strings.TrimSuffix(v.Name(), "Off")
	switch v.Kind() {
	case pdf.String:
		text = v.Text()
	case pdf.Array: // several choices of a list
		var all []string
		for i := 0; i < v.Len() && i < maxAnnotations; i++ {
			all = append(all, v.Index(i).Text())
		}
		text = strings.Join(all, ", ")
	}
	return cleaned(strings.Join(strings.Fields(text), " "))
}

package document

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gateway/store/plaintext"
)

// Limits of workbooks.
const (
	maxCell        = 64 << 10  // bytes; Excel allows 32,767 characters
	maxShared      = 1_000_000 // strings
	maxSharedBytes = 64 << 20
	maxGap         = 64 // empty cells in a row that are written
	maxStyles      = 100_000
	maxSheets      = 1000
)

// A relation is a reference from one entry to another.
type relation struct{ id, kind, target string }

// relations returns the relations of an entry, or nil if they can't be read. The target of a
// relation is relative to the folder of the entry, or begins with a slash.
func (a *archive) relations(name string) (all []relation) {
	folder, file := path.Split(name)
	rels := folder + "_rels/" + file + ".rels"
	if !a.has(rels) {
		return nil
	}
	// An error only means that some relations are missing.
	_ = a.xml(rels, func(e *xml.StartElement, _, _ string) {
		if e == nil || e.Name.Local != "Relationship" || len(all) >= maxEntries {
			return
		}
		target := attribute(e, "Target")
		if !strings.HasPrefix(target, "/") {
			target = path.Join(folder, target)
		}
		all = append(all, relation{
			attribute(e, "Id"), attribute(e, "Type"), strings.TrimPrefix(target, "/"),
		})
	})
	return all
}

// A workbook is the state of reading an Excel workbook.
type workbook struct {
	*archive
	texts  []string // shared strings of cells
	styles []style
	early  bool // days are counted from 1904 instead of 1900
}

// A style says what the numbers in cells are.
type style int

const (
	plainNumber style = iota
	percentage        // 1 is 100 %
	dateOrTime        // days since the epoch
	duration          // days
)

// workbook reads the sheets as lines with tabs between cells.
func (a *archive) workbook() error {
	w := &workbook{archive: a}
	// id names the relation to the file of the sheet.
	type sheet struct{ name, id string }
	var sheets []sheet
	err := a.xml("xl/workbook.xml", func(e *xml.StartElement, _, _ string) {
		switch {
		case e == nil:
		case e.Name.Local == "sheet" && len(sheets) < maxSheets:
			sheets = append(sheets, sheet{attribute(e, "name"), attribute(e, "id")})
		case e.Name.Local == "workbookPr":
			w.early = attribute(e, "date1904") == "1" || attribute(e, "date1904") == "true"
		}
	})
	if err != nil {
		return err
	}
	if err := errors.Join(w.readShared(), w.readStyles()); err != nil {
		return err
	}
	targets := make(map[string]string)
	for _, r := range a.relations("xl/workbook.xml") {
		targets[r.id] = r.target
	}
	for i, s := range sheets {
		name := targets[s.id]
		if !a.has(name) {
			name = fmt.Sprintf("xl/worksheets/sheet%d.xml", i+1)
		}
		if !a.has(name) {
			continue // it is a chart
		}
		a.out.paragraph()
		a.out.write("# " + s.name)
		a.out.line()
		if err := a.xml(name, (&sheetText{workbook: w}).handle); err != nil {
			return err
		}
	}
	return nil
}

// readShared reads the strings that cells share.
func (w *workbook) readShared() error {
	const name = "xl/sharedStrings.xml"
	if !w.has(name) {
		return nil
	}
	var text strings.Builder
	inText, phonetic, size := false, false, 0
	return w.xml(name, func(start *xml.StartElement, end, s string) {
		switch {
		case start != nil:
			inText = start.Name.Local == "t"
			// A phonetic run repeats the text as it is pronounced.
			phonetic = phonetic || start.Name.Local == "rPh"
		case end == "rPh":
			phonetic = false
		case end == "t":
			inText = false
		case end == "si":
			if len(w.texts) == w.shared {
				w.unpacked = 0 // reading on fails
				return
			}
			w.texts = append(w.texts, text.String())
			text.Reset()
		case end == "" && inText && !phonetic:
			if size += len(s); size > maxSharedBytes {
				w.unpacked = 0
				return
			}
			text.WriteString(s[:min(len(s), maxCell-min(maxCell, text.Len()))])
		}
	})
}

// readStyles reads how the styles format numbers.
func (w *workbook) readStyles() error {
	const name = "xl/styles.xml"
	if !w.has(name) {
		return nil
	}
	formats := make(map[string]style)
	cells := false
	return w.xml(name, func(e *xml.StartElement, end, _ string) {
		switch {
		case end == "cellXfs":
			cells = false
		case e == nil || len(formats) > maxStyles || len(w.styles) > maxStyles:
		case e.Name.Local == "cellXfs":
			cells = true
		case e.Name.Local == "numFmt":
			formats[attribute(e, "numFmtId")] = styleOf(attribute(e, "formatCode"))
		case e.Name.Local == "xf" && cells:
			id := attribute(e, "numFmtId")
			kind, described := formats[id]
			if n, err := strconv.Atoi(id); err == nil && !described {
				kind = builtIn(n)
			}
			w.styles = append(w.styles, kind)
		}
	})
}

// builtIn returns the style of a format that the file does not describe. Those from 27 on and from
// 50 on are for Chinese, Japanese and Korean.
func builtIn(n int) style {
	switch {
	case n == 9, n == 10:
		return percentage
	case n == 46:
		return duration
	case n >= 14 && n <= 22, n >= 27 && n <= 36, n >= 45 && n <= 47, n >= 50 && n <= 58:
		return dateOrTime
	}
	return plainNumber
}

// notFormat matches the parts of a format that are literal text, a color or a condition.
var notFormat = plaintext.Pattern(`"[^"]*"?|[\\_*].|\[[^\]]*[^\]hms][^\]]*\]`)

// styleOf returns the style of a number format. The letter m alone does not make it a date: it
// means months as well as minutes, and usually comes with one of the others. Brackets are around
// the greatest unit of a duration.
func styleOf(code string) style {
	code = notFormat().ReplaceAllString(strings.ToLower(code), "")
	switch {
	case strings.Contains(code, "%"):
		return percentage
	case strings.Contains(code, "["):
		return duration
	case code != "general" && strings.ContainsAny(code, "ydhs"):
		return dateOrTime
	}
	return plainNumber
}

// number formats a number as its style says. Excel has no dates after the year 9999, which are less
// than 3 million days.
func (w *workbook) number(text string, as style) string {
	days, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return text
	case as == plainNumber:
		return rounded(text, days)
	case as == percentage:
		return strconv.FormatFloat(100*days, 'g', 15, 64) + "%"
	case days < 0 || days > 3_000_000:
		return text
	case as == duration:
		seconds := int(math.Round(days * 24 * 60 * 60))
		return fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	// Excel counts a day that did not exist, 29 February 1900. With this epoch all later dates are
	// right.
	epoch := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if w.early {
		epoch = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	t := epoch.AddDate(0, 0, int(days)).
		Add(time.Duration((days - float64(int(days))) * float64(24*time.Hour))).Round(time.Second)
	switch {
	case days < 1:
		return t.Format("15:04:05")
	case t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0:
		return t.Format("2006-01-02")
	}
	return t.Format("2006-01-02 15:04:05")
}

// rounded returns n, which is stored as text, with the 15 digits that Excel shows at most. Excel
// stores 17, such as 19.989999999999998 for 19.99.
func rounded(text string, n float64) string {
	short := strconv.FormatFloat(n, 'g', 15, 64)
	if len(short) < len(text) && strings.Contains(text, ".") {
		return short
	}
	return text
}

// A sheetText writes the rows of one sheet.
type sheetText struct {
	*workbook
	column  int    // column of the last written cell, from 1
	at      int    // column of the current cell
	kind    string // type of the current cell; s is a shared string
	style   int
	value   strings.Builder
	formula strings.Builder
	part    *strings.Builder // the one to which text belongs, or nil
}

func (s *sheetText) handle(start *xml.StartElement, end, text string) {
	switch {
	case start != nil:
		switch start.Name.Local {
		case "row":
			s.column, s.at = 0, 0
		case "c":
			s.begin(start)
		case "v", "t":
			s.part = &s.value
		case "f":
			s.part = &s.formula
		}
	case end == "v" || end == "t" || end == "f":
		s.part = nil
	case end == "c":
		s.cell()
	case end == "row":
		s.out.line()
	case s.part != nil:
		s.part.WriteString(text[:min(len(text), maxCell-min(maxCell, s.part.Len()))])
	}
}

// begin begins a cell. Without a reference, it follows the cell before it. Without a style, style
// is -1.
func (s *sheetText) begin(e *xml.StartElement) {
	s.at++
	if column := columnOf(attribute(e, "r")); column > 0 {
		s.at = column
	}
	s.kind = attribute(e, "t")
	style, err := strconv.Atoi(attribute(e, "s"))
	if err != nil {
		style = -1
	}
	s.style = style
	s.value.Reset()
	s.formula.Reset()
}

// escapedCharacter matches a character that XML can't contain, such as the return in _x000D_.
var escapedCharacter = plaintext.Pattern(`_x[0-9A-Fa-f]{4}_`)

// cell writes the current cell at its end.
func (s *sheetText) cell() {
	value := s.value.String()
	switch s.kind {
	case "s":
		i, err := strconv.Atoi(value)
		if err != nil || i < 0 || i >= len(s.texts) {
			return
		}
		value = s.texts[i]
	case "b":
		value = map[string]string{"0": "FALSE", "1": "TRUE"}[value]
	case "", "n":
		as := plainNumber
		if s.style >= 0 && s.style < len(s.styles) {
			as = s.styles[s.style]
		}
		value = s.number(value, as)
	}
	// Many programs store formulas without values.
	if value == "" && s.formula.Len() > 0 {
		value = "=" + s.formula.String()
	}
	if value == "" {
		return
	}
	value = escapedCharacter().ReplaceAllStringFunc(value, func(escape string) string {
		code, err := strconv.ParseUint(escape[2:6], 16, 16)
		if c := rune(code); err == nil && !unicode.IsControl(c) {
			return string(c)
		}
		return "\n"
	})
	// A tab for each column since the last cell with text.
	gap := max(0, s.at-max(s.column, 1))
	s.column = s.at
	value = strings.Join(strings.FieldsFunc(value, func(c rune) bool {
		return c == '\n' || c == '\r' || c == '\t'
	}), " ")
	s.out.write(strings.Repeat("\t", min(gap, maxGap)) + value)
}

// columnOf returns the column number in a reference such as AB12, or 0 if the reference is not
// valid.
func columnOf(ref string) int {
	n := 0
	// Excel has no columns with more than three letters.
	for i := 0; i < len(ref) && i < 3 && ref[i] >= 'A' && ref[i] <= 'Z'; i++ {
		n = 26*n + int(ref[i]-'A') + 1
	}
	return n
}

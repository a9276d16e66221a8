package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"gateway/store/plaintext"

	"github.com/ledongthuc/pdf"
)

// Limits of PDF files.
const (
	maxPages   = 500
	maxNodes   = 4 * maxPages // of the page tree
	maxTree    = 32           // depth of the page tree
	maxContent = 4 << 20      // unpacked bytes of a page's content
	maxForms   = 5            // nesting depth of forms
	maxKerned  = 1 << 16      // strings in one array
	maxSaved   = 100          // nesting depth of coordinates
)

var (
	errEncrypted = errors.New("the PDF is encrypted")
	errScanned   = errors.New("the PDF has no text in it; it may be scanned")
	errBadPDF    = errors.New("the PDF is damaged")
)

// pdf reads the pages of a PDF file. The parser panics on a malformed file; pdf then stops reading.
// The parser also trusts the sizes in the file. Only the process limits of package extract keep it
// from using all memory.
func (f *file) pdf() (err error) {
	// The positions in the file count from here. Some servers send a line before.
	begin := bytes.Index(f.raw, []byte("%PDF-"))
	if begin < 0 {
		return errBadPDF
	}
	raw := bytes.Clone(f.raw[begin:])
	// The parser accepts only versions that it knows, and requires the end mark.
	if end := bytes.LastIndex(raw, []byte("%%EOF")); end > 0 {
		raw = raw[:end+len("%%EOF")]
	}
	// The parser looks for the end mark in the last 100 bytes.
	if len(raw) < 100 {
		return errBadPDF
	}
	copy(raw, "%PDF-1.7\n")
	defer recovered(&err)
	r, err := pdf.NewReader(&deadline{bytes.NewReader(raw), f}, int64(len(raw)))
	if err != nil && strings.Contains(err.Error(), "encrypt") {
		return errEncrypted
	}
	if err != nil {
		return errBadPDF
	}
	// The parser has decrypted a file that needs no password, but wrongly if the key is shorter.
	if e := r.Trailer().Key("Encrypt"); !e.IsNull() && e.Key("Length").Int64() != 128 {
		return errEncrypted
	}
	// A damaged page costs only its own text. It is an error only if no page has text.
	pages, damaged := pdfPages(r)
	f.out.atLeast = f.out.atLeast || len(pages) > maxPages
	pages = pages[:min(len(pages), maxPages)]
	read, broken := 0, 0
	for i, page := range pages {
		heading := ""
		if len(pages) > 1 {
			heading = fmt.Sprintf("[page %d]\n", i+1)
		}
		// The heading is written with the first text, so any growth is text of the page.
		before := f.out.b.Len() + int(f.out.missing)
		err := f.pdfPage(page, heading)
		switch damaged := errors.Is(err, errBadPDF); {
		case err != nil && !damaged:
			return err
		case f.out.b.Len()+int(f.out.missing) > before:
			read++
		case damaged:
			broken++
		}
	}
	switch {
	case read > 0:
		return nil
	case broken > 0 || damaged:
		return errBadPDF
	}
	return errScanned
}

// A parserPanic is a panic of this package that unwinds the parser.
type parserPanic struct{ error }

// recovered sets err after a panic of the parser or a parserPanic. It must be deferred. The
// parser's own panics mean that the file is damaged, whatever they say.
func recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case parserPanic:
		*err = p.error
	default:
		*err = errBadPDF
	}
}

// A deadline is a file that can be read until a certain time. All loops of the parser that a file
// could make endless read from the file.
type deadline struct {
	r io.ReaderAt
	f *file
}

func (d *deadline) ReadAt(p []byte, off int64) (int, error) {
	if err := d.f.check(); err != nil {
		panic(parserPanic{err})
	}
	return d.r.ReadAt(p, off)
}

// pdfPages returns the pages of a file in order, one more than maxPages at most. It also reports
// whether the page tree is too large or too deep, and parts of it are left out. It walks the tree
// itself, because the parser follows a tree that contains itself without end.
func pdfPages(r *pdf.Reader) (pages []pdf.Value, damaged bool) {
	nodes := 0
	var walk func(node pdf.Value, depth int)
	walk = func(node pdf.Value, depth int) {
		if nodes++; nodes > maxNodes || depth > maxTree {
			damaged = true
			return
		}
		switch node.Key("Type").Name() {
		case "Page":
			pages = append(pages, node)
		case "Pages":
			kids := node.Key("Kids")
			for i := 0; i < kids.Len() && nodes <= maxNodes && len(pages) <= maxPages; i++ {
				walk(kids.Index(i), depth+1)
			}
		}
	}
	walk(r.Trailer().Key("Root").Key("Pages"), 0)
	return pages, damaged
}

// pdfPage reads one page. If it fails, the next page may still be readable.
func (f *file) pdfPage(page pdf.Value, heading string) (err error) {
	defer recovered(&err)
	p := &pdfText{file: f, heading: heading, fonts: make(map[string]*pdfFont),
		graphics: graphics{font: new(pdfFont), stretch: 1, space: identity}, line: identity}
	p.out.paragraph()
	p.content(page.Key("Contents"), pdf.Page{V: page}.Resources(), 0)
	p.annotations(page.Key("Annots"))
	return nil
}

// A pdfText interprets the operators of a page that place text.
type pdfText struct {
	*file
	graphics
	saved     []graphics          // to restore
	heading   string              // written before the first text
	fonts     map[string]*pdfFont // by name
	resources pdf.Value           // fonts and forms of the page or form
	depth     int                 // nesting depth of forms
	line      matrix              // of the beginning of the line, in space
	along     float64             // length of the text since then, in line
	moved     bool                // the position has changed
	blank     bool                // a blank is between the last text and the next
	x, y      float64             // end of the last text, on the page
	height    float64             // of the last text, on the page
	known     bool                // that end is known
}

// graphics is what a page can save and restore.
type graphics struct {
	font    *pdfFont
	size    float64 // of the font
	leading float64 // distance of lines
	letters float64 // added to the width of each character
	words   float64 // added to the width of each blank
	stretch float64 // factor of widths
	space   matrix  // maps coordinates to those of the page
}

// A matrix maps coordinates to others: six numbers as operators of PDF have them.
type matrix [6]float64

var identity = matrix{1, 0, 0, 1, 0, 0}

// times returns the matrix that maps by m and then by n.
func (m matrix) times(n matrix) matrix {
	return matrix{m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5]}
}

// content interprets a content stream, or several streams that belong together. It leaves out
// content that unpacks to more than maxContent.
func (t *pdfText) content(streams, resources pdf.Value, depth int) {
	before, outer := t.resources, t.depth
	t.resources, t.depth = resources, depth
	if unpackedSize(streams, maxContent) <= maxContent {
		pdf.Interpret(withoutImages(streams), t.do)
	}
	t.resources, t.depth = before, outer
}

// unpackedSize returns the unpacked size of a stream or of all streams in an array. If the size
// exceeds most, it returns a number greater than most.
func unpackedSize(v pdf.Value, most int64) int64 {
	size := int64(0)
	for _, s := range streamsOf(v) {
		// Each filter of a chain may multiply the size.
		if s.Key("Filter").Len() > maxForms {
			return most + 1
		}
		n, err := io.Copy(io.Discard, io.LimitReader(s.Reader(), most+1-size))
		if size += n; size > most {
			return size
		}
		if err != nil && n == 0 {
			continue // the parser reports the error
		}
	}
	return size
}

// streamsOf returns a stream, or the first streams in an array.
func streamsOf(v pdf.Value) []pdf.Value {
	if v.Kind() != pdf.Array {
		return []pdf.Value{v}
	}
	var list []pdf.Value
	for i := 0; i < v.Len() && i <= maxKerned; i++ {
		list = append(list, v.Index(i))
	}
	return list
}

// inlineImage matches an image within content: BI, its properties, ID, its data, EI.
var inlineImage = plaintext.Pattern(
	`(?s)(^|[\s>)\]])BI\s*/[^()]*?[\s>\]]ID\s.*?\sEI(\s|$)`)

// withoutImages returns the content in streams without its images. The parser would read their data
// as if it were operators.
func withoutImages(streams pdf.Value) pdf.Value {
	var content bytes.Buffer
	for _, s := range streamsOf(streams) {
		_, _ = content.ReadFrom(s.Reader()) // the parser reports the error
	}
	if !bytes.Contains(content.Bytes(), []byte("BI")) || !inlineImage().Match(content.Bytes()) {
		return streams
	}
	return trailerOf("", inlineImage().ReplaceAll(content.Bytes(), []byte(" "))).Key("Root")
}

// trailerOf returns the trailer of a PDF file with the given entries and with one object, a stream.
// The parser has no other way to make values.
func trailerOf(entries string, stream []byte) pdf.Value {
	const version = "%PDF-1.7\n"
	b := bytes.NewBufferString(version)
	fmt.Fprintf(b, "1 0 obj\n<</Length %d>>\nstream\n%s\nendstream\nendobj\n",
		len(stream), stream)
	at := b.Len()
	fmt.Fprintf(b, "xref\n0 2\n0000000000 65535 f \n%010d 00000 n \n"+
		"trailer\n<</Size 2 /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n", len(version), entries, at)
	r, err := pdf.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		return pdf.Value{}
	}
	return r.Trailer()
}

// do interprets one operator. q and Q save and restore the graphics, cm changes the coordinates. BT
// begins a text, Tf sets the font and TL the distance of lines, Td, TD and Tm set the position, T*
// goes to the next line, Tj and TJ show strings, as ' and " do on the next line, and Do shows a
// form. Other operators do not matter for the text.
func (t *pdfText) do(stack *pdf.Stack, op string) {
	// The last argument is on top of the stack.
	args := make([]pdf.Value, min(stack.Len(), maxKerned))
	for i := len(args) - 1; i >= 0; i-- {
		args[i] = stack.Pop()
	}
	number := func(i int) float64 {
		if i >= len(args) {
			return 0
		}
		return args[i].Float64()
	}
	numbers := func() matrix {
		return matrix{number(0), number(1), number(2), number(3), number(4), number(5)}
	}
	switch op {
	case "q":
		if len(t.saved) < maxSaved {
			t.saved = append(t.saved, t.graphics)
		}
	case "Q":
		if last := len(t.saved) - 1; last >= 0 {
			t.graphics, t.saved = t.saved[last], t.saved[:last]
		}
	case "cm":
		t.space = numbers().times(t.space)
	case "BT":
		t.place(identity)
	case "Tf":
		if len(args) == 2 {
			t.font, t.size = t.fontNamed(args[0].Name()), math.Abs(number(1))
		}
	case "Tc":
		t.letters = number(0)
	case "Tw":
		t.words = number(0)
	case "Tz":
		t.stretch = number(0) / 100
	case "TL":
		t.leading = number(0)
	case "Td", "TD":
		if op == "TD" {
			t.leading = -number(1)
		}
		t.move(number(0), number(1))
	case "Tm":
		t.place(numbers())
	case "T*":
		t.nextLine()
	case "'", "\"":
		t.nextLine()
		fallthrough
	case "Tj":
		if len(args) > 0 {
			t.show(args[len(args)-1].RawString())
		}
	case "TJ":
		if len(args) > 0 {
			t.showKerned(args[0])
		}
	case "Do":
		if len(args) > 0 && t.depth < maxForms {
			t.form(t.resources.Key("XObject").Key(args[0].Name()))
		}
	}
}

// place begins a line at another place.
func (t *pdfText) place(line matrix) { t.line, t.along, t.moved = line, 0, true }

func (t *pdfText) move(x, y float64) { t.place(matrix{1, 0, 0, 1, x, y}.times(t.line)) }

func (t *pdfText) nextLine() {
	t.move(0, -t.leading)
	t.out.line()
}

// at returns where the next text begins, on the page.
func (t *pdfText) at() matrix { return matrix{1, 0, 0, 1, t.along, 0}.times(t.line).times(t.space) }

// begin begins a line or a paragraph if the next text is not on the line of the last one, and
// otherwise notes whether it is apart from that. Half a font size is the distance of an exponent or
// the mark of a note. A step of almost two font sizes begins a paragraph. A much larger one leads
// to another part of the page, such as the next column.
func (t *pdfText) begin() {
	at := t.at()
	height := t.size * math.Hypot(at[2], at[3])
	size := max(height, t.height)
	// These are the parts of the step along and across the line, whatever the line's direction.
	dx, dy, length := at[4]-t.x, at[5]-t.y, math.Hypot(at[0], at[1])
	along, across := (at[0]*dx+at[1]*dy)/length, math.Abs(at[0]*dy-at[1]*dx)/length
	switch {
	case across > max(0.1, size/2):
		t.out.line()
		if across > 1.8*size && across < 20*size {
			t.out.paragraph()
		}
	case !t.known, along > 0.15*size, along < -size/2:
		t.blank = true
	}
	t.height, t.moved = height, false
}

// form interprets a form, which is content with a name.
func (t *pdfText) form(object pdf.Value) {
	if object.Key("Subtype").Name() != "Form" {
		return
	}
	resources := object.Key("Resources")
	if resources.IsNull() {
		resources = t.resources
	}
	// A form has names of fonts of its own, and its graphics end with it.
	fonts, present, saved := t.fonts, t.graphics, t.saved
	t.fonts, t.saved = make(map[string]*pdfFont), nil
	if m := object.Key("Matrix"); m.Len() == len(t.space) {
		var own matrix
		for i := range own {
			own[i] = m.Index(i).Float64()
		}
		t.space = own.times(t.space)
	}
	t.content(object, resources, t.depth+1)
	t.fonts, t.graphics, t.saved = fonts, present, saved
}

// fontNamed returns a font of the page or form.
func (t *pdfText) fontNamed(name string) *pdfFont {
	f, ok := t.fonts[name]
	if !ok {
		f = readFont(t.resources.Key("Font").Key(name))
		t.fonts[name] = f
	}
	return f
}

// showKerned shows the strings of an array, with a blank for each sufficiently large gap.
func (t *pdfText) showKerned(v pdf.Value) {
	const blank = -180 // thousandths of the font's size
	for i := 0; i < v.Len() && i < maxKerned; i++ {
		switch x := v.Index(i); x.Kind() {
		case pdf.String:
			t.show(x.RawString())
		case pdf.Integer, pdf.Real:
			t.along -= x.Float64() / 1000 * t.size * t.stretch
			t.blank = t.blank || x.Float64() < blank
		}
	}
}

// show writes a string in the codes of the font.
func (t *pdfText) show(raw string) {
	const step = 256 // time for decoding grows with the length and the size of the map
	for raw != "" {
		if err := t.check(); err != nil {
			panic(parserPanic{err})
		}
		n := min(step, len(raw))
		t.put(raw[:n])
		raw = raw[n:]
	}
}

// put writes the text of a string, and before it the heading of the page or a blank. White space
// alone counts as a blank, so no line consists of it.
func (t *pdfText) put(raw string) {
	text := cleaned(t.font.decode(raw))
	visible := strings.TrimSpace(text) != ""
	if visible {
		if t.moved {
			t.begin()
		}
		before := t.heading
		if before == "" && t.blank && t.out.breaks == 0 {
			before = " "
		}
		t.heading, t.blank = "", false
		t.out.write(before + text)
	}
	t.blank = t.blank || !visible && text != ""
	width, characters, known := t.font.width(raw)
	t.along += (width*t.size + float64(characters)*t.letters +
		float64(strings.Count(raw, " "))*t.words) * t.stretch
	if visible {
		end := t.at()
		t.x, t.y, t.known = end[4], end[5], known
	}
}

// cleaned returns text without control characters and characters that the font does not map.
func cleaned(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == 0xfffd {
			return -1
		}
		return c
	}, s)
}

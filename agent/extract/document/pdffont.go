package document

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"
)

// A pdfFont decodes the codes of a font, and knows the widths of its characters. The zero value is
// an unknown font.
type pdfFont struct {
	encoder pdf.TextEncoding // nil: none is known
	unicode pdf.TextEncoding // takes precedence; nil: none
	base    pdf.TextEncoding // for codes that encoder does not change; nil: none
	decoded [256]string      // text of codes of one byte, if it was needed

	composite bool            // codes may have several bytes
	wide      bool            // codes have two bytes
	widths    map[int]float64 // by code, as a part of the font's size; nil: none is known
	other     float64         // width of the other characters
}

// maxWidths is the maximum number of widths of a font.
const maxWidths = 1 << 16

// readFont reads a font. v may be null.
func readFont(v pdf.Value) *pdfFont {
	f := new(pdfFont)
	if v.IsNull() {
		return f
	}
	f.encoder = (&pdf.Font{V: v}).Encoder()
	f.readEncodings(v)
	if v.Key("Subtype").Name() == "Type0" {
		f.composite = true
		f.readWide(v)
		return f
	}
	unit := 0.001
	if m := v.Key("FontMatrix"); m.Len() > 0 { // the font has units of its own
		unit = m.Index(0).Float64()
	}
	first, list := int(v.Key("FirstChar").Int64()), v.Key("Widths")
	for i := 0; i < list.Len() && i < 256; i++ {
		f.set(first+i, list.Index(i).Float64()*unit)
	}
	f.other = v.Key("FontDescriptor").Key("MissingWidth").Float64() * unit
	return f
}

// readEncodings reads what the parser ignores: the map to Unicode of a font that also has an
// encoding, and the encoding on which another one is based.
func (f *pdfFont) readEncodings(v pdf.Value) {
	encoding, unicode := v.Key("Encoding"), v.Key("ToUnicode")
	if unicode.Kind() == pdf.Stream && !encoding.IsNull() && encoding.Name() != "Identity-H" &&
		unpackedSize(unicode, maxContent) <= maxContent {
		if cmap, err := io.ReadAll(unicode.Reader()); err == nil {
			f.unicode = encoderOf("/ToUnicode 1 0 R", cmap)
		}
	}
	switch base := encoding.Key("BaseEncoding").Name(); base {
	case "WinAnsiEncoding", "MacRomanEncoding":
		f.base = encoderOf("/Encoding /"+base, nil)
	}
}

// encoderOf returns the encoding of a font with the given entries, or nil if that is damaged. See
// trailerOf.
func encoderOf(entries string, stream []byte) (e pdf.TextEncoding) {
	var err error
	defer recovered(&err) // then the font has its other encodings
	return (&pdf.Font{V: trailerOf(entries, stream)}).Encoder()
}

// readWide reads the widths of a font with many characters, if its codes are their numbers.
func (f *pdfFont) readWide(v pdf.Value) {
	if v.Key("Encoding").Name() != "Identity-H" {
		return
	}
	v = v.Key("DescendantFonts").Index(0)
	f.wide, f.widths, f.other = true, make(map[int]float64), 1
	if w := v.Key("DW"); !w.IsNull() {
		f.other = w.Float64() / 1000
	}
	// The list has a first number and an array of widths, or a first and a last number and a width.
	list := v.Key("W")
	for i, left := 0, maxWidths; i+1 < list.Len() && left > 0; {
		first, second := int(list.Index(i).Int64()), list.Index(i+1)
		if second.Kind() == pdf.Array {
			n := min(second.Len(), left)
			for j := range n {
				f.set(first+j, second.Index(j).Float64()/1000)
			}
			i, left = i+2, left-n-1
			continue
		}
		n := min(max(0, int(second.Int64())-first+1), left)
		for j := range n {
			f.set(first+j, list.Index(i+2).Float64()/1000)
		}
		i, left = i+3, left-n-1
	}
}

func (f *pdfFont) set(code int, width float64) {
	if f.widths == nil {
		f.widths = make(map[int]float64)
	}
	if code >= 0 && code < maxWidths {
		f.widths[code] = width
	}
}

// decode returns the text of a string of codes.
func (f *pdfFont) decode(raw string) string {
	switch {
	case f.encoder == nil:
		return raw
	case f.unicode == nil && f.base == nil:
		return f.encoder.Decode(raw)
	case f.composite && f.unicode != nil:
		return f.unicode.Decode(raw)
	}
	var b strings.Builder
	for i := range len(raw) {
		text := &f.decoded[raw[i]]
		if *text == "" {
			*text = f.decodeByte(raw[i : i+1])
		}
		b.WriteString(*text)
	}
	return b.String()
}

// decodeByte returns the text of a code of one byte. The map to Unicode need not have all codes.
func (f *pdfFont) decodeByte(code string) string {
	if f.unicode != nil {
		text := f.unicode.Decode(code)
		if text != "" && !strings.ContainsRune(text, utf8.RuneError) {
			return text
		}
	}
	text := f.encoder.Decode(code)
	if f.base != nil && text == string(rune(code[0])) {
		return f.base.Decode(code)
	}
	return text
}

// width returns the width of a string of codes, as a part of the font's size, and its number of
// characters. It reports whether it knows them.
func (f *pdfFont) width(raw string) (sum float64, characters int, known bool) {
	size := 1
	if f.wide {
		size = 2
	}
	for i := 0; i+size <= len(raw); i += size {
		code := int(raw[i])
		if f.wide {
			code = code<<8 | int(raw[i+1])
		}
		w, ok := f.widths[code]
		if !ok {
			w = f.other
		}
		sum += w
		characters++
	}
	return sum, characters, f.widths != nil
}

package document

import "github.com/ledongthuc/pdf"

// A pdfFont decodes the codes of a font, and knows the widths of its characters. The zero value is
// an unknown font.
type pdfFont struct {
	encoder pdf.TextEncoding // nil: none is known
	wide    bool             // codes have two bytes
	widths  map[int]float64  // by code, as a part of the font's size; nil: none is known
	other   float64          // width of the other characters
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
	if v.Key("Subtype").Name() == "Type0" {
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
	if f.encoder == nil {
		return raw
	}
	return f.encoder.Decode(raw)
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

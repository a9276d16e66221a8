// Package documenttest creates PDF files for tests.
package documenttest

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
)

// A pdfFile builds a PDF file.
type pdfFile struct {
	b       bytes.Buffer
	offsets []int
}

func (p *pdfFile) object(body string) {
	if p.b.Len() == 0 {
		p.b.WriteString("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
	}
	p.offsets = append(p.offsets, p.b.Len())
	fmt.Fprintf(&p.b, "%d 0 obj\n%s\nendobj\n", len(p.offsets), body)
}

func (p *pdfFile) stream(dict, content string) {
	p.object(fmt.Sprintf("<<%s /Length %d>>\nstream\n%s\nendstream", dict, len(content), content))
}

func (p *pdfFile) bytes(trailer string) []byte {
	at := p.b.Len()
	fmt.Fprintf(&p.b, "xref\n0 %d\n0000000000 65535 f \n", len(p.offsets)+1)
	for _, o := range p.offsets {
		fmt.Fprintf(&p.b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&p.b, "trailer\n<</Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n",
		len(p.offsets)+1, trailer, at)
	return p.b.Bytes()
}

// Deflated returns s compressed for the filter FlateDecode.
func Deflated(s string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	// Writing to memory can't fail.
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

// ToUnicode is the character map of the font F2.
const ToUnicode = `/CIDInit /ProcSet findresource begin 12 dict begin begincmap
1 begincodespacerange <0000> <FFFF> endcodespacerange
2 beginbfchar <0001> <65E5> <0002> <672C> endbfchar
endcmap end end`

// PDF returns a file with one page for each part of contents. Lines of --- separate the parts. If
// the first line of a part begins with /Annots, it has the annotations of the page. F1 is a Latin
// font, F2 a font with the map [ToUnicode], X1 a form. F3 and F4 are like F1 and F2, but say that
// their characters are half as wide as high. F5 and F6 also have another encoding.
func PDF(contents string) []byte {
	pages := strings.Split(contents, "---\n")
	var p pdfFile
	p.object("<</Type /Catalog /Pages 2 0 R>>")
	kids := ""
	for i := range pages {
		kids += fmt.Sprintf("%d 0 R ", 7+2*i)
	}
	p.object(fmt.Sprintf("<</Type /Pages /Count %d /Kids [%s] /Resources <<"+
		"/Font <</F1 3 0 R /F2 4 0 R "+
		"/F3 <</Subtype /TrueType /FirstChar 32 /Widths [%s]>> "+
		"/F4 <</Subtype /Type0 /Encoding /Identity-H /ToUnicode 5 0 R "+
		"/DescendantFonts [<</W [0 1 500 2 [500]]>>]>> "+
		"/F5 <</Subtype /TrueType /ToUnicode %d 0 R "+
		"/Encoding <</BaseEncoding /WinAnsiEncoding /Differences [1 /g7 /fi]>>>> "+
		"/F6 <</Subtype /Type0 /Encoding /GBK-EUC-H /ToUnicode 5 0 R>>>> "+
		"/XObject <</X1 6 0 R>>>>>>",
		len(pages), kids, strings.Repeat("500 ", 95), 7+2*len(pages)))
	p.object("<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>")
	p.object("<</Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 5 0 R>>")
	p.stream("/Filter /FlateDecode", Deflated(ToUnicode))
	p.stream("/Type /XObject /Subtype /Form", "BT /F1 10 Tf (in a form) Tj ET")
	for i, content := range pages {
		annots := ""
		if strings.HasPrefix(content, "/Annots") {
			annots, content, _ = strings.Cut(content, "\n")
		}
		p.object(fmt.Sprintf("<</Type /Page /Parent 2 0 R /Contents %d 0 R %s>>", 8+2*i, annots))
		p.stream("/Filter /FlateDecode", Deflated(content))
	}
	p.stream("", "begincmap 1 begincodespacerange <00> <FF> endcodespacerange "+
		"1 beginbfchar <01> <00540068> endbfchar endcmap")
	return p.bytes("")
}

// ObjectStreams returns a PDF 1.5 file with its objects in a stream.
func ObjectStreams(count, first string) []byte {
	var p pdfFile
	p.object("<</Type /Catalog /Pages 3 0 R>>") // object 1 is not in the stream
	held := "3 0 4 52 "                         // numbers and offsets of the objects in the stream
	objects := fmt.Sprintf("%-52s%s", "<</Type /Pages /Count 1 /Kids [4 0 R]>>",
		"<</Type /Page /Parent 3 0 R /Contents 5 0 R>>")
	p.stream(fmt.Sprintf("/Type /ObjStm /N %s /First %s /Filter /FlateDecode", count, first),
		Deflated(held+objects)) // object 2
	offsets := p.offsets
	at5 := p.b.Len()
	content := "BT (packed) Tj ET"
	fmt.Fprintf(&p.b, "5 0 obj\n<</Length %d>>\nstream\n%s\nendstream\nendobj\n",
		len(content), content)
	at := p.b.Len()
	entry := func(kind, a, b int) string {
		return string([]byte{byte(kind), byte(a >> 8), byte(a), byte(b)})
	}
	table := entry(0, 0, 0) + entry(1, offsets[0], 0) + entry(1, offsets[1], 0) +
		entry(2, 2, 0) + entry(2, 2, 1) + entry(1, at5, 0) + entry(1, at, 0)
	fmt.Fprintf(&p.b, "6 0 obj\n<</Type /XRef /Size 7 /W [1 2 1] /Root 1 0 R /Length %d>>\n"+
		"stream\n%s\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n", len(table), table, at)
	return p.b.Bytes()
}

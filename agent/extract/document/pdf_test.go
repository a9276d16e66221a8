package document

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A pdfFile puts a PDF file together.
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

func deflated(s string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	// Writing to memory does not fail.
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

const toUnicode = `/CIDInit /ProcSet findresource begin 12 dict begin begincmap
1 begincodespacerange <0000> <FFFF> endcodespacerange
2 beginbfchar <0001> <65E5> <0002> <672C> endbfchar
endcmap end end`

// pdfOf returns a file with a page for each part of the contents, between lines of ---. F1 is
// a Latin font, F2 one with a map to Unicode, X1 a form.
func pdfOf(contents string) []byte {
	pages := strings.Split(contents, "---\n")
	var p pdfFile
	p.object("<</Type /Catalog /Pages 2 0 R>>")
	kids := ""
	for i := range pages {
		kids += fmt.Sprintf("%d 0 R ", 7+2*i)
	}
	p.object(fmt.Sprintf("<</Type /Pages /Count %d /Kids [%s] /Resources <<"+
		"/Font <</F1 3 0 R /F2 4 0 R>> /XObject <</X1 6 0 R>>>>>>", len(pages), kids))
	p.object("<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>")
	p.object("<</Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 5 0 R>>")
	p.stream("/Filter /FlateDecode", deflated(toUnicode))
	p.stream("/Type /XObject /Subtype /Form", "BT /F1 10 Tf (in a form) Tj ET")
	for i, content := range pages {
		p.object(fmt.Sprintf("<</Type /Page /Parent 2 0 R /Contents %d 0 R>>", 8+2*i))
		p.stream("/Filter /FlateDecode", deflated(content))
	}
	return p.bytes("")
}

// objectStreams is a file whose objects are in a stream, as PDF 1.5 has it.
func objectStreams(count, first string) []byte {
	var p pdfFile
	p.object("<</Type /Catalog /Pages 3 0 R>>") // 1, in plain sight
	held := "3 0 4 52 "                         // numbers and places of the objects
	objects := fmt.Sprintf("%-52s%s", "<</Type /Pages /Count 1 /Kids [4 0 R]>>",
		"<</Type /Page /Parent 3 0 R /Contents 5 0 R>>")
	p.stream(fmt.Sprintf("/Type /ObjStm /N %s /First %s /Filter /FlateDecode", count, first),
		deflated(held+objects)) // 2
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

func TestPDFObjectStreams(t *testing.T) {
	got, err := read(objectStreams("2", "9"), "", 1000)
	if got != "packed" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPDFErrors(t *testing.T) {
	good := string(pdfOf("BT (x) Tj ET"))
	for name, tt := range map[string]struct {
		file string
		want error // nil if it can be read
	}{
		"junk behind":      {good + "\n\x00\x00garbage", nil},
		"version":          {strings.Replace(good, "%PDF-1.4", "%PDF-2.0", 1), nil},
		"encrypted":        {strings.Replace(good, "/Root", "/Encrypt 9 0 R /Root", 1), errEncrypted},
		"hidden encrypted": {strings.Replace(good, "/Root", "/Encr#79pt 9 0 R /Root", 1), errEncrypted},
		"scanned":          {string(pdfOf("q 1 0 0 1 0 0 cm Q")), errScanned},
		"no pages":         {strings.Replace(good, "/Kids [7 0 R ]", "/Kids [      ]", 1), errScanned},
		"truncated":        {good[:len(good)/2], errBadPDF},
		"bad operands":     {string(pdfOf("BT Tf Td Tm TJ Tj ' \" Do TL T* ET")), errScanned},
		"bad string":       {string(pdfOf("BT (abc")), errScanned},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read([]byte(tt.file), "", 1000)
			if !errors.Is(err, tt.want) || tt.want == nil && got != "x" {
				t.Errorf("got %q, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// What would take the parser all memory, all stack or for ever.
func TestPDFBombs(t *testing.T) {
	good := string(pdfOf("BT (x) Tj ET"))
	replace := func(old, new string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	packed := string(objectStreams("2", "9"))
	for name, tt := range map[string]struct {
		file string
		want error // nil for any outcome
	}{
		"size":        {strings.Replace(packed, "/Size 7", "/Size 9999999999", 1), errBadPDF},
		"hidden size": {strings.Replace(packed, "/Size 7", "/S#69ze%x\n 9999999999", 1), errBadPDF},
		"width":       {strings.Replace(packed, "/W [1 2 1]", "/W [9999999999 2 1]", 1), errBadPDF},
		"no width": {
			strings.Replace(packed, "/W [1 2 1]", "/Index [0 9999999999] /W [0 0 0]", 1), errBadPDF},
		"count":          {string(objectStreams("999999999999", "9")), errBadPDF},
		"count away":     {string(objectStreams("5 0 R", "9")), errBadPDF},
		"count twice":    {string(objectStreams("2 /N 5 0 R", "9")), errBadPDF},
		"type away":      {strings.Replace(packed, "/Type /ObjStm", "/Type 5 0 R", 1), errBadPDF},
		"held by itself": {strings.Replace(packed, "\x02\x00\x02\x00", "\x02\x00\x03\x00", 1), errBadPDF},
		"objects":        {replace("xref\n0 9", "xref\n9999999999 9"), errBadPDF},
		"later objects":  {replace("trailer", "9999999999 1\n0000000000 00000 n \ntrailer"), errBadPDF},
		"columns": {replace("/Filter /FlateDecode",
			"/DecodeParms <</Predictor 12 /Columns 9999999999>> /Filter /FlateDecode"), errBadPDF},
		"columns away": {replace("/Filter /FlateDecode",
			"/DecodeParms 9 0 R /Filter /FlateDecode"), errBadPDF},
		"nested arrays":   {string(pdfOf(strings.Repeat("[", 1_000_000))), nil},
		"nested in sight": {replace("/Kids [7 0 R ]", "/Kids "+strings.Repeat("[", 1_000_000)), nil},
		"operands":        {string(pdfOf(strings.Repeat("1 ", 3_000_000))), nil},
		"text": {
			string(pdfOf("BT " + strings.Repeat("(aaaaaaaaaaaaaaaaaaa) Tj ", 50_000))), nil},
		"pages": {string(pdfOf(strings.Repeat("BT (x) Tj ET\n---\n", 100))), nil},
		"forms in forms": {
			strings.Replace(replace("BT /F1 10 Tf (in a form) Tj ET", "/X1 Do                        "),
				"/Subtype /Form", "/Subtype /Form", 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			used := peak(func() { _, err = narrow([]byte(tt.file), "", 1000) })
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if used > 512<<20 {
				t.Errorf("%d MB were in use", used>>20)
			}
		})
	}
}

// What sends the parser round in circles ends with the time.
func TestPDFForEver(t *testing.T) {
	file := strings.Replace(string(pdfOf("")), "/Kids [7 0 R ]", "/Kids [2 0 R ]", 1)
	b := bounds{500 * time.Millisecond, maxUnpacked, maxShared}
	_, err := b.text(strings.NewReader(file), int64(len(file)), "", 1000)
	if !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
}

// A font's map that announces more characters than memory holds.
func TestPDFHugeMap(t *testing.T) {
	cmap := strings.Replace(toUnicode, "2 beginbfchar", "9999999999 beginbfchar", 1)
	file := bytes.Replace(pdfOf("BT /F2 10 Tf <00010002> Tj ET"), []byte(deflated(toUnicode)),
		[]byte(fmt.Sprintf("%-*s", len(deflated(toUnicode)), deflated(cmap))), 1)
	got, err := read(file, "", 1000)
	if strings.Contains(got, "日") || err == nil && got == "" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzPDF(f *testing.F) {
	f.Add(string(pdfOf("BT /F1 10 Tf (x) Tj /F2 5 Tf <0001> Tj ET")))
	f.Add(string(objectStreams("2", "9")))
	f.Fuzz(func(t *testing.T, file string) {
		if text, err := read([]byte("%PDF-1.4\n"+file), "", 1000); len(text) > 1000 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

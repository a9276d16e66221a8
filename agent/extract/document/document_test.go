package document

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"gateway/agent/extract/document/documenttest"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

// zipOf returns an archive of the files.
func zipOf(t testing.TB, files []txtar.File) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.Name)
		if err == nil {
			_, err = w.Write(f.Data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func early() bool { return false }

func read(file []byte, mime string, limit int) (string, error) {
	return Text(file, mime, limit, early)
}

// narrow reads with smaller bounds. The bound of the time is large, so that the result does not
// depend on the speed of the machine.
func narrow(file []byte, mime string, limit int) (string, error) {
	b := bounds{time.Hour, 4 << 20, 10_000}
	return b.text(file, mime, limit, early)
}

// Without text, only the clock ends reading. With text, the clock and late end it.
func TestEndOfReading(t *testing.T) {
	late := func() bool { return true }
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		until  time.Time
		late   func() bool
		text   string
		want   error
		cutOff bool
	}{
		"in time":         {future, early, "x", nil, false},
		"over":            {past, early, "", errTooLong, false},
		"over with text":  {past, early, "x", errEnough, true},
		"late":            {future, late, "", nil, false},
		"late with text":  {future, late, "x", errEnough, true},
		"both, no text":   {past, late, "\n", errTooLong, false},
		"both, with text": {past, late, "x", errEnough, true},
	} {
		f := &file{out: &sink{limit: 100}, until: tt.until, late: tt.late}
		f.out.write(tt.text)
		if err := f.check(); !errors.Is(err, tt.want) || f.out.atLeast != tt.cutOff {
			t.Errorf("%s: got %v, cut off: %t", name, err, f.out.atLeast)
		}
	}
}

// Each archive in testdata is one document. It contains the files of the document or one file
// named in.*, and at the end the expected text.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var files []txtar.File
			want := ""
			for _, f := range a.Files {
				if f.Name == "text" {
					want = string(f.Data)
					continue
				}
				files = append(files, f)
			}
			file, mime := golden(t, files)
			got, err := read(file, mime, 100_000)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.TrimRight(got, "\n") + "\n"
			if *update {
				a.Files = append(files, txtar.File{Name: "text", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// golden returns the document that consists of the files, and its MIME type.
func golden(t *testing.T, files []txtar.File) ([]byte, string) {
	switch name := files[0].Name; {
	case name == "in.pdf":
		return documenttest.PDF(string(files[0].Data)), "application/pdf"
	case strings.HasPrefix(name, "in."):
		return files[0].Data, Type(files[0].Data, name)
	}
	return zipOf(t, files), "application/octet-stream"
}

func TestPlain(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"empty":        {"", ""},
		"ASCII":        {"hello\nworld\n", "hello\nworld\n"},
		"UTF-8":        {"grüß 日本", "grüß 日本"},
		"UTF-8 mark":   {"\xef\xbb\xbfgrüß", "grüß"},
		"UTF-16":       {"\xff\xfeg\x00r\x00\xfc\x00\xdf\x00=\xd8\x00\xde", "grüß😀"},
		"UTF-16 other": {"\xfe\xff\x00g\x00r\x00\xfc\x00\xdf", "grüß"},
		"Latin-1":      {"gr\xfc\xdf \x96 \x80 5, and more", "grüß – € 5, and more"},
		"CSV":          {"a,b\n1,2\n", "a,b\n1,2\n"},
		"JSON":         {`{"a": [1, 2]}`, `{"a": [1, 2]}`},
		"XML":          {`<?xml version="1.0"?><a>x</a>`, `<?xml version="1.0"?><a>x</a>`},
		"program":      {"func main() {\n\tprintln(1 < 2)\n}\n", "func main() {\n\tprintln(1 < 2)\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := read([]byte(tt.file), "text/plain", 1000); got != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// Markdown and programs may begin with tags, as HTML does. Their lines and their code stay.
func TestTextWithTags(t *testing.T) {
	const source = "<!-- a note -->\n<h1>Title</h1>\n\n- one\n- two\n<script>\ncode()\n</script>\n"
	const page = "<!-- a note -->\n<!DOCTYPE html><html><p>one\ntwo</html>"
	for _, tt := range []struct{ file, mime, want string }{
		{source, "text/markdown", source},
		{source, "text/x-vue", source},
		{source, "application/octet-stream", source},
		{source, "text/html", "# Title\n\n- one - two"},
		{page, "text/plain", "one two"},
		{page, "application/octet-stream", "one two"},
		{"<table><tr><td>a<td>b</table>", "application/vnd.ms-excel", "a | b"},
	} {
		if got, err := read([]byte(tt.file), tt.mime, 1000); got != tt.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", tt.mime, got, err, tt.want)
		}
	}
}

func TestLimit(t *testing.T) {
	long := strings.Repeat("日本語のテキスト。", 1000)
	for name, file := range map[string][]byte{
		"plain": []byte(long),
		"html":  []byte("<html><body><p>" + long + "</p></body></html>"),
		"word": zipOf(t, []txtar.File{{Name: "word/document.xml",
			Data: []byte("<document><p><t>" + long + "</t></p></document>")}}),
	} {
		for _, limit := range []int{0, 1, 10, 50, 100, 1000, len(long) - 1, len(long), 1 << 20} {
			got, err := read(file, "", limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > limit || !utf8.ValidString(got) {
				t.Errorf("%s: %d bytes for a limit of %d", name, len(got), limit)
			}
			if limit >= len(long) {
				if got != long {
					t.Errorf("%s: got %d bytes, want %d", name, len(got), len(long))
				}
				continue
			}
			kept, note, cut := strings.Cut(got, "\n[cut off here: ")
			if !strings.HasPrefix(long, kept) || cut != (limit >= 100) {
				t.Errorf("%s: got %q for a limit of %d", name, got, limit)
			}
			if want := fmt.Sprintf("%d bytes are missing]", len(long)-len(kept)); cut && note != want {
				t.Errorf("%s: %q, want %q", name, note, want)
			}
		}
	}
}

func TestUnsupported(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want error
	}{
		"PNG":    {"\x89PNG\r\n\x1a\n", ErrUnsupported},
		"binary": {"MZ\x90\x00\x03\x00\x00\x00\x04", ErrUnsupported},
		"old Word": {
			"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + strings.Repeat("\x00", 600), ErrUnsupported},
		"encrypted Word": {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + strings.Repeat("\x00", 600) +
			"E\x00n\x00c\x00r\x00y\x00p\x00t\x00e\x00d\x00P\x00a\x00c\x00k\x00a\x00g\x00e\x00", errLocked},
		"encrypted text": {string(zipOf(t, []txtar.File{
			{Name: "META-INF/manifest.xml", Data: []byte(`<m:manifest><m:file-entry m:full-path=` +
				`"content.xml"><m:encryption-data/></m:file-entry></m:manifest>`)},
			{Name: "content.xml", Data: []byte("\x9c<\x00\xfe")}})), errLocked},
		"encrypted book": {string(zipOf(t, []txtar.File{{Name: "META-INF/container.xml"},
			{Name: "a.xhtml", Data: []byte("\x9c<\x00\xfe")}})), errLocked},
		"encrypted package": {string(zipOf(t, []txtar.File{
			{Name: "encrypted-package", Data: []byte("\x9c<\x00\xfe")}})), errLocked},
		"RTF":   {`{\rtf1 hello}`, ErrUnsupported},
		"audio": {"OggS\x00\x02", ErrUnsupported},
		"plain archive": {
			string(zipOf(t, []txtar.File{{Name: "a.txt", Data: []byte("x")}})), ErrUnsupported},
		"damaged archive": {"PK\x03\x04 and nothing else", errBroken},
		"damaged PDF":     {"%PDF-1.4\nnothing else", errBadPDF},
		"damaged Word": {string(zipOf(t, []txtar.File{{Name: "word/document.xml",
			Data: []byte("<document><p><t>x</p")}})), errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read([]byte(tt.file), "application/octet-stream", 1000)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %q, %v, want %v", got, err, tt.want)
			}
		})
	}
	if _, err := Text(make([]byte, maxFile+1), "", 10, early); !errors.Is(err, errTooLarge) {
		t.Errorf("got %v, want %v", err, errTooLarge)
	}
}

func TestType(t *testing.T) {
	word := zipOf(t, []txtar.File{{Name: "[Content_Types].xml"}, {Name: "word/document.xml"}})
	for _, tt := range []struct{ head, name, want string }{
		{"hello", "", "text/plain"},
		{"hello", "a.md", "text/markdown"},
		{"a,b\n1,2\n", "a.CSV", "text/csv"},
		{"hello", "a.png", "text/plain"},
		{"", "a.go", "text/x-go"},
		{"\x89PNG\r\n\x1a\n", "a.txt", "image/png"},
		{"\xff\xd8\xff\xe0", "", "image/jpeg"},
		{"%PDF-1.7\n", "a.doc", "application/pdf"},
		{"OggS\x00\x02\x00\x00", "voice.oga", "application/ogg"},
		{string(word), "a.bin", byExtension[".docx"]},
		{"PK\x03\x04", "a.odt", "application/vnd.oasis.opendocument.text"},
		{`{"cells": []}`, "a.ipynb", "application/x-ipynb+json"},
		{"<!DOCTYPE html><p>x", "", "text/html"},
		{"\x00\x01\x02\x03", "", "application/octet-stream"},
	} {
		if got := Type([]byte(tt.head), tt.name); got != tt.want {
			t.Errorf("Type(%.10q, %q) = %q, want %q", tt.head, tt.name, got, tt.want)
		}
	}
}

// A repeated is a text that is generated while it is written.
type repeated struct {
	begin, middle, end string
	n                  int
}

func (r repeated) write(w io.Writer) error {
	block := strings.Repeat(r.middle, 1000)
	if _, err := io.WriteString(w, r.begin); err != nil {
		return err
	}
	for range r.n / 1000 {
		if _, err := io.WriteString(w, block); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, r.end)
	return err
}

// bomb returns an archive with the other files and one generated file.
func bomb(t testing.TB, name string, r repeated, others ...txtar.File) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range others {
		w, err := z.Create(f.Name)
		if err == nil {
			_, err = w.Write(f.Data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := z.Create(name)
	if err == nil {
		err = r.write(w)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// peak returns how many bytes of memory f uses at most.
func peak(f func()) uint64 {
	runtime.GC()
	var before, s runtime.MemStats
	runtime.ReadMemStats(&before)
	most := before.HeapAlloc
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return most - before.HeapAlloc
		case <-time.After(2 * time.Millisecond):
			runtime.ReadMemStats(&s)
			most = max(most, s.HeapAlloc)
		}
	}
}

func TestBombs(t *testing.T) {
	book := txtar.File{Name: "xl/workbook.xml", Data: []byte(
		`<workbook><sheets><sheet name="One" r:id="rId1"/></sheets></workbook>`)}
	const tens = 250_000
	var many []txtar.File
	for i := range maxEntries + 1 {
		many = append(many, txtar.File{Name: fmt.Sprint(i)})
	}
	for name, tt := range map[string]struct {
		file []byte
		want error // nil if the file can be read
	}{
		"unpacked size": {bomb(t, "word/document.xml",
			repeated{"<d>", "<p>" + strings.Repeat("not shown ", 100) + "</p>", "</d>", 5_000}),
			errTooLarge},
		"text without end": {bomb(t, "word/document.xml",
			repeated{"<d><p><t>", "aaaaaaaaaa", "</t></p></d>", tens}), errTooLarge},
		"tag without end": {bomb(t, "word/document.xml",
			repeated{"<d ", "a='b' c='d' ", "/>", tens}), errTooLarge},
		"comment": {bomb(t, "word/document.xml",
			repeated{"<d><!-- ", "<>", " --></d>", 4 * tens}), errTooLarge},
		"CDATA": {bomb(t, "word/document.xml",
			repeated{"<d><![CDATA[ ", "<>", " ]]></d>", 4 * tens}), errTooLarge},
		"depth": {bomb(t, "word/document.xml", repeated{"", "<p>", "", tens / 10}), errTooLarge},
		"entities": {bomb(t, "word/document.xml", repeated{
			`<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><d>`,
			"<p><t>&b;</t></p>", "</d>", 1000}), errTooLarge},
		"entries": {zipOf(t, many), errTooLarge},
		"shared strings": {bomb(t, "xl/sharedStrings.xml",
			repeated{"<sst>", "<si/>", "</sst>", 11_000}, book), errTooLarge},
		"styles": {bomb(t, "xl/styles.xml", repeated{"<styleSheet><cellXfs>",
			"<xf numFmtId='1'/>", "</cellXfs></styleSheet>", tens / 2}, book), nil},
		"rows": {bomb(t, "xl/worksheets/sheet1.xml", repeated{"<worksheet><sheetData>",
			"<row><c r='XFD1'><v>1</v></c></row>", "</sheetData></worksheet>", tens / 5}, book), nil},
		"repeated cells": {bomb(t, "content.xml", repeated{"<d><table>",
			"<table-row><table-cell number-columns-repeated='9999999'><p>x</p></table-cell></table-row>",
			"</table></d>", tens / 100}), nil},
		"HTML":        {[]byte("<html>" + strings.Repeat("<div>", tens/10)), nil},
		"HTML quotes": {[]byte("<html>" + strings.Repeat(`<a "`, tens/10)), nil},
		"JSON":        {[]byte(strings.Repeat("[", tens/10)), nil},
		"notebook":    {[]byte(`{"cells":` + strings.Repeat("[", tens/10)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var text string
			var err error
			used := peak(func() { text, err = narrow(tt.file, "application/x-ipynb+json", 10_000) })
			if (err == nil) != (tt.want == nil) || err != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %d bytes, %v, want %v", len(text), err, tt.want)
			}
			if used > 160<<20 {
				t.Errorf("%d MB were in use", used>>20)
			}
		})
	}
}

// The text of one cell is bounded, even if it comes in many pieces.
func TestLongCells(t *testing.T) {
	book := txtar.File{Name: "xl/workbook.xml", Data: []byte(
		`<workbook><sheets><sheet name="One" r:id="rId1"/></sheets></workbook>`)}
	sheet := txtar.File{Name: "xl/worksheets/sheet1.xml", Data: []byte(
		"<worksheet><sheetData><row><c t='s'><v>0</v></c></row></sheetData></worksheet>")}
	piece := "<b/>" + strings.Repeat("a", 100)
	for name, file := range map[string][]byte{
		"value": bomb(t, "xl/worksheets/sheet1.xml", repeated{"<worksheet><sheetData><row><c><v>",
			piece, "</v></c></row></sheetData></worksheet>", 1000}, book),
		"shared": bomb(t, "xl/sharedStrings.xml", repeated{"<sst><si>",
			"<t>" + strings.Repeat("a", 100) + "</t>", "</si></sst>", 1000}, book, sheet),
	} {
		text, err := read(file, "application/zip", 1<<20)
		if n := strings.Count(text, "a"); err != nil || n != maxCell {
			t.Errorf("%s: %d bytes of the cell are left (%v), want %d", name, n, err, maxCell)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, path := range []string{"testdata/*.txtar"} {
		paths, err := filepath.Glob(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			a, err := txtar.ParseFile(path)
			if err != nil {
				f.Fatal(err)
			}
			if name := a.Files[0].Name; name == "in.pdf" {
				f.Add(documenttest.PDF(string(a.Files[0].Data)), 100)
			} else if strings.HasPrefix(name, "in.") {
				f.Add(a.Files[0].Data, 1000)
			} else {
				f.Add(zipOf(f, a.Files), 1000)
			}
		}
	}
	f.Fuzz(func(t *testing.T, file []byte, limit int) {
		limit = int(uint(limit) % 10_000)
		text, err := read(file, "text/html", limit)
		if len(text) > limit || !utf8.ValidString(text) || err != nil && text != "" {
			t.Errorf("%d bytes for a limit of %d, %v", len(text), limit, err)
		}
	})
}

// FuzzParts puts the same XML into each kind of archive.
func FuzzParts(f *testing.F) {
	names := []string{
		"word/document.xml", "xl/workbook.xml", "ppt/presentation.xml", "content.xml",
		"META-INF/container.xml",
	}
	f.Add("<d><p><t>x</t></p><list><list-item><p>y</p></list-item></list></d>")
	f.Add("<w><sheet name='a'/><row><c t='s' s='1'><v>0</v></c></row><si><t>z</t></si></w>")
	f.Fuzz(func(t *testing.T, xml string) {
		for _, name := range names {
			var files []txtar.File
			for _, n := range []string{
				name, "xl/sharedStrings.xml", "xl/styles.xml", "xl/worksheets/sheet1.xml",
				"ppt/slides/slide1.xml", "ppt/slides/_rels/slide1.xml.rels", "a.html",
			} {
				files = append(files, txtar.File{Name: n, Data: []byte(xml)})
			}
			if text, err := read(zipOf(t, files), "", 1000); len(text) > 1000 {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		}
	})
}

func BenchmarkWorkbook(b *testing.B) {
	book := txtar.File{Name: "xl/workbook.xml", Data: []byte(
		`<workbook><sheets><sheet name="One" r:id="rId1"/></sheets></workbook>`)}
	file := bomb(b, "xl/worksheets/sheet1.xml", repeated{"<worksheet><sheetData>",
		`<row r="1"><c r="A1" t="inlineStr"><is><t>some text</t></is></c><c r="B1"><v>12.5</v></c>` +
			`<c r="C1"><v>3</v></c></row>`, "</sheetData></worksheet>", 100_000}, book)
	for _, limit := range []int{32 << 10, 64 << 20} {
		b.Run(fmt.Sprintf("limit=%dk", limit>>10), func(b *testing.B) {
			b.ReportAllocs()
			var used uint64
			for b.Loop() {
				used = max(used, peak(func() {
					if _, err := read(file, "", limit); err != nil {
						b.Error(err)
					}
				}))
			}
			b.ReportMetric(float64(used)/(1<<20), "peak-MB")
		})
	}
}

// A page has the encoding that it declares.
func TestDeclaredEncoding(t *testing.T) {
	for page, want := range map[string]string{
		"<meta charset=windows-1251><p>\xcf\xf0\xe8\xe2\xe5\xf2": "Привет",
		"<html><head><meta charset='Shift_JIS'><p>\x93\xfa\x96{": "日本",
		"<?xml version='1.0' encoding='windows-1251'?><!DOCTYPE html><html " +
			"xmlns='http://www.w3.org/1999/xhtml'><p>\xcf\xf0\xe8</p></html>": "При",
		"<?xml version='1.0' encoding='windows-1251'?><a>\xcf\xf0\xe8": "" +
			"<?xml version='1.0' encoding='windows-1251'?><a>При",
		"<html><meta http-equiv=Content-Type content='text/html; charset=gbk'>" +
			"<p>\xc4\xe3\xba\xc3": "你好",
		"<html><meta charset=utf-8><p>größer, but \xff is damaged": "größer, but \uFFFD is damaged",
		"<html><p>gr\xf6\xdfer": "größer",
	} {
		if got, err := read([]byte(page), "text/html", 1000); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", page, got, err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct{ body, contentType, want string }{
		{"\xcf\xf0\xe8", "text/html; charset=windows-1251", "При"},
		{"\x82\xa0", "text/html; charset=Shift_JIS", "あ"},
		{"\xef\xbb\xbfa", "", "a"},
		{"\xff\xfea\x00", "text/plain", "a"},
		{strings.Repeat(" ", 2000) + "ä", "text/html", strings.Repeat(" ", 2000) + "ä"},
		{"\xe4", "text/html", "ä"},
		{strings.Repeat("ä", 1000) + "\xff", "", strings.Repeat("ä", 1000) + "\ufffd"},
		{strings.Repeat(" ", 2000) + "Überfluß\xff", "", strings.Repeat(" ", 2000) + "Überfluß\ufffd"},
		{strings.Repeat(" ", 2000) + "\xdcberflu\xdf ü", "",
			strings.Repeat(" ", 2000) + "Überfluß Ã¼"},
		{"ä", "text/html; charset=no-such", "ä"},
		{"a\xe4", "text/plain; charset=utf-8", "a\ufffd"},
		{"<?xml version='1.0' encoding='windows-1251'?>\n<p>\xcf\xf0\xe8", "text/xml",
			"<?xml version='1.0' encoding='windows-1251'?>\n<p>При"},
		{"<?xml version=\"1.0\" encoding=\"utf-16\"?><p>\xe4", "text/xml",
			"<?xml version=\"1.0\" encoding=\"utf-16\"?><p>ä"},
		{"<?xml version='1.0' encoding='windows-1251'?>При", "text/xml",
			"<?xml version='1.0' encoding='windows-1251'?>При"},
		{"<meta charset=iso-2022-jp>\x1b$B$\"\x1b(B", "text/html", "<meta charset=iso-2022-jp>あ"},
		{"<meta charset=iso-2022-jp>あ", "text/html", "<meta charset=iso-2022-jp>あ"},
	} {
		if got := Decode([]byte(tt.body), tt.contentType); got != tt.want {
			t.Errorf("Decode(%q, %s) = %q, want %q", tt.body, tt.contentType, got, tt.want)
		}
	}
}

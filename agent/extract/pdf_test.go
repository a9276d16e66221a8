package extract

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"gateway/agent/extract/document/documenttest"
)

func readPDF(t *testing.T, x *Extractor, file string) (string, error) {
	return x.Text(t.Context(), "a", strings.NewReader(file), int64(len(file)), "application/pdf", 1000)
}

// TestPDFBombs checks that the bounds of the process stop a file that makes the parser use all
// memory, use all stack or run forever.
func TestPDFBombs(t *testing.T) {
	good := string(documenttest.PDF("BT (x) Tj ET"))
	packed := string(documenttest.ObjectStreams("2", "9"))
	replace := func(file, old, new string) string {
		t.Helper()
		if !strings.Contains(file, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(file, old, new, 1)
	}
	wide := string(documenttest.PDF("BT /F2 10 Tf <00010002> Tj ET"))
	cmap := strings.Replace(documenttest.ToUnicode, "2 beginbfchar", "9999999999 beginbfchar", 1)
	x := newExtractor(t)
	x.cpu = time.Second
	for name, file := range map[string]string{
		"size":           replace(packed, "/Size 7", "/Size 9999999999"),
		"hidden size":    replace(packed, "/Size 7", "/S#69ze%x\n 9999999999"),
		"width":          replace(packed, "/W [1 2 1]", "/W [9999999999 2 1]"),
		"no width":       replace(packed, "/W [1 2 1]", "/Index [0 9999999999] /W [0 0 0]"),
		"count":          string(documenttest.ObjectStreams("999999999999", "9")),
		"count away":     string(documenttest.ObjectStreams("5 0 R", "9")),
		"count twice":    string(documenttest.ObjectStreams("2 /N 5 0 R", "9")),
		"type away":      replace(packed, "/Type /ObjStm", "/Type 5 0 R"),
		"held by itself": replace(packed, "\x02\x00\x02\x00", "\x02\x00\x03\x00"),
		"objects":        replace(good, "xref\n0 10", "xref\n9999999999 10"),
		"later objects":  replace(good, "trailer", "9999999999 1\n0000000000 00000 n \ntrailer"),
		"columns": replace(good, "/Filter /FlateDecode",
			"/DecodeParms <</Predictor 12 /Columns 9999999999>> /Filter /FlateDecode"),
		"columns away": replace(good, "/Filter /FlateDecode",
			"/DecodeParms 9 0 R /Filter /FlateDecode"),
		"font": replace(wide, documenttest.Deflated(documenttest.ToUnicode),
			fmt.Sprintf("%-*s", len(documenttest.Deflated(documenttest.ToUnicode)),
				documenttest.Deflated(cmap))),
	} {
		t.Run(name, func(t *testing.T) {
			// It is also right if the text can be read in spite of the defect.
			if text, err := readPDF(t, x, file); err == nil && text != "packed" && text != "x" {
				t.Errorf("got %q, want an error", text)
			}
		})
	}
}

func FuzzPDF(f *testing.F) {
	f.Add(string(documenttest.PDF("BT /F1 10 Tf (x) Tj /F2 5 Tf <0001> Tj ET")))
	f.Add(string(documenttest.ObjectStreams("2", "9")))
	f.Fuzz(func(t *testing.T, file string) {
		x := newExtractor(t)
		x.cpu = time.Second
		if text, err := readPDF(t, x, "%PDF-1.4\n"+file); len(text) > 1000 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

// If a document takes most of the processor time, the text so far is the result. Reading all pages
// of this one would take several seconds. They share one content.
func TestPartOfSlowPDF(t *testing.T) {
	page := "BT (a page) Tj ET\n" + strings.Repeat("q Q ", 100_000) + "\n"
	file := string(documenttest.PDF(page + strings.Repeat("---\n", 300)))
	file = contents.ReplaceAllStringFunc(file, func(old string) string {
		return fmt.Sprintf("%-*s", len(old), "/Contents 8")
	})
	x := newExtractor(t)
	x.cpu = 2 * time.Second
	text, err := readPDF(t, x, file)
	const begin, end = "[page 1]\na page\n", "[cut off here: "
	if err != nil || !strings.HasPrefix(text, begin) || !strings.Contains(text, end) {
		t.Errorf("got %q, %v", text, err)
	}
}

var contents = regexp.MustCompile(`/Contents \d+`)

package document

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gateway/agent/extract/document/documenttest"
)

func TestPDFObjectStreams(t *testing.T) {
	got, err := read(documenttest.ObjectStreams("2", "9"), "", 1000)
	if got != "packed" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPDFErrors(t *testing.T) {
	good := string(documenttest.PDF("BT (x) Tj ET"))
	for name, tt := range map[string]struct {
		file string
		want error // nil if the file can be read
	}{
		"junk behind":      {good + "\n\x00\x00garbage", nil},
		"line before":      {"\n" + good, nil},
		"mark before":      {"\xef\xbb\xbf" + good, nil},
		"version":          {strings.Replace(good, "%PDF-1.4", "%PDF-2.0", 1), nil},
		"encrypted":        {strings.Replace(good, "/Root", "/Encrypt 9 0 R /Root", 1), errEncrypted},
		"hidden encrypted": {strings.Replace(good, "/Root", "/Encr#79pt 9 0 R /Root", 1), errEncrypted},
		"scanned":          {string(documenttest.PDF("q 1 0 0 1 0 0 cm Q")), errScanned},
		"no pages":         {strings.Replace(good, "/Kids [7 0 R ]", "/Kids [      ]", 1), errScanned},
		"truncated":        {good[:len(good)/2], errBadPDF},
		"bad operands":     {string(documenttest.PDF("BT Tf Td Tm TJ Tj ' \" Do TL T* ET")), errScanned},
		"bad string":       {string(documenttest.PDF("BT (abc")), errScanned},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read([]byte(tt.file), "", 1000)
			if !errors.Is(err, tt.want) || tt.want == nil && got != "x" {
				t.Errorf("got %q, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestPDFInlineImages checks that the data of an image within the content of a page is not read as
// text.
func TestPDFInlineImages(t *testing.T) {
	for name, data := range map[string]string{
		"string": "\x00\xff(\x80", "end of a string": ")\\", "hex": "<zz>", "dictionary": "<< >> ]",
		"begin": "currentdict\nend begin", "no end": "\x00EI\x00", "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			content := "BT (before BI /x) Tj ET\nq 9 0 0 9 0 0 cm " +
				"BI /W 1/H 2 /CS [/I /RGB 1<00ff>]/BPC 8 ID " + data +
				"\nEI Q\nBI/IM true ID " + data + " EI BT 0 -20 Td (after) Tj ET"
			got, err := read(documenttest.PDF(content), "", 1000)
			if want := "before BI /x\nafter"; got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// What a page has before its damage counts.
func TestPDFHalfPage(t *testing.T) {
	got, err := read(documenttest.PDF("BT (before) Tj ET ) BT (after) Tj ET"), "", 1000)
	if got != "before" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// Many encrypted files can be read without a password: only printing or copying needs one. The
// parser can't decrypt newer and much older ones.
func TestPDFLocked(t *testing.T) {
	for lock, want := range map[documenttest.Lock]error{
		{Version: 1}: errEncrypted, {Version: 2}: nil, {Version: 4}: nil, {Version: 5}: errEncrypted,
		{Version: 2, Password: "secret"}: errEncrypted, {Version: 4, Password: "secret"}: errEncrypted,
	} {
		file := documenttest.LockedPDF("BT /F1 10 Tf (Hello locked world) Tj ET", lock)
		got, err := read(file, "", 1000)
		if !errors.Is(err, want) || want == nil && !strings.Contains(got, "Hello locked world") {
			t.Errorf("%+v: got %q, %v, want %v", lock, got, err, want)
		}
	}
}

// Reading a hostile PDF file uses a bounded amount of memory.
func TestPDFLong(t *testing.T) {
	good := string(documenttest.PDF("BT (x) Tj ET"))
	for name, file := range map[string]string{
		"nested arrays": string(documenttest.PDF(strings.Repeat("[", 1_000_000))),
		"nested in sight": strings.Replace(good, "/Kids [7 0 R ]",
			"/Kids "+strings.Repeat("[", 1_000_000), 1),
		"operands": string(documenttest.PDF(strings.Repeat("1 ", 3_000_000))),
		"text":     string(documenttest.PDF("BT " + strings.Repeat("(aaaaaaaaaaaaaaaaaaa) Tj ", 50_000))),
		"pages":    string(documenttest.PDF(strings.Repeat("BT (x) Tj ET\n---\n", 100))),
		"forms in forms": strings.Replace(good, "BT /F1 10 Tf (in a form) Tj ET",
			"/X1 Do                        ", 1),
	} {
		t.Run(name, func(t *testing.T) {
			used := peak(func() { _, _ = narrow([]byte(file), "", 1000) }) // any result is right
			if used > 512<<20 {
				t.Errorf("%d MB were in use", used>>20)
			}
		})
	}
}

// A page tree that contains itself is refused at once.
func TestPDFTree(t *testing.T) {
	file := strings.Replace(string(documenttest.PDF("")), "/Kids [7 0 R ]", "/Kids [2 0 R ]", 1)
	b := bounds{time.Hour, maxUnpacked, maxShared}
	_, err := b.text([]byte(file), "", 1000, early)
	if !errors.Is(err, errBadPDF) {
		t.Errorf("got %v", err)
	}
}

// A file on which the parser loops forever is refused when the time is over.
func TestPDFForEver(t *testing.T) {
	file := strings.NewReplacer("/Parent 2 0 R", "/Parent 7 0 R", "/Resources", "/NoResource").
		Replace(string(documenttest.PDF("")))
	b := bounds{500 * time.Millisecond, maxUnpacked, maxShared}
	_, err := b.text([]byte(file), "", 1000, early)
	if !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
}

// If reading takes long, the text so far is the result. It takes long at once here.
func TestPartOfSlowDocument(t *testing.T) {
	late := func() bool { return true }
	for name, file := range map[string]string{
		"PDF":  string(documenttest.PDF(strings.Repeat("BT (first) Tj ET\n---\n", 9))),
		"page": "<!doctype html>" + strings.Repeat("<p>first</p>", 9000),
	} {
		text, err := Text([]byte(file), "", 1<<20, late)
		if err != nil || !strings.Contains(text, "first") || strings.Count(text, "first") > 1000 ||
			!strings.Contains(text, "cut off here: reading the rest takes too long") {
			t.Errorf("%s: got %d bytes, %v", name, len(text), err)
		}
	}
}

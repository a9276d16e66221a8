// Package document extracts the text of files that people send, so that a language model can read
// them. [Text] returns the text; [Type] detects the type of a file.
//
// It supports plain text in several encodings, HTML, notebooks, PDF, the formats of Microsoft
// Office since 2007, OpenDocument and EPUB. Files come from strangers, so every format has limits:
// 64 MiB of file, 256 MiB unpacked, 40 seconds, and more limits beside the code that needs them.
// The package has no database tables or files.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gabriel-vasile/mimetype"

	"gateway/store/plaintext"
)

// ErrUnsupported reports that files of this type have no text, or none that the package can read.
var ErrUnsupported = errors.New("there is no text in a file of this type")

var (
	errTooLarge = errors.New("the file is too large to be read")
	errTooLong  = errors.New("reading the file takes too long")
	errLocked   = errors.New("the document is encrypted")
)

const (
	maxFile     = 64 << 20         // bytes
	maxUnpacked = 256 << 20        // bytes of all entries of an archive together
	maxTime     = 40 * time.Second // on a busy machine; package extract limits processor time
	headSize    = 3072             // bytes from which the type is detected
)

// Text returns the text of a file. The MIME type matters only if the content does not tell the
// type. Text returns at most limit bytes. It cuts longer text between characters and adds a note
// about the length of the rest. When the time is over or late returns true, the text that was
// found so far is the result. If there is none yet, reading goes on until the time is over.
//
// The error is [ErrUnsupported], or an error whose text is a plain clause, such as "the PDF is
// encrypted".
func Text(raw []byte, mime string, limit int, late func() bool) (text string, err error) {
	return bounds{maxTime, maxUnpacked, maxShared}.text(raw, mime, limit, late)
}

// bounds are the limits that tests reduce.
type bounds struct {
	time     time.Duration
	unpacked int64
	shared   int // number of strings in a workbook
}

// text implements [Text]. Text that was found before a limit was reached is a result, not an error.
func (b bounds) text(raw []byte, mime string, limit int, late func() bool) (string, error) {
	if len(raw) > maxFile {
		return "", errTooLarge
	}
	f := &file{
		raw: raw, out: &sink{limit: max(0, limit)}, late: late,
		until: time.Now().Add(b.time), unpacked: b.unpacked, shared: b.shared,
	}
	err := f.read(Type(raw[:min(len(raw), headSize)], ""), base(mime))
	if err != nil && !errors.Is(err, errEnough) {
		return "", err
	}
	return f.out.text(), nil
}

// A file is the state of reading one file.
type file struct {
	raw   []byte
	out   *sink
	until time.Time   // deadline for reading
	late  func() bool // whether reading ends if there is text

	unpacked int64 // bytes that may still be unpacked
	shared   int   // greatest number of shared strings in a workbook
}

// read reads the file. kind is the type detected from the content, claimed the sender's. The
// content decides between formats. Among texts, which look alike, the sender's type decides.
func (f *file) read(kind, claimed string) error {
	switch {
	case kind == "application/pdf":
		return f.pdf()
	case strings.HasPrefix(kind, "application/") && IsZip(kind):
		return f.archive()
	case isLocked(f.raw):
		return errLocked
	case !IsText(kind):
		return ErrUnsupported
	}
	// Markdown and programs may begin with tags, too.
	other := claimed != kind && IsText(claimed) || claimed == "application/octet-stream"
	if kind == "text/html" && other && !pageStart().Match(f.raw[:min(len(f.raw), headSize)]) {
		kind = "text/plain"
	}
	if IsText(claimed) && kind == "text/plain" {
		kind = claimed
	}
	switch kind {
	case "text/html", "application/xhtml+xml":
		return f.html()
	case "application/x-ipynb+json", "application/json":
		// Any other JSON is plain text.
		if err := f.notebook(); !errors.Is(err, errNoNotebook) {
			return err
		}
	case "text/rtf":
		// Its text is hidden among commands, and the package has no parser for it.
		return ErrUnsupported
	}
	return f.plain()
}

// pageStart matches the beginning of a whole web page.
var pageStart = plaintext.Pattern(
	`(?is)^(\xef\xbb\xbf|\s|<!--.*?-->)*<(!doctype html|html\b|head\b|body\b)`)

// Type returns the MIME type of a file, without parameters, from its first bytes; about 3 kB are
// enough. The name matters only for types that look the same, such as kinds of text or of archives.
// If there are no bytes, the name decides alone.
func Type(head []byte, name string) string {
	kind := base(mimetype.Detect(head).String())
	byName := byExtension[strings.ToLower(path.Ext(name))]
	switch {
	case byName == "":
	case kind == "text/plain" && IsText(byName),
		kind == "application/json" && byName == "application/x-ipynb+json",
		kind == "application/zip" && IsZip(byName),
		len(head) == 0:
		return byName
	}
	return kind
}

// base returns a MIME type without its parameters.
func base(mime string) string {
	mime, _, _ = strings.Cut(mime, ";")
	return strings.ToLower(strings.TrimSpace(mime))
}

// IsText reports whether files of the type are plain text.
func IsText(mime string) bool {
	return strings.HasPrefix(mime, "text/") || strings.HasSuffix(mime, "+json") ||
		strings.HasSuffix(mime, "+xml") || slices.Contains(textTypes, mime)
}

var textTypes = []string{
	"application/json", "application/xml", "application/javascript", "application/x-ndjson",
	"application/yaml", "application/toml", "application/sql", "application/x-sh",
	"application/x-subrip", "application/x-perl", "application/x-python", "application/x-php",
}

// IsZip reports whether files of the type are ZIP archives. Some of these have text.
func IsZip(mime string) bool {
	return mime == "application/zip" || mime == "application/epub+zip" ||
		strings.HasPrefix(mime, "application/vnd.openxmlformats-officedocument.") ||
		strings.HasPrefix(mime, "application/vnd.oasis.opendocument.")
}

// byExtension has the types that can't be reliably detected from the content.
var byExtension = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown",
	".markdown": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".html": "text/html", ".htm": "text/html", ".xml": "text/xml", ".svg": "image/svg+xml",
	".json": "application/json", ".jsonl": "application/x-ndjson", ".yaml": "application/yaml",
	".yml": "application/yaml", ".toml": "application/toml", ".ipynb": "application/x-ipynb+json",
	".ini": "text/plain", ".conf": "text/plain", ".sql": "application/sql",
	".sh": "application/x-sh", ".js": "text/javascript", ".ts": "text/x-typescript",
	".css": "text/css", ".go": "text/x-go", ".py": "text/x-python", ".rs": "text/x-rust",
	".java": "text/x-java", ".c": "text/x-c", ".h": "text/x-c", ".cpp": "text/x-c++",
	".rb": "text/x-ruby", ".php": "text/x-php", ".tex": "text/x-tex", ".srt": "application/x-subrip",
	".vcf": "text/vcard", ".ics": "text/calendar", ".eml": "message/rfc822",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".odt":  "application/vnd.oasis.opendocument.text",
	".ods":  "application/vnd.oasis.opendocument.spreadsheet",
	".odp":  "application/vnd.oasis.opendocument.presentation",
	".epub": "application/epub+zip",
}

// check returns an error if reading must end. Whoever reads calls it regularly.
func (f *file) check() error {
	over := time.Now().After(f.until)
	switch {
	case f.out.missing > surplus:
		return errEnough
	case f.out.begun && (over || f.late()):
		f.out.atLeast = true
		return errEnough
	case over:
		return errTooLong
	}
	return nil
}

// errEnough ends reading when the wanted text and a surplus were found, or some text and it takes
// long.
var errEnough = errors.New("enough")

// surplus is how many bytes of text beyond the limit are counted. The note about a cut is exact up
// to there, and reading a huge file ends there.
const surplus = 8 << 20

// A sink receives the text that is found and stores it up to a limit.
type sink struct {
	limit   int // bytes to store
	b       bytes.Buffer
	missing int64 // bytes beyond the limit
	atLeast bool  // missing is only a lower bound
	begun   bool  // something other than line breaks was written
	breaks  int   // line breaks to write before the next text
}

// write appends text to the current line. Line breaks wait until there is more text, so none are
// left at the end. It ignores text beyond the surplus.
func (s *sink) write(text string) {
	for text != "" && s.missing <= surplus {
		line, rest, more := strings.Cut(text, "\n")
		if line != "" {
			if s.begun { // no line breaks are written at the beginning
				s.add("\n\n"[:min(s.breaks, 2)])
			}
			s.breaks, s.begun = 0, true
			s.add(line)
		}
		if more {
			s.breaks++
		}
		text = rest
	}
	s.atLeast = s.atLeast || s.missing > surplus
}

// line starts a new line; paragraph also leaves an empty line before it.
func (s *sink) line()      { s.breaks = max(s.breaks, 1) }
func (s *sink) paragraph() { s.breaks = max(s.breaks, 2) }

// add appends text with all of its line breaks. It stores as much as there is room for, and counts
// the rest. It replaces invalid UTF-8.
func (s *sink) add(text string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	keep := min(len(text), s.limit-s.b.Len())
	s.b.WriteString(text[:keep])
	s.missing += int64(len(text) - keep)
}

// text returns the stored text, with a note if it was cut.
func (s *sink) text() string {
	text := s.b.String()
	if s.missing > 0 {
		text = strings.ToValidUTF8(text, "") // it may end within a character
	}
	if s.missing == 0 && !s.atLeast && len(text) <= s.limit {
		return text
	}
	more := ""
	if s.atLeast {
		more = "more than "
	}
	missing := s.missing
	// It is called twice, because the number in it can grow.
	note := func() string {
		if missing == 0 {
			return "\n[cut off here: reading the rest takes too long]"
		}
		return fmt.Sprintf("\n[cut off here: %s%d bytes are missing]", more, missing)
	}
	keep := s.limit - len(note()) - len("00") // the number in the note may become longer
	if keep < s.limit/2 {                     // no room for a note
		return plaintext.Cut(text, s.limit)
	}
	text = plaintext.Cut(text, keep)
	missing += int64(s.b.Len() - len(text))
	return text + note()
}

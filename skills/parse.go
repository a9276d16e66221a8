package skills

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gateway/store/plaintext"
)

// Limits of a skill's text, in bytes.
const (
	maxFile  = 1 << 20  // a SKILL.md
	maxFront = 32 << 10 // its front matter
	maxBody  = 32 << 10 // the part of its text that is shown
)

// Recommended limits, in characters.
const (
	maxName        = 64
	maxDescription = 1024
)

// document is a parsed SKILL.md.
type document struct {
	Skill        // what the front matter says; its Name is "" if missing
	body  string // without the front matter
}

// parse parses a SKILL.md. It reports mistakes in the document's problem and remarks.
func parse(data []byte) document {
	var d document
	text := d.decode(data)
	if d.Problem != "" {
		return d
	}
	front, body, ok := d.split(text)
	d.body = strings.Trim(body, "\n")
	switch {
	case d.Problem != "":
		return d
	case strings.TrimSpace(text) == "":
		d.Problem = "it is empty"
		return d
	case !ok:
		d.remark("it has no front matter, so its first paragraph is the description")
	case len(front) > maxFront:
		d.Problem = fmt.Sprintf("its front matter is larger than %d KB", maxFront>>10)
		return d
	default:
		d.readFront(front)
	}
	if d.Problem == "" && strings.TrimSpace(d.body) == "" {
		d.remark("it has no text besides its front matter")
	}
	if d.Description == "" {
		d.Description = firstParagraph(d.body)
		if ok && d.Problem == "" {
			d.remark("it has no description, so its first paragraph is the description")
		}
	}
	if utf8.RuneCountInString(d.Description) > maxDescription {
		d.remark("its description has more than %d characters and is cut", maxDescription)
	}
	d.Description = plaintext.Shorten(d.Description, maxDescription)
	return d
}

// remark adds a remark, unless the document has it already.
func (d *document) remark(format string, args ...any) {
	const most = 20
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(d.Remarks, text) && len(d.Remarks) < most {
		d.Remarks = append(d.Remarks, text)
	}
}

// byteOrderMark is written by some editors at the beginning of UTF-8 files.
var byteOrderMark = []byte("\xEF\xBB\xBF")

// decode returns the text of a file, with "\n" as line ends.
func (d *document) decode(data []byte) string {
	switch {
	// These are the byte order marks of UTF-16.
	case bytes.HasPrefix(data, []byte{0xFF, 0xFE}), bytes.HasPrefix(data, []byte{0xFE, 0xFF}):
		d.Problem = "it is written in UTF-16: save it as UTF-8"
		return ""
	case bytes.IndexByte(data, 0) >= 0:
		d.Problem = "it is not text"
		return ""
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	text := string(data)
	if !utf8.ValidString(text) {
		d.remark("it is not all UTF-8: invalid bytes show as \uFFFD")
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n")
}

// split returns the front matter of a text, the rest of the text, and whether there is a
// front matter. Blank lines before the front matter are accepted. A line "..." also ends it, as
// YAML allows.
func (d *document) split(text string) (front, body string, ok bool) {
	text = strings.TrimLeft(text, " \t\n")
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return "", text, false
	}
	at := 0
	for line := range strings.Lines(rest) {
		switch strings.TrimRight(line, " \t\n") {
		case "---", "...":
			return rest[:at], rest[at+len(line):], true
		}
		at += len(line)
	}
	d.Problem = "its front matter begins with --- and is never ended by such a line"
	return "", "", false
}

// firstParagraph returns the first paragraph of a text that is not a heading, or the first
// heading if there is no such paragraph.
func firstParagraph(text string) string {
	var heading string
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		title := strings.TrimSpace(strings.TrimLeft(line, "#"))
		switch {
		case strings.HasPrefix(line, "#") || strings.Trim(line, "-=*_ ") == "":
			heading = cmp.Or(heading, title)
			if len(lines) > 0 {
				return plaintext.OneLine(strings.Join(lines, " "))
			}
		default:
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return plaintext.OneLine(heading)
	}
	return plaintext.OneLine(strings.Join(lines, " "))
}

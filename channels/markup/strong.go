package markup

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const strongMark = "**"

// A span is the text between the marks of bold text, as byte offsets in the source.
type span struct{ start, end int }

// findStrong returns the bold text in src that a cut may close and reopen. It returns only certain
// cases. It skips text that is longer than most, or contains code, other marks or the beginning of
// a block. The result for a place depends only on the following most bytes, so that the beginning
// of a text is split like the whole.
func findStrong(src string, fences []fence, most int) []span {
	if !strings.Contains(src, strongMark) {
		return nil
	}
	var spans []span
	open := -1 // start of the current bold text
	sure := true
	for i := 0; i < len(src); {
		if len(fences) > 0 && i >= fences[0].open {
			i, open, sure = max(i, fences[0].end), -1, true
			fences = fences[1:]
			continue
		}
		switch c := src[i]; c {
		case '\n':
			next, _ := utf8.DecodeRuneInString(src[i+1:])
			if !unicode.IsLetter(next) {
				open = -1
			}
			sure = sure || strings.HasPrefix(src[i+1:], "\n")
		// Any of these could make the stars something else, so nothing is certain up to the next
		// blank line.
		case '\\', '`', '_', '$', '[', '|':
			open, sure = -1, false
		case '*':
			n := len(src[i:]) - len(strings.TrimLeft(src[i:], "*"))
			switch {
			// One star or three are italics, alone or with bold text.
			case n != len(strongMark):
				open, sure = -1, false
			case open >= 0 && isText(src, i-1) && !isWordAt(src, i+n) && i+8-open < most:
				spans = append(spans, span{open, i})
				open = -1
			case open < 0 && sure && isText(src, i+n) && !isText(src, i-1):
				open = i + n
			default:
				open = -1
			}
			i += n
			continue
		}
		i++
	}
	return spans
}

// isText reports whether src has a character other than white space at i.
func isText(src string, i int) bool {
	return i >= 0 && i < len(src) && strings.IndexByte(blanks, src[i]) < 0
}

// isWordAt reports whether a letter or a digit is at i.
func isWordAt(src string, i int) bool {
	r, _ := utf8.DecodeRuneInString(src[i:])
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// strong reports whether a cut at pos would divide bold text.
func (s *splitter) strong(pos int) bool {
	i, _ := slices.BinarySearchFunc(s.strongs, pos, func(x span, pos int) int {
		return x.end - pos
	})
	return i < len(s.strongs) && s.strongs[i].start < pos && pos < s.strongs[i].end
}

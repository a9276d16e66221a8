package web

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible removes control characters and characters without width from text. Instructions could be
// hidden from people in them. It keeps joiners where scripts and emoji need them: after a character
// outside ASCII.
func visible(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	last := ' '
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case r == '\u200c' || r == '\u200d':
			if last < utf8.RuneSelf || last == '\u200c' || last == '\u200d' {
				continue
			}
		case unicode.IsControl(r), invisible(r):
			continue
		}
		b.WriteRune(r) // invalid UTF-8 becomes U+FFFD
		last = r
	}
	return b.String()
}

// invisible reports whether r has no width and carries no meaning. The characters that the last
// list names, such as fillers and line separators, are no format characters.
func invisible(r rune) bool {
	switch {
	case unicode.Is(unicode.Cf, r): // format characters: directions, tags, soft hyphens
		return true
	case r >= 0xe0100 && r <= 0xe01ef: // variation selectors for ideographs
		return true
	}
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2028, 0x2029, 0x3164, 0xffa0:
		return true
	}
	return false
}

// oneLine returns foreign text as one line without invisible characters. A line of more than most
// characters is cut and ends with an ellipsis.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(visible(strings.Map(space, text))), " ")
	if head := prefix(text, most); head != text {
		return head + "…"
	}
	return text
}

// space converts line breaks of all kinds to spaces, so that words stay separate.
func space(r rune) rune {
	if unicode.IsSpace(r) || r == 0x2028 || r == 0x2029 {
		return ' '
	}
	return r
}

// prefix returns the first most characters of text. It returns all of text if text is not longer.
func prefix(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for i := range text {
		if most == 0 {
			return text[:i]
		}
		most--
	}
	return text
}

package web

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns text without what nobody would see: control characters, and characters without
// width, in which instructions can be hidden from people. Joiners stay where scripts and emoji
// need them: after a character beyond ASCII.
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
		b.WriteRune(r) // U+FFFD for what is not UTF-8
		last = r
	}
	return b.String()
}

// invisible reports whether r has no width and no meaning of its own.
func invisible(r rune) bool {
	switch {
	case unicode.Is(unicode.Cf, r): // formats: directions, tags, soft hyphens
		return true
	case r >= 0xe0100 && r <= 0xe01ef: // variants of ideographs
		return true
	}
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2028, 0x2029, 0x3164, 0xffa0:
		return true
	}
	return false
}

// oneLine returns foreign text as one visible line of at most most characters.
func oneLine(text string, most int) string {
	return cut(strings.Join(strings.Fields(visible(strings.Map(space, text))), " "), most)
}

// space turns line breaks of all kinds into spaces, so that words stay apart.
func space(r rune) rune {
	if unicode.IsSpace(r) || r == 0x2028 || r == 0x2029 {
		return ' '
	}
	return r
}

// cut returns at most most characters of text, with an ellipsis if there are more.
func cut(text string, most int) string {
	if head := prefix(text, most); head != text {
		return head + "…"
	}
	return text
}

// prefix returns at most most characters of text.
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

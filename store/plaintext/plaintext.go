// Package plaintext shortens texts and puts them on one line, for places with little room. It also
// compiles patterns when they are first needed.
package plaintext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut returns at most the first n bytes of s. It never splits a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Tail returns at most the last n bytes of s. It never splits a character.
func Tail(s string, n int) string {
	i := max(len(s)-n, 0)
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// Clip is like [Cut], but adds an ellipsis to a text that it cuts.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Cut(s, n) + "…"
}

// Shorten returns at most n characters. If s is longer, it replaces the end by an ellipsis.
func Shorten(s string, n int) string {
	end, left := 0, n
	for i := range s {
		if left == 1 {
			end = i
		}
		if left == 0 {
			return strings.TrimRightFunc(s[:end], unicode.IsSpace) + "…"
		}
		left--
	}
	return s
}

// Line returns the first n characters of [OneLine], as [Shorten] does.
func Line(s string, n int) string { return Shorten(OneLine(s), n) }

// OneLine returns s on one line, without invisible characters and without those that change the
// direction of text.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

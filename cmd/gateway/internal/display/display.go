// Package display formats text for a terminal.
package display

import (
	"strings"
	"time"
	"unicode"

	"gateway/store/plaintext"
)

// Ago returns the time since t in seconds, minutes and hours, such as "1h2m3s".
func Ago(t time.Time) string { return time.Since(t).Truncate(time.Second).String() }

// OneLine returns s as one line of at most 60 characters without invisible ones.
func OneLine(s string) string { return plaintext.Line(s, 60) }

// Lines returns s without control characters other than newlines and tabs.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

// Package display makes text fit for a terminal.
package display

import (
	"strings"
	"time"
	"unicode"
)

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return -1
	}
	return r
}

// Ago returns how long ago t was, for people.
func Ago(t time.Time) string { return time.Since(t).Truncate(time.Second).String() }

// OneLine returns the beginning of s in a form that fits into a table and changes no terminal.
func OneLine(s string) string {
	const most = 60
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > most {
		runes = append(runes[:most-1], '…')
	}
	return strings.Map(printable, string(runes))
}

// Lines returns s in a form that changes no terminal.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, s)
}

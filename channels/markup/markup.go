// Package markup turns Markdown into what chat platforms understand.
package markup

import (
	"strings"
	"unicode/utf16"
)

// Telegram returns md as the HTML that Telegram takes.
func Telegram(md string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(md)
}

// Plain returns md as plain text.
func Plain(md string) string { return md }

// TelegramLen returns the length of md on Telegram in UTF-16 units.
func TelegramLen(md string) int {
	n := 0
	for _, r := range md {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

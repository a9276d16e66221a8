package command

import (
	"strings"
	"unicode"

	"gateway/bus"
)

// senderID identifies the sender of m.
func senderID(m bus.InboundMessage) string { return m.From.Account + "/" + m.Sender.ID }

// rolesFrom names the people with the role least or a higher one.
func rolesFrom(least bus.Role) string {
	switch least {
	case bus.Owner:
		return "owners"
	case bus.Admin:
		return "admins and owners"
	case bus.User:
		return "users, admins and owners"
	}
	return "guests, users, admins and owners"
}

// FirstWord returns the first word of text and the rest, without the white space between them. Some
// keyboards write other blanks than U+0020, and people write a long argument on a new line.
func FirstWord(text string) (word, rest string) {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, unicode.IsSpace)
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimSpace(text[end:])
}

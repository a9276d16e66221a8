package command

import (
	"fmt"
	"unicode/utf8"

	"gateway/bus"
)

// by names who wrote m.
func by(m bus.InboundMessage) string { return m.From.Account + "/" + m.Sender.ID }

// rolesFrom names the people who have a role or a higher one.
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

func count(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clip returns the beginning of s, of at most n bytes, and never a part of a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

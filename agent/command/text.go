package command

import "gateway/bus"

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

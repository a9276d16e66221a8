package command

import "gateway/bus"

// by names the sender of m.
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

package bus

import "slices"

// A Role says what a person may do.
type Role string

// The roles, from the least to the most powerful.
const (
	Guest Role = "guest" // a group member whom nobody has approved
	User  Role = "user"
	Admin Role = "admin" // runs the gateway; some actions remain the owner's
	Owner Role = "owner"
)

var ranks = []Role{Guest, User, Admin, Owner}

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(ranks, r) }

// AtLeast reports whether r may do what least may. An invalid role may do nothing.
func (r Role) AtLeast(least Role) bool {
	return r.Valid() && slices.Index(ranks, r) >= slices.Index(ranks, least)
}

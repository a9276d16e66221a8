package bus

import "slices"

// A Role says what a person may do.
type Role string

// The roles, from the least to the most that one may do.
const (
	Guest Role = "guest" // somebody in a group whom nobody has let in
	User  Role = "user"
	Admin Role = "admin" // runs the gateway, but for what only the owner may
	Owner Role = "owner"
)

var ranks = []Role{Guest, User, Admin, Owner}

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(ranks, r) }

// AtLeast reports whether r may do what least may. A role that is none may do nothing.
func (r Role) AtLeast(least Role) bool {
	return r.Valid() && slices.Index(ranks, r) >= slices.Index(ranks, least)
}

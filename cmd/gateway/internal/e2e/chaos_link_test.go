//go:build unix

package e2e

import (
	"slices"

	"gateway/store"
)

// relate links Ann on one platform with Ann on another one, or undoes that. From then on their
// memory may be shared, and nobody else's.
func (c *chaos) relate(chat *chaosChat) {
	c.t.Helper()
	if c.links > 3 { // each is a process
		return
	}
	c.calmDisk()
	people := make(map[string][2]string) // number and id of Ann, by account
	c.look(func(db *store.DB) {
		var account, person, sender string
		for range c.query(db, []any{&account, &person, &sender}, "SELECT account, person, sender "+
			"FROM identities WHERE chat <> ''") {
			people[account] = [2]string{person, sender}
		}
	})
	others := slices.DeleteFunc(slices.Clone(c.chats), func(other *chaosChat) bool {
		return other.ann == nil || other == chat
	})
	other := others[c.n(len(others))]
	one, two := people[chat.at.Account], people[other.at.Account]
	switch {
	case one[0] == "" || two[0] == "": // unlinked, and has not written since
	case one[0] == two[0]:
		c.world.command("people", "unlink", other.at.Account, two[1])
	default:
		c.links++
		chat.linked, other.linked = true, true
		c.world.command("people", "link", one[0], two[0])
	}
}

package gate

import (
	"slices"
	"strings"

	"gateway/bus"
)

// An Access says who may write to an account in direct chats.
type Access string

// The kinds of access.
const (
	Open      Access = "open"    // everybody
	ByList    Access = "allow"   // who is listed, and whom an owner has let in before
	ByPairing Access = "pairing" // like allow; strangers get a code that an owner can approve
)

// A Policy says who may write to one account. People are listed by the platform's user ids; where
// Phones is set also by phone numbers, which begin with "+".
type Policy struct {
	Access Access
	Allow  []string
	Owners []string
	Groups []string // platform's ids of chats in which everybody may write

	// Always answers every message of the groups, not just those that address the agent.
	Always bool
	// Phones says that the platform vouches for a Username that begins with "+".
	Phones bool
	// PerMinute is how many messages of one sender are taken in a minute; 0 means any number.
	// Owners and admins are not bounded.
	PerMinute int
}

// A verdict says what becomes of a message.
type verdict int

const (
	ignored  verdict = iota // it leaves no trace
	stranger                // its sender may ask to be let in
	heard                   // it is context for a later message of its group
	lost                    // it is dropped, as its sender knows
	hasty                   // it is dropped, and its sender told
	crowded                 // likewise, as too many others wait
	admitted
)

// judge decides on m, whose sender is who (a stranger, if that is zero), and sets its Role.
func (p *Policy) judge(m *bus.InboundMessage, who known) verdict {
	m.Person, m.Role = who.person, who.role
	let := who.role != ""
	switch {
	case p.lists(p.Owners, m.Sender):
		m.Role, let = bus.Owner, true
	case let:
	case p.Access == Open, p.lists(p.Allow, m.Sender):
		m.Role, let = bus.User, true
	default:
		m.Role = bus.Guest
	}
	switch {
	case m.Self && m.Role != bus.Owner:
		return ignored // notes of somebody who has not asked for answers to them
	case m.Group:
		return p.judgeGroup(m)
	case let:
		return admitted
	case p.Access == ByPairing:
		return stranger
	}
	return ignored
}

// judgeGroup decides on a message that others read, too. What a person may in direct chats opens
// no room.
func (p *Policy) judgeGroup(m *bus.InboundMessage) verdict {
	listed := slices.Contains(p.Groups, m.From.Chat) ||
		m.Before != "" && slices.Contains(p.Groups, m.Before)
	switch {
	case !listed && (p.Access != Open || len(p.Groups) > 0):
		return ignored
	case m.Addressed || p.Always && m.Edits == "":
		return admitted
	}
	return heard
}

func (p *Policy) lists(list []string, s bus.Sender) bool {
	if slices.Contains(list, s.ID) {
		return true
	}
	return p.Phones && strings.HasPrefix(s.Username, "+") && slices.Contains(list, s.Username)
}

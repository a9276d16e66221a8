package gate

import (
	"slices"
	"strings"

	"gateway/bus"
)

// An Access says who may write to an account in direct chats.
type Access string

// The values of Access.
const (
	Open      Access = "open"    // everybody
	ByList    Access = "allow"   // listed people, and people who were approved earlier
	ByPairing Access = "pairing" // like allow; strangers also get a code that an owner can approve
)

// A Policy says who may write to one account. Its lists hold the platform's user ids. If Phones is
// set, they may also hold phone numbers, which begin with "+".
type Policy struct {
	Access Access
	Allow  []string
	Owners []string
	Groups []string // platform's ids of chats in which everybody may write; "*": all groups
	Ruled  []string // platform's ids of chats for which the configuration has other rules

	// Always makes the agent answer every message of the groups, not only messages that address it.
	Always bool
	// Overhear lists groups in which short voice messages are admitted even if they don't address
	// the agent, because their words may do so; "*": all groups.
	Overhear []string

	// ShowsPairings says that the chats of the account show who waits for approval, without messages.
	ShowsPairings bool
	// Phones says that the platform has verified a Username that begins with "+".
	Phones bool
	// PerMinute is the maximum number of accepted messages per sender and minute; 0: no limit. It
	// does not apply to owners and admins.
	PerMinute int
}

// A decision says what happens to a message.
type decision int

const (
	ignored   decision = iota // nothing is stored
	stranger                  // the sender may ask for approval
	unlisted                  // owners are asked about its group
	ambient                   // stored as context for a later message of its group
	dropped                   // dropped; the sender was told before
	tooFast                   // dropped; the sender is told that they write too fast
	inboxFull                 // dropped; the sender is told that the inbox is full
	admitted
)

// decide decides on m and sets its Role. who is the profile of its sender, or zero for a stranger.
func (p *Policy) decide(m *bus.InboundMessage, who profile) decision {
	m.Person, m.Origin.Former, m.Role = who.person, who.former, who.role
	let := who.role != ""
	switch {
	case p.isListed(p.Owners, m.Sender):
		m.Role, let = bus.Owner, true
	case let:
	case p.Access == Open, p.isListed(p.Allow, m.Sender):
		m.Role, let = bus.User, true
	default:
		m.Role = bus.Guest
	}
	switch {
	case m.Self && m.Role != bus.Owner:
		return ignored // people's notes to themselves need no answer
	case m.Group:
		return p.decideGroup(m, who.group)
	case let:
		return admitted
	case p.Access == ByPairing:
		return stranger
	}
	return ignored
}

// decideGroup decides on a message of a group. decided is the owners' decision about it. Only
// the group counts: a person's right to write in direct chats does not admit a group.
func (p *Policy) decideGroup(m *bus.InboundMessage, decided GroupState) decision {
	named := namesGroup(p.Groups, m)
	listed := named || decided.Answers() || decided != GroupIgnored &&
		(slices.Contains(p.Groups, AnyGroup) || p.Access == Open && len(p.Groups) == 0)
	switch {
	case decided == GroupLeaving || decided == GroupLeft:
		return ignored
	case !listed && m.Addressed && (m.Role == bus.Owner || decided == ""):
		return unlisted
	case !listed:
		return ignored
	case m.Addressed || decided.always(p.Always) && m.Edits == "":
		return admitted
	case p.mustTranscribe(m):
		m.VoiceState = bus.Overheard
		return admitted
	}
	return ambient
}

// mustTranscribe reports whether m must be transcribed to find out whether it addresses the agent.
func (p *Policy) mustTranscribe(m *bus.InboundMessage) bool {
	return len(p.Overhear) > 0 && m.Utterance() != nil &&
		(slices.Contains(p.Overhear, AnyGroup) || namesGroup(p.Overhear, m))
}

// namesGroup reports whether a list has the id of m's group, or the id before the group moved.
func namesGroup(list []string, m *bus.InboundMessage) bool {
	return slices.Contains(list, m.From.Chat) ||
		m.PreviousChat != "" && slices.Contains(list, m.PreviousChat)
}

// mayOwn reports whether p may name the person with an id as an owner. A phone number may be
// anybody's.
func (p *Policy) mayOwn(id string) bool {
	return slices.Contains(p.Owners, id) || p.Phones && slices.ContainsFunc(p.Owners,
		func(listed string) bool { return strings.HasPrefix(listed, "+") })
}

// AnyGroup stands for all groups in a [Policy].
const AnyGroup = "*"

func (p *Policy) isListed(list []string, s bus.Sender) bool {
	if slices.Contains(list, s.ID) {
		return true
	}
	return p.Phones && strings.HasPrefix(s.Username, "+") && slices.Contains(list, s.Username)
}

package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// SetPolicy sets the policy of an account.
func (g *Gate) SetPolicy(account string, p Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policies[account] = p
}

// policy returns the policy of an account. For an unknown account it returns the zero Policy, which
// admits nobody.
func (g *Gate) policy(account string) Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policies[account]
}

// Names reports whether the key groups of an account contains the id of a chat. Such a group is
// admitted, even if owners have decided otherwise.
func (g *Gate) Names(account, chat string) bool {
	before := g.PreviousID(bus.Address{Account: account, Chat: chat})
	list := g.policy(account).Groups
	return slices.Contains(list, chat) || before != "" && slices.Contains(list, before)
}

// decide decides on m and returns the profile of its sender, which is at most maxAge old. moved
// maps new ids of groups to old ones: the tables do not have the moves of this batch yet.
func (g *Gate) decide(
	q store.Queryer, p Policy, m *bus.InboundMessage, moved map[string]string, maxAge time.Duration,
) (profile, decision, error) {
	who, err := g.lookUp(q, writer{m.From.Account, m.From.Chat, m.Sender.ID}, maxAge)
	if err != nil {
		return who, ignored, err
	}
	m.PreviousChat = who.before
	if before := moved[m.From.Chat]; m.PreviousChat == "" && before != "" {
		old, err := g.lookUp(q, writer{m.From.Account, before, m.Sender.ID}, maxAge)
		if err != nil {
			return who, ignored, err
		}
		m.PreviousChat, who.group, who.since = before, old.group, old.since
	}
	current := who
	if who.wasReadded(m) {
		current.group = ""
	}
	return who, p.decide(m, current), nil
}

// continues reports whether m, which does not address the agent, belongs to a message of its group
// that does: it is the new wording of a message that the agent has not answered yet, or it
// accompanies one for the agent. earlier has the messages before m in its batch. Otherwise the
// agent would act on a wording that is known to be wrong, or miss what it is asked about.
func continues(q store.Queryer, m *bus.InboundMessage, earlier []decided) (bool, error) {
	find := bus.HasForAgent
	is := func(o *bus.InboundMessage) bool { return accompanies(m, o) }
	if m.Edits != "" {
		find, is = bus.HasUnanswered, m.Rewords
	}
	isFor := func(o *bus.InboundMessage) bool { return o.VoiceState != bus.Overheard && is(o) }
	for i := range earlier {
		if o := &earlier[i]; o.decision == admitted && isFor(&o.InboundMessage) {
			return true, nil
		}
	}
	if m.Edits == "" && m.Album == "" && m.Forwarded == "" {
		return false, nil
	}
	return find(q, m, isFor)
}

// accompanies reports whether part is for the agent if m is, because their sender has sent them at
// once. Only one message of an album has the caption. Apps send a comment on what is forwarded as a
// separate message: on Telegram before it, elsewhere after it. A comment must address the agent
// itself. A command does not count as a comment.
func accompanies(part, m *bus.InboundMessage) bool {
	comments := m.Addressed && (m.Literal || !strings.HasPrefix(m.Text, "/"))
	return part.SharesAlbum(m) || part.Forwarded != "" && comments && part.From == m.From &&
		part.Sender.ID == m.Sender.ID && part.Time.Sub(m.Time).Abs() <= commentTime
}

// commentTime is the longest time between a forwarded message and the comment sent with it.
const commentTime = 2 * time.Second

// wasReadded reports whether the account was added again to a group that it has left: m is newer
// than that. Some platforms round times to seconds, so a message of the same second does not count.
func (who *profile) wasReadded(m *bus.InboundMessage) bool {
	return who.group == GroupLeft && m.Time.After(time.UnixMilli(who.since))
}

// MayWrite reports whether the sender of m may write to its conversation now, and updates the
// Person and the Role of m. Requested work may begin later, when its sender has a lower role or
// none.
func (g *Gate) MayWrite(q store.Queryer, m *bus.InboundMessage) (bool, error) {
	m.Addressed = true
	_, d, err := g.decide(q, g.policy(m.From.Account), m, nil, profileAge)
	return err == nil && d == admitted, err
}

// A writer is a person who writes to a chat of an account.
type writer struct{ account, chat, sender string }

// A profile is what the gate knows about a writer.
type profile struct {
	person int64
	former int64 // the number before they were linked with another person, or 0
	role   bus.Role
	chat   string // the direct chat, for an owner
	before string // the earlier id of the group
	group  GroupState
	since  int64 // when the account left the group, in milliseconds; undefined in other states
}

// A cachedProfile is a profile with the time at which it was read.
type cachedProfile struct {
	profile
	at time.Time
}

// lookUp returns the profile of a writer, which is at most maxAge old. It reads single profiles,
// because some gateways know thousands of people.
func (g *Gate) lookUp(q store.Queryer, w writer, maxAge time.Duration) (profile, error) {
	g.mu.Lock()
	now := g.now()
	if age := now.Sub(g.profilesSince); age < 0 || age >= profileAge {
		g.profiles, g.profilesSince = make(map[writer]cachedProfile), now
		g.generation++
	}
	generation := g.generation
	who, ok := g.profiles[w]
	g.mu.Unlock()
	if ok && now.Sub(who.at) < maxAge {
		return who.profile, nil
	}
	found, err := g.readProfile(q, w)
	if err != nil {
		return profile{}, err
	}
	if _, ok := q.(*store.Tx); ok {
		return found, nil // q may see uncommitted rows
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.generation == generation { // otherwise the profile may be older than a change
		g.profiles[w] = cachedProfile{found, now}
	}
	return found, nil
}

// Invalidate makes the gate read all profiles again after a change of people or roles.
func (g *Gate) Invalidate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.profiles = make(map[writer]cachedProfile)
	g.generation++
}

// readProfile reads the profile of a writer from the tables, in one query.
func (g *Gate) readProfile(q store.Queryer, w writer) (who profile, err error) {
	var former string
	err = q.QueryRow(`SELECT COALESCE(p.id, 0), COALESCE(p.role, ''), COALESCE(i.chat, ''),
			COALESCE(i.former, ''), COALESCE(m.before, ''), COALESCE(k.state, b.state, ''),
			COALESCE(k.since_ms, b.since_ms, 0)
		FROM (SELECT CAST($1 AS TEXT) AS account, CAST($2 AS TEXT) AS chat) a
		LEFT JOIN identities i ON i.account = a.account AND i.sender = $3
		LEFT JOIN people p ON p.id = i.person
		LEFT JOIN moves m ON m.account = a.account AND m.chat = a.chat
		LEFT JOIN known_groups k ON k.account = a.account AND k.chat = a.chat
		LEFT JOIN known_groups b ON b.account = a.account AND b.chat = m.before`,
		w.account, w.chat, w.sender).
		Scan(&who.person, &who.role, &who.chat, &former, &who.before, &who.group, &who.since)
	if err != nil {
		return profile{}, fmt.Errorf("gate: read the profile of a sender: %w", err)
	}
	who.former = linkedFrom(former, who.person)
	if who.person == 0 {
		who.role, who.chat = "", ""
	} else if !who.role.Valid() { // a person with a damaged row is a stranger
		g.log.Error("person has an unknown role and is not admitted",
			"person", who.person, "role", string(who.role))
		who.person, who.role, who.chat = 0, "", ""
	}
	return who, nil
}

// expire makes the next lookUp read all profiles again.
func (g *Gate) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.profilesSince = time.Time{}
}

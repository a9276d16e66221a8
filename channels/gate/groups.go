package gate

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// Groups is the table of the owners' decisions about groups. It has no state of its own.
type Groups struct{}

// A GroupState is a decision about a group.
type GroupState string

// The states of a group. A group without a state is treated as configured.
const (
	GroupAsked   GroupState = "asked"   // owners were asked
	GroupMention GroupState = "mention" // the agent answers messages that address it
	GroupAlways  GroupState = "always"  // the agent answers all messages
	GroupIgnored GroupState = "ignore"  // the agent ignores it
	GroupLeaving GroupState = "leaving" // the account leaves it; until then the agent ignores it
	GroupLeft    GroupState = "left"    // the account has left it; if it is back, it is a new group

	// What people have chosen within a group that only the configuration admits.
	GroupListedMention GroupState = "mention if listed"
	GroupListedAlways  GroupState = "always if listed"
)

// Answers reports whether the agent answers in a group of this state even if the configuration does
// not list it.
func (s GroupState) Answers() bool { return s == GroupMention || s == GroupAlways }

// always reports whether the agent answers all messages of an admitted group. otherwise is the
// result for a group without a choice.
func (s GroupState) always(otherwise bool) bool {
	switch s {
	case GroupAlways, GroupListedAlways:
		return true
	case GroupMention, GroupListedMention:
		return false
	}
	return otherwise
}

// A Group is a group about which owners were asked or have decided.
type Group struct {
	ID      int64 // the gateway's number for it
	Account string
	Chat    string // platform's id
	Title   string
	State   GroupState
}

// Is reports whether g is the group at an address.
func (g *Group) Is(a bus.Address) bool { return g.Account == a.Account && g.Chat == a.Chat }

// ErrNoGroup reports that no group has this number.
var ErrNoGroup = errors.New("no group has this number")

// List returns the groups, earliest first.
func (Groups) List(q store.Queryer) ([]Group, error) {
	return store.Collect(q, "gate: read groups", func(scan store.Scan, g *Group) error {
		return scan(&g.ID, &g.Account, &g.Chat, &g.Title, &g.State)
	}, "SELECT id, account, chat, title, state FROM known_groups ORDER BY id")
}

// Decide stores the decision about a group and returns the group as it was before. It reports
// [ErrNoGroup].
func (Groups) Decide(tx *store.Tx, id int64, s GroupState) (before Group, err error) {
	before.ID = id
	err = tx.QueryRow("SELECT account, chat, title, state FROM known_groups WHERE id = $1", id).
		Scan(&before.Account, &before.Chat, &before.Title, &before.State)
	if errors.Is(err, sql.ErrNoRows) {
		return before, ErrNoGroup
	}
	if err == nil {
		_, err = tx.Exec("UPDATE known_groups SET state = $2 WHERE id = $1", id, string(s))
	}
	return before, store.Wrap(err, "gate: decide on group %d", id)
}

// Activate stores which messages the agent answers in a group: g.State is GroupMention or
// GroupAlways. It does not admit a group that is answered only because the configuration lists it.
// It stores nothing and reports false if the account leaves the group or has left it.
func (groups Groups) Activate(tx *store.Tx, g Group, now time.Time) (bool, error) {
	before, err := groups.state(tx, g.Account, g.Chat)
	if err != nil || before == GroupLeaving || before == GroupLeft {
		return false, err
	}
	if !before.Answers() {
		g.State = map[GroupState]GroupState{GroupMention: GroupListedMention,
			GroupAlways: GroupListedAlways}[g.State]
	}
	return true, groups.Set(tx, g, now)
}

// Set stores the decision about a group, which may be unknown so far.
func (groups Groups) Set(tx *store.Tx, g Group, now time.Time) error {
	key, err := groups.key(tx, g.Account, g.Chat)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO known_groups (account, chat, title, state, since_ms)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account, chat)
		DO UPDATE SET state = excluded.state, since_ms = excluded.since_ms`,
		g.Account, key, g.Title, string(g.State), now.UnixMilli())
	return store.Wrap(err, "gate: decide on group %s of %s", g.Chat, g.Account)
}

// state returns what owners have decided about a group, or "" for nothing.
func (groups Groups) state(q store.Queryer, account, chat string) (s GroupState, err error) {
	key, err := groups.key(q, account, chat)
	if err != nil {
		return "", err
	}
	err = q.QueryRow("SELECT state FROM known_groups WHERE account = $1 AND chat = $2",
		account, key).Scan(&s)
	return s, store.Wrap(store.Optional(err), "gate: read groups")
}

// decideJoined returns the messages of a batch that stand for unlisted groups about which owners
// may be asked.
func (in *intake) decideJoined(q store.Queryer, b channels.Batch) (kept []decided, err error) {
	for _, m := range b.Joined {
		_, v, err := in.gate.decide(q, in.gate.policy(in.account), &m, b.Migrated, profileAge)
		if err != nil {
			return nil, err
		}
		if v == unlisted && in.mayAsk(m.From) {
			kept = append(kept, decided{m, v, false, false, func() {}})
		}
	}
	return kept, nil
}

// maxAsked is the maximum number of groups of an account that wait for a decision. The gate does
// not ask about more, because strangers may add a bot to any number of groups.
const maxAsked = 5

// askGroup asks the owners whose direct chats with the account are known what to do in the unlisted
// group of m. It asks once. If an owner has written m, the gate replies in the group, too.
func (g *Gate) askGroup(tx *store.Tx, m bus.InboundMessage, now time.Time) error {
	if m.Role == bus.Owner {
		err := g.outbox.Put(tx, notice(m, "I don't answer in this group yet. `/group`, in our direct "+
			"chat, shows what I can do here."), now)
		if err != nil {
			return err
		}
	}
	owners, err := g.people.owners(tx, m.From.Account)
	if err != nil || len(owners) == 0 && m.Role != bus.Owner {
		return err
	}
	key, err := Groups{}.key(tx, m.From.Account, m.From.Chat)
	if err != nil {
		return err
	}
	var asked, known int
	err = tx.QueryRow(`SELECT count(CASE WHEN state = 'asked' THEN 1 END),
		count(CASE WHEN chat = $2 AND state <> 'left' THEN 1 END) FROM known_groups WHERE account = $1`,
		m.From.Account, key).Scan(&asked, &known)
	if err != nil || known > 0 || asked >= maxAsked && m.Role != bus.Owner {
		return err
	}
	var id int64
	err = tx.QueryRow(`INSERT INTO known_groups (account, chat, title, state, since_ms)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account, chat)
		DO UPDATE SET state = excluded.state, since_ms = excluded.since_ms RETURNING id`,
		m.From.Account, key, m.ChatTitle, string(GroupAsked), now.UnixMilli()).Scan(&id)
	if err != nil {
		return fmt.Errorf("gate: ask about group %s: %w", m.From, err)
	}
	name := "a group"
	if m.ChatTitle != "" {
		name = "the group " + markup.Literal(m.ChatTitle)
	}
	does := "writes to me in"
	if m.ID == "" {
		does = "has added me to"
	}
	return tell(tx, g.outbox, owners, bus.OutboundMessage{
		Text: fmt.Sprintf("%s %s %s (id `%s`), which is not listed. What should I do there?",
			markup.Literal(channels.SenderName(m.Sender)), does, name, m.From.Chat),
		Buttons: GroupButtons(id)}, now)
}

// GroupButtons returns the buttons with which an admin decides about a group.
func GroupButtons(id int64) []bus.Button {
	return []bus.Button{
		{Label: "Answer when mentioned", Text: fmt.Sprintf("/group mention %d", id)},
		{Label: "Answer everything", Text: fmt.Sprintf("/group always %d", id)},
		{Label: "Ignore it", Text: fmt.Sprintf("/group ignore %d", id)},
		{Label: "Leave it", Text: fmt.Sprintf("/group leave %d", id)},
	}
}

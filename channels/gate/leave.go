package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// The decision to leave a group is a message of the outbox, and the router carries it out. So it is
// retried like any other message until the platform confirms or refuses it, also after a restart.

// StartLeaving stores that an account leaves groups, and returns how many messages to them it has
// dropped. groups is one group, or all groups on the server that the account leaves. StartLeaving
// sets the Chats and Before of l; the caller sets the other fields.
func (g *Gate) StartLeaving(tx *store.Tx, groups []Group, l bus.Leave) (dropped int64, err error) {
	for i := range groups { // this decision replaces earlier ones about the same groups
		if _, err := g.CancelLeaving(tx, groups[i]); err != nil {
			return 0, err
		}
	}
	now := g.now()
	newest, err := g.outbox.Newest(tx)
	l.Before = make(map[string]string)
	for i := 0; i < len(groups) && err == nil; i++ {
		left := groups[i]
		l.Chats = append(l.Chats, left.Chat)
		var before GroupState
		before, err = Groups{}.state(tx, left.Account, left.Chat)
		if before != "" && before != GroupLeaving {
			l.Before[left.Chat] = string(before)
		}
		left.State = GroupLeaving
		if err == nil {
			err = Groups{}.Set(tx, left, now)
		}
		if err == nil {
			var n int64
			n, err = dropAll(tx, left, newest)
			dropped += n
		}
	}
	if err != nil {
		return 0, err
	}
	tx.After(g.Invalidate)
	return dropped, g.outbox.Put(tx, bus.OutboundMessage{To: groups[0].address(), Leave: &l}, now)
}

// dropAll is like [bus.Outbox.DropAll], for all ids of a group.
func dropAll(tx *store.Tx, group Group, upTo int64) (dropped int64, err error) {
	ids, err := Groups{}.ids(tx, group.Account, group.Chat)
	for i := 0; i < len(ids) && err == nil; i++ {
		var n int64
		a := bus.Address{Account: group.Account, Chat: ids[i]}
		n, err = bus.NewOutbox().DropAll(tx, a, upTo)
		dropped += n
	}
	return dropped, err
}

// Leaving returns the decisions to leave a group, or its server, that are still to be carried out.
func (g *Gate) Leaving(q store.Queryer, group Group) ([]bus.Delivery, error) {
	return leaving(q, group.Account, group.Chat)
}

func leaving(q store.Queryer, account, chat string) ([]bus.Delivery, error) {
	list, err := bus.OpenLeaves(q, account)
	if _, ok := store.RowErrors(err); !ok {
		return nil, err
	}
	ids, err := Groups{}.ids(q, account, chat)
	return slices.DeleteFunc(list, func(d bus.Delivery) bool {
		return !slices.ContainsFunc(d.Message.Leave.Chats, func(left string) bool {
			return slices.Contains(ids, left)
		})
	}), err
}

// CancelLeaving drops the decisions to leave a group or its server, and returns them. A returned
// decision in state [bus.Sending] may have been carried out.
func (g *Gate) CancelLeaving(tx *store.Tx, group Group) ([]bus.Delivery, error) {
	list, err := g.Leaving(tx, group)
	for i := 0; i < len(list) && err == nil; i++ {
		_, err = DropDelivery(tx, list[i].ID, g.now())
	}
	tx.After(g.Invalidate)
	return list, err
}

// DropDelivery is like [bus.Outbox.Drop]. If the delivery was still to leave groups, they become
// what they were before.
func DropDelivery(tx *store.Tx, id int64, now time.Time) (int64, error) {
	d, err := bus.FindDelivery(tx, id)
	if _, ok := store.RowErrors(err); !ok {
		return 0, err
	}
	n, err := bus.NewOutbox().Drop(tx, id, now)
	if err != nil || d == nil || d.Message.Leave == nil || d.State != bus.Waiting &&
		d.State != bus.Sending {
		return n, err
	}
	for _, chat := range d.Message.Leave.Chats {
		err := restore(tx, d.Message.To.Account, chat, d.Message.Leave.Before[chat])
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// restore sets the state of a group that an account no longer leaves to before, the state before
// that decision. If before is "", it deletes the state.
func restore(tx *store.Tx, account, chat, before string) error {
	others, err := leaving(tx, account, chat)
	if err != nil || len(others) > 0 {
		return err
	}
	key, err := Groups{}.key(tx, account, chat)
	if err != nil {
		return err
	}
	query, args := "DELETE FROM known_groups", []any{account, key, string(GroupLeaving)}
	if before != "" {
		query, args = "UPDATE known_groups SET state = $4", append(args, before)
	}
	_, err = tx.Exec(query+" WHERE account = $1 AND chat = $2 AND state = $3", args...)
	return store.Wrap(err, "gate: stay in group %s of %s", chat, account)
}

// Leave stores that an account has left a group or could not, and tells the people who decided
// that.
func (g *Gate) Leave(tx *store.Tx, d *bus.Delivery) error {
	l, account := d.Message.Leave, d.Message.To.Account
	state, text, answers := GroupLeft, "I have left "+l.Name+".", g.IsConfigured
	if d.State != bus.Sent {
		state, answers = GroupIgnored, g.Names
		text = fmt.Sprintf("I could not leave %s: %s.\n\nPlease remove me there yourself. Until then "+
			"I ignore it. `gateway outbox retry %d` on the machine tries again to leave it.",
			l.Name, markup.Literal(channels.Refusal(d.Error)), d.ID)
	}
	var listed []string
	for _, chat := range l.Chats {
		err := Groups{}.Set(tx, Group{Account: account, Chat: chat, State: state}, g.now())
		if err != nil {
			return err
		}
		if answers(account, chat) {
			listed = append(listed, chat)
		}
	}
	tx.After(g.Invalidate)
	if len(listed) > 0 {
		text += " " + StillListedText(listed...)
	}
	return tell(tx, g.outbox, l.Tell, bus.OutboundMessage{Text: text, Notice: true}, g.now())
}

// StillListedText tells people that the configuration goes on listing chats that an account leaves.
func StillListedText(chats ...string) string {
	return "The configuration still lists `" + strings.Join(chats, "`, `") +
		"`: I answer there whenever I am a member. See `groups`."
}

// HasLeft reports whether an account leaves a chat or has left it.
func (g *Gate) HasLeft(q store.Queryer, a bus.Address) (bool, error) {
	s, err := Groups{}.state(q, a.Account, a.Chat)
	return s == GroupLeaving || s == GroupLeft, err
}

// IsConfigured reports whether the configuration admits a group about which owners have decided
// nothing.
func (g *Gate) IsConfigured(account, chat string) bool {
	p := g.policy(account)
	m := bus.InboundMessage{From: bus.Address{Account: account, Chat: chat}, Addressed: true}
	m.PreviousChat = g.PreviousID(m.From)
	return p.decideGroup(&m, "") == admitted
}

func (g *Group) address() bus.Address { return bus.Address{Account: g.Account, Chat: g.Chat} }

// forget deletes the decision about a group that the account has left, because it is back.
func (groups Groups) forget(tx *store.Tx, a bus.Address) error {
	key, err := groups.key(tx, a.Account, a.Chat)
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM known_groups WHERE account = $1 AND chat = $2 AND state = $3",
		a.Account, key, string(GroupLeft))
	return store.Wrap(err, "gate: forget that %s was left", a)
}

package gate

import (
	"fmt"
	"strings"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// The router carries the decision to leave a group out: it is a message of the outbox. So it is
// retried like any other until the platform confirms or refuses, also after a restart.

// StartLeaving stores that an account leaves groups, and returns how many messages to them it has
// dropped. All of them are on the server that is left, or it is one group. l is complete but for
// its Chats.
func (g *Gate) StartLeaving(tx *store.Tx, groups []Group, l bus.Leave) (dropped int64, err error) {
	now := g.now()
	newest, err := g.outbox.Newest(tx)
	for i := 0; i < len(groups) && err == nil; i++ {
		left := groups[i]
		left.State = GroupLeaving
		l.Chats = append(l.Chats, left.Chat)
		if err = (Groups{}).Set(tx, left, now); err == nil {
			var n int64
			n, err = g.outbox.DropAll(tx, left.address(), newest)
			dropped += n
		}
	}
	if err != nil {
		return 0, err
	}
	tx.After(g.Invalidate)
	return dropped, g.outbox.Put(tx, bus.OutboundMessage{To: groups[0].address(), Leave: &l}, now)
}

// Stay drops the decision to leave a group, as far as that is still possible.
func (g *Gate) Stay(tx *store.Tx, group Group) error {
	newest, err := g.outbox.Newest(tx)
	if err == nil {
		_, err = g.outbox.DropAll(tx, group.address(), newest)
	}
	return err
}

// Leave stores that an account has left a group or could not, and tells the people who decided
// that.
func (g *Gate) Leave(tx *store.Tx, d *bus.Delivery) error {
	l, account := d.Message.Leave, d.Message.To.Account
	state, text, answers := GroupLeft, "I have left "+l.Name+".", g.Lists
	if d.State != bus.Sent {
		state, answers = GroupIgnored, g.Names
		text = fmt.Sprintf("I could not leave %s: %s.\n\nPlease remove me there yourself. Until then "+
			"I ignore it. `gateway outbox retry %d` on the machine tries again to leave it.",
			l.Name, markup.Literal(channels.Refusal(d.Error)), d.ID)
	}
	var listed []string
	for _, chat := range l.Chats {
		_, err := tx.Exec("UPDATE known_groups SET state = $3, since_ms = $4 "+
			"WHERE account = $1 AND chat = $2", account, chat, string(state), g.now().UnixMilli())
		if err != nil {
			return fmt.Errorf("gate: leave group %s of %s: %w", chat, account, err)
		}
		if answers(account, chat) {
			listed = append(listed, chat)
		}
	}
	tx.After(g.Invalidate)
	if len(listed) > 0 {
		text += " " + SayListed(listed...)
	}
	for _, to := range l.Tell {
		err := g.outbox.Put(tx, bus.OutboundMessage{To: to, Text: text, Notice: true}, g.now())
		if err != nil {
			return err
		}
	}
	return nil
}

// SayListed tells people that the configuration goes on listing chats that an account leaves.
func SayListed(chats ...string) string {
	return "The configuration still lists `" + strings.Join(chats, "`, `") +
		"`: I answer there whenever I am a member. See `groups`."
}

// HasLeft reports whether an account leaves a chat or has left it.
func (g *Gate) HasLeft(q store.Queryer, a bus.Address) (bool, error) {
	s, err := Groups{}.state(q, a.Account, a.Chat)
	return s == GroupLeaving || s == GroupLeft, err
}

// Lists reports whether the configuration admits a group about which owners have decided nothing.
func (g *Gate) Lists(account, chat string) bool {
	p := g.policy(account)
	m := bus.InboundMessage{From: bus.Address{Account: account, Chat: chat}, Addressed: true}
	return p.decideGroup(&m, "") == admitted
}

func (g *Group) address() bus.Address { return bus.Address{Account: g.Account, Chat: g.Chat} }

// forget deletes the decision about a group that the account has left, because it is back.
func (Groups) forget(tx *store.Tx, a bus.Address) error {
	_, err := tx.Exec("DELETE FROM known_groups WHERE account = $1 AND chat = $2 AND state = $3",
		a.Account, a.Chat, string(GroupLeft))
	return store.Wrap(err, "gate: forget that %s was left", a)
}

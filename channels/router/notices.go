package router

import (
	"context"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// noticeTerm is the minimum time between two notices about a chat.
const noticeTerm = 24 * time.Hour

// notices tells people that a message was given up.
type notices struct {
	db       *store.DB
	outbox   *bus.Outbox
	owners   Owners
	groups   Groups
	accounts map[string]*account
	now      func() time.Time
}

// forGivenUp returns the messages that report that d was given up: one to each owner, in another
// chat than d's, and one to the person whom d answers. A notice that can't be delivered is dropped,
// so notices never cause further notices.
func (n *notices) forGivenUp(ctx context.Context, d *bus.Delivery) ([]bus.OutboundMessage, error) {
	q, now := n.db.Read(context.WithoutCancel(ctx)), n.now()
	var told bool // not at a time that is still to come: the clock was set back
	err := q.QueryRow(`SELECT count(*) > 0 FROM notices
		WHERE account = $1 AND chat = $2 AND told_ms > $3 AND told_ms <= $4`, d.Message.To.Account,
		d.Message.To.Chat, now.Add(-noticeTerm).UnixMilli(), now.UnixMilli()).Scan(&told)
	if err != nil {
		return nil, fmt.Errorf("router: read notices: %w", err)
	}
	if told {
		return nil, nil
	}
	asked, err := n.question(q, d)
	if err != nil {
		return nil, err
	}
	// A message to an account that was removed from the configuration would wait for ever.
	served := func(account string) bool { return n.accounts[account] != nil }
	owners, err := n.owners.OwnersBeside(q, d.Message.To, served)
	if err != nil {
		return nil, err
	}
	var list []bus.OutboundMessage
	for _, to := range owners {
		list = append(list, bus.OutboundMessage{To: to, Notice: true, Text: givenUpText(d, asked)})
	}
	if asked == nil {
		return list, nil
	}
	to, err := n.replyAddress(q, asked)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		if n.To == to {
			return list, nil // the person who asked is an owner
		}
	}
	return append(list, bus.OutboundMessage{To: to, Notice: true,
		Text: noAnswerText(asked, len(list) > 0)}), nil
}

// question returns the first message that d answers, or nil if the inbox no longer has it.
func (n *notices) question(q store.Queryer, d *bus.Delivery) (*bus.InboundMessage, error) {
	for _, id := range d.Message.Answers {
		m, ok, err := bus.FindMessage(q, d.Message.To, id)
		if err != nil {
			return nil, err
		}
		if ok && m.Origin.Kind == bus.Person {
			return &m, nil
		}
	}
	return nil, nil
}

// replyAddress returns where to tell the sender of m that the answer failed: a direct chat if there
// is one, otherwise the chat of m, which may have refused only that answer.
func (n *notices) replyAddress(q store.Queryer, m *bus.InboundMessage) (bus.Address, error) {
	if m.Person == 0 {
		return m.From, nil
	}
	chats, err := bus.ChatsOf(q, m.Person)
	if err != nil {
		return bus.Address{}, err
	}
	to := m.From
	for _, chat := range chats {
		if _, ok := n.accounts[chat.Account]; !ok || chat.Chat == m.From.Chat {
			continue
		}
		if to = chat; chat.Account == m.From.Account {
			break
		}
	}
	return to, nil
}

// put puts notices about a chat into the outbox, unless it did so within noticeTerm.
func (n *notices) put(tx *store.Tx, to bus.Address, list []bus.OutboundMessage) error {
	if len(list) == 0 {
		return nil
	}
	now := n.now()
	_, err := tx.Exec("DELETE FROM notices WHERE told_ms <= $1 OR told_ms > $2",
		now.Add(-noticeTerm).UnixMilli(), now.UnixMilli())
	if err != nil {
		return fmt.Errorf("router: record a notice: %w", err)
	}
	added, err := tx.Exec(`INSERT INTO notices (account, chat, told_ms) VALUES ($1, $2, $3)
		ON CONFLICT (account, chat) DO NOTHING`, to.Account, to.Chat, now.UnixMilli())
	if err != nil {
		return fmt.Errorf("router: record a notice: %w", err)
	}
	for _, m := range list {
		if added == 0 {
			break
		}
		if err := n.outbox.Put(tx, m, now); err != nil {
			return err
		}
	}
	return nil
}

// givenUpText returns the text that tells an owner that d was given up.
func givenUpText(d *bus.Delivery, asked *bus.InboundMessage) string {
	what, where := "a message", d.Message.To.String()
	if asked != nil {
		what = "an answer to " + markup.Literal(channels.SenderName(asked.Sender))
		if title := channels.Clean(asked.ChatTitle, channels.MaxName); title != "" {
			where = markup.Literal(title) + " on " + d.Message.To.Account
		}
	}
	return fmt.Sprintf("I could not deliver %s in %s: %s.\n\nOnce you have fixed that, "+
		"`gateway outbox retry %d` on the machine sends it again, and `gateway outbox list` shows "+
		"what else was given up. I will not report this chat again for a day.",
		what, where, markup.Literal(channels.Refusal(d.Error)), d.ID)
}

// noAnswerText returns the text that tells the sender of m that there will be no answer.
func noAnswerText(m *bus.InboundMessage, told bool) string {
	where := ""
	if title := channels.Clean(m.ChatTitle, channels.MaxName); title != "" {
		where = " in " + markup.Literal(title)
	}
	text := "I could not deliver my answer to your message" + where + "."
	if told {
		text += " The owner of this gateway has been told why."
	}
	return text
}

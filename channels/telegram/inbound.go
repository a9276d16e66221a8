package telegram

import (
	"strconv"
	"strings"
	"time"

	"gateway/bus"
)

// inbound translates m. It reports false for what no person wrote to the bot: posts of
// channels and bots, anonymous administrators, service messages, commands for another bot.
func (c *Channel) inbound(me user, m *message) (bus.InboundMessage, bool) {
	group := m.Chat.Type == "group" || m.Chat.Type == "supergroup"
	if !group && m.Chat.Type != "private" || m.From == nil || m.From.Bot || m.SenderChat != nil {
		return bus.InboundMessage{}, false
	}
	text, ok := m.content()
	if !ok {
		return bus.InboundMessage{}, false
	}
	said := me.read(text, m.entities())
	if group && said.forOther {
		return bus.InboundMessage{}, false
	}
	in := bus.InboundMessage{
		ID:        strconv.FormatInt(m.ID, 10),
		From:      bus.Address{Account: c.name, Chat: strconv.FormatInt(m.Chat.ID, 10)},
		Sender:    m.From.sender(),
		Text:      m.label(said.text),
		Time:      time.Unix(m.Date, 0).UTC(),
		Group:     group,
		Forwarded: m.Origin.name(),
		ReplyTo:   m.quoted(me),
	}
	if m.InTopic && m.Thread != 0 { // the id alone also marks mere chains of replies
		in.From.Thread = strconv.FormatInt(m.Thread, 10)
	}
	if group {
		in.ChatTitle = clean(m.Chat.Title, maxName)
	}
	in.Addressed = !group || said.forUs || in.ReplyTo != nil && in.ReplyTo.Ours
	return in, true
}

func (u *user) sender() bus.Sender {
	return bus.Sender{
		ID:       strconv.FormatInt(u.ID, 10),
		Name:     u.name(),
		Username: clean(u.Username, maxName),
	}
}

func (u *user) name() string { return clean(u.First+" "+u.Last, maxName) }

// name returns who wrote a forwarded message first, or "" if it is not forwarded.
func (o *origin) name() string {
	switch {
	case o == nil:
		return ""
	case o.User != nil:
		return o.User.name()
	case o.SenderChat != nil:
		return clean(o.SenderChat.Title, maxName)
	case o.Chat != nil:
		return clean(o.Chat.Title, maxName)
	}
	return clean(o.UserName, maxName)
}

// quoted returns the message that m replies to, or nil.
func (m *message) quoted(me user) *bus.Quote {
	r := m.ReplyTo
	if r == nil {
		if m.External == nil || m.Quote == nil {
			return nil
		}
		return &bus.Quote{ // of a message in another chat
			ID:     strconv.FormatInt(m.External.ID, 10),
			Sender: m.External.Origin.name(), Text: m.Quote.Text,
		}
	}
	if r.TopicCreated != nil || m.InTopic && r.ID == m.Thread {
		return nil // every message of a topic that is no reply points to the topic's beginning
	}
	q := &bus.Quote{ID: strconv.FormatInt(r.ID, 10)}
	if text, ok := r.content(); ok {
		q.Text = r.label(text)
	}
	if m.Quote != nil {
		q.Text = m.Quote.Text // the part that the person chose
	}
	switch {
	case r.SenderChat != nil:
		q.Sender = clean(r.SenderChat.Title, maxName)
	case r.From != nil:
		q.Sender = r.From.name()
		q.Ours = r.From.ID == me.ID
	}
	return q
}

// A reading is what a text says and for whom.
type reading struct {
	text     string // without mentions of the bot
	forUs    bool   // it mentions the bot, or begins with a command that may be for it
	forOther bool   // it begins with a command for another bot
}

// read finds out for whom text is. It removes mentions of the bot, unless nothing else is there.
func (u user) read(text string, entities []entity) reading {
	r := reading{text: text}
	// From the last to the first, so that a cut moves no offset that is still needed.
	for i := len(entities) - 1; i >= 0; i-- {
		e := entities[i]
		start, end, ok := span(r.text, e.Offset, e.Length)
		if !ok {
			continue
		}
		word := r.text[start:end]
		switch {
		case e.Type == "bot_command" && start == 0:
			command, name, named := strings.Cut(word, "@")
			r.forOther = named && !strings.EqualFold(name, u.Username)
			r.forUs = r.forUs || !r.forOther
			if !r.forOther {
				r.text = command + r.text[end:]
			}
		case e.Type == "mention" && strings.EqualFold(word, "@"+u.Username),
			e.Type == "text_mention" && e.User != nil && e.User.ID == u.ID:
			r.forUs = true
			r.text = without(r.text, start, end)
		}
	}
	if r.text == "" {
		r.text = text
	}
	return r
}

// without returns s without the mention s[start:end] and the blanks and comma around it.
func without(s string, start, end int) string {
	left, right := s[:start], s[end:]
	if strings.TrimSpace(left) == "" {
		return strings.TrimLeft(right, " \t\n,:;")
	}
	if strings.HasSuffix(left, "\n") {
		return left + strings.TrimLeft(right, " ")
	}
	return strings.TrimRight(left, " ") + right
}

package telegram

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// inbound translates m. It returns false if m is not from a person to the bot: posts of channels
// and bots, anonymous administrators, service messages, commands for another bot.
func (r *receiver) inbound(m *message) (bus.InboundMessage, bool) {
	if !m.Chat.read() || m.From == nil || m.From.Bot || m.SenderChat != nil {
		return bus.InboundMessage{}, false
	}
	text, entities := m.written()
	if text == "" && m.media.name() == "" { // a service message
		return bus.InboundMessage{}, false
	}
	parsed := r.me.read(text, entities)
	in := envelope(r.name, m)
	if in.Group && parsed.forOther {
		return bus.InboundMessage{}, false
	}
	in.ID = strconv.FormatInt(m.ID, 10)
	in.Sender = m.From.sender()
	in.Text = parsed.text
	in.Time = time.Unix(m.Date, 0).UTC()
	in.Forwarded = m.Origin.name()
	in.ReplyTo = m.quoted(r.me)
	in.Album = m.Album
	in.Attachments = append(m.attachments(), m.Rich.files()...)
	// A file that can be fetched is an attachment. Anything else must show in the text.
	if in.Attachments == nil {
		in.Text = m.label(parsed.text)
	}
	// In a group a message is for the bot if it mentions the bot, is a command, or replies to the
	// bot.
	in.Addressed = !in.Group || parsed.forUs || in.ReplyTo != nil && in.ReplyTo.Ours
	return in, true
}

// maxEditAge is the maximum age of an edit. Telegram keeps updates for a day, and the gateway
// recognises a repeated message for two days at least: see edited.
const maxEditAge = 48 * time.Hour

// edited translates an edited message. It returns false if the edit has no text: a live location is
// edited when it moves, for example. A replaced file is ignored.
func (r *receiver) edited(m *message) (bus.InboundMessage, bool) {
	if text, _ := m.written(); text == "" || time.Since(time.Unix(m.EditDate, 0)) > maxEditAge {
		return bus.InboundMessage{}, false
	}
	in, ok := r.inbound(m)
	if !ok {
		return bus.InboundMessage{}, false
	}
	in.Edits = in.ID
	// A message may be edited several times per second. Telegram also reports other changes of an
	// edited message, such as a reaction, with the time of the last edit. So equal texts of one time
	// are one edit, whatever the update's id: see
	// https://github.com/tdlib/telegram-bot-api/issues/773.
	h := fnv.New64a()
	_, _ = h.Write([]byte(in.Text)) // it never fails
	in.ID += bus.EditMark + strconv.FormatInt(m.EditDate, 10) + "." +
		strconv.FormatUint(h.Sum64(), 36)
	in.Time = time.Unix(m.EditDate, 0).UTC()
	// The file belongs to the original message, which is stored already.
	in.Album, in.Attachments = "", nil
	return in, true
}

// envelope returns a message with the conversation of m, which is one of the account.
func envelope(account string, m *message) bus.InboundMessage {
	in := bus.InboundMessage{
		From:  bus.Address{Account: account, Chat: strconv.FormatInt(m.Chat.ID, 10)},
		Group: m.Chat.Type != "private",
	}
	if m.InTopic && m.Thread != 0 { // the id alone also marks mere chains of replies
		in.From.Thread = strconv.FormatInt(m.Thread, 10)
	}
	if in.Group {
		in.ChatTitle = channels.Clean(m.Chat.Title, channels.MaxName)
	}
	return in
}

// read reports whether the gateway reads messages in c. It does not read channels, or what people
// write to a channel: these people don't see each other's messages, as members of a group do.
func (c *chat) read() bool {
	return c.Type == "private" || !c.Direct && (c.Type == "group" || c.Type == "supergroup")
}

func (u *user) sender() bus.Sender {
	return bus.Sender{
		ID:       strconv.FormatInt(u.ID, 10),
		Name:     u.name(),
		Username: channels.Clean(u.Username, channels.MaxName),
	}
}

func (u *user) name() string { return channels.Clean(u.First+" "+u.Last, channels.MaxName) }

// name returns the first author of a forwarded message, or "" if the message is not forwarded.
func (o *origin) name() string {
	if o == nil {
		return ""
	}
	name := channels.Clean(o.UserName, channels.MaxName)
	switch {
	case o.User != nil:
		name = o.User.name()
	case o.SenderChat != nil:
		name = channels.Clean(o.SenderChat.Title, channels.MaxName)
	case o.Chat != nil:
		name = channels.Clean(o.Chat.Title, channels.MaxName)
	}
	// A name of invisible characters becomes "", but the message is still a forwarded one.
	return cmp.Or(name, "somebody")
}

// quoted returns the message that m replies to, or nil.
func (m *message) quoted(me user) *bus.Quote {
	r := m.ReplyTo
	if r == nil {
		return m.quotedElsewhere()
	}
	if r.TopicCreated != nil || m.InTopic && r.ID == m.Thread {
		return nil // messages of a topic point to the topic's first message even if they are no replies
	}
	q := &bus.Quote{ID: strconv.FormatInt(r.ID, 10),
		Attachments: append(r.attachments(), r.Rich.files()...)}
	text := r.text() // "" for a service message
	if m.Quote != nil {
		text = m.Quote.text() // the part that the person selected
	}
	q.Text = r.label(text)
	switch {
	// A message in the name of a chat may also have a From, which is not its author.
	case r.SenderChat != nil:
		q.Sender = channels.Clean(r.SenderChat.Title, channels.MaxName)
	case r.From != nil:
		q.Sender = r.From.name()
		q.Ours = r.From.ID == me.ID
	}
	return q
}

// quotedElsewhere returns a quote of a message in another chat, or nil.
func (m *message) quotedElsewhere() *bus.Quote {
	e := m.External
	if e == nil || m.Quote == nil && e.name() == "" {
		return nil
	}
	q := &bus.Quote{
		ID: strconv.FormatInt(e.ID, 10), Sender: e.Origin.name(), Attachments: e.attachments(),
	}
	if m.Quote != nil {
		q.Text = m.Quote.text()
	}
	q.Text = e.label(q.Text)
	return q
}

// A parsedText is the result of reading a text: what it says, and to whom.
type parsedText struct {
	text     string // without mentions of the bot, and with the addresses of links
	forUs    bool   // it mentions the bot, or begins with a command that may be for it
	forOther bool   // it begins with a command for another bot
}

// read determines whom text is for. It removes mentions of the bot unless there is nothing else. It
// adds the addresses of links.
func (u user) read(text string, entities []entity) parsedText {
	r := parsedText{text: text}
	// Work backwards, so that removing text changes no offset that is still needed.
	for i := len(entities) - 1; i >= 0; i-- {
		e := entities[i]
		start, end, ok := span(r.text, e.Offset, e.Length)
		if !ok {
			continue
		}
		word := r.text[start:end]
		switch {
		// "/help@OtherBot" is a command for another bot. "/help" alone is for every bot in the
		// group. A command within a text is only a mention of a command.
		case e.beginsCommand():
			command, name, named := strings.Cut(word, "@")
			r.forOther = named && !strings.EqualFold(name, u.Username)
			if !r.forOther {
				r.forUs = true
				r.text = command + r.text[end:]
			}
		case e.Type == "mention" && strings.EqualFold(word, "@"+u.Username),
			e.Type == "text_mention" && e.User != nil && e.User.ID == u.ID:
			r.forUs = true
			r.text = channels.WithoutMention(r.text, start, end)
		default:
			r.text = e.withAddress(r.text)
		}
	}
	// The message consists only of mentions. An empty text would not be a message.
	if r.text == "" {
		r.text = text
	}
	return r
}

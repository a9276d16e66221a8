package discord

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
)

// maxEditAge is the maximum age of an edit. Discord reports other changes of a message, such as
// pinning, with the time of its last edit.
const maxEditAge = time.Hour

// A translator makes messages of the gateway from what Discord sends. Its methods are safe for
// concurrent use. A translator is used for one run.
type translator struct {
	account string // its name in the gateway
	me      user
	places  *directory
	texts   *recent.Map[string, uint64] // hashes of texts, by message

	// starters are the messages from which threads were made, until somebody writes there. A thread
	// is a conversation of its own, so the agent does not know them.
	starters *recent.Map[string, *message]
}

func newTranslator(account string, me user, places *directory) *translator {
	return &translator{account, me, places, recent.New[string, uint64](5000),
		recent.New[string, *message](500)}
}

// inbound translates m. It returns false if m is not a text from a person: messages of bots,
// webhooks and Discord itself, and updates that change no text.
func (t *translator) inbound(
	ctx context.Context, m *message, edit bool,
) (bus.InboundMessage, bool, error) {
	if m.Type == threadStarter {
		t.starters.Put(m.Channel, m.Quoted.message)
	}
	if !m.isFromPerson() || edit && (m.Edited == nil || time.Since(*m.Edited) > maxEditAge) {
		return bus.InboundMessage{}, false, nil
	}
	where, err := t.places.placeOf(ctx, m.Channel, m.Guild, m.live)
	if err != nil {
		return bus.InboundMessage{}, false, err
	}
	in := where.message(t.account)
	in.ID, in.Time = m.ID, madeAt(m.ID)
	in.Sender = bus.Sender{ID: m.Author.ID, Name: m.Member.name(&m.Author),
		Username: channels.Clean(m.Author.Username, channels.MaxName)}
	// This is the only look-up for the names of roles. Below, knownGuild answers from memory.
	if where.Guild != "" {
		if _, err := t.places.guild(ctx, where.Guild, m.Roles, longestLimit); err != nil {
			return bus.InboundMessage{}, false, err
		}
	}
	// The text of each message is remembered, so that a later edit can be compared with it. After
	// that nothing may fail: m is not news a second time.
	if news := t.isNews(m); edit {
		if !news {
			return bus.InboundMessage{}, false, nil
		}
		in.Edits, in.Time = m.ID, m.Edited.UTC()
		in.ID = m.ID + bus.EditMark + strconv.FormatInt(m.Edited.UnixMilli(), 10)
	}
	t.places.lookUpMentions(ctx, where, m.Content)
	// The embeds of what a person writes are previews of links, which come later.
	body, text := m.body(), m.Content
	if body != &m.content {
		text = body.written()
		in.Forwarded = "somebody" // Discord doesn't name the author
	}
	in.Text = body.label(t.vocabulary(where, body, t.me.ID).read(text))
	// A post's first message has the id of its thread. Often only the title says what it is about.
	if m.ID == where.ID && !strings.HasPrefix(in.Text, "/") {
		title := channels.Clean(where.Name, channels.MaxName)
		in.Text = strings.TrimSpace(title + "\n\n" + in.Text)
	}
	in.Attachments = body.files(m)
	in.ReplyTo = t.quote(where, t.quoted(ctx, m))
	in.Addressed = !in.Group || t.mentioned(where, body) || in.ReplyTo != nil && in.ReplyTo.Ours
	if starter, _ := t.starters.Get(m.Channel); in.ReplyTo == nil && !edit && starter != nil {
		in.ReplyTo = t.quote(where, starter)
		t.starters.Put(m.Channel, nil)
	}
	return in, true, nil
}

// isNews reports whether an edited message has a new text, as far as we remember, and remembers the
// text. The memory holds a hash of the text, for up to 5,000 messages.
func (t *translator) isNews(m *message) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.Content)) // it never fails
	before, known := t.texts.Get(m.ID)
	t.texts.Put(m.ID, h.Sum64())
	return !known || before != h.Sum64()
}

// mentioned reports whether c mentions the bot or its managed role. Discord offers that role under
// the bot's name.
func (t *translator) mentioned(where place, c *content) bool {
	g := t.places.knownGuild(where.Guild)
	return slices.ContainsFunc(c.Mentions, func(m mentioned) bool { return m.ID == t.me.ID }) ||
		g.own != "" && slices.Contains(c.Roles, g.own)
}

// vocabulary returns the names for the mentions in c. me is the id of the bot if mentions of it are
// to be removed, otherwise "".
func (t *translator) vocabulary(where place, c *content, me string) *mentionNames {
	v := &mentionNames{users: map[string]string{t.me.ID: t.me.name()}}
	for i := range c.Mentions {
		m := &c.Mentions[i]
		v.users[m.ID] = m.Member.name(&m.user)
		if m.ID == me {
			v.me = me
		}
	}
	g := t.places.knownGuild(where.Guild)
	v.roles = g.roles
	if me != "" && slices.Contains(c.Roles, g.own) {
		v.role = g.own
	}
	v.channels = func(id string) string { return t.places.channelName(id, where.Guild) }
	return v
}

// quotedTime is how long a message waits for the one to which it replies.
const quotedTime = 3 * time.Second

// quoted returns the message to which m replies, or nil. Discord does not always send it. The limit
// of look-ups is that of mentions.
func (t *translator) quoted(ctx context.Context, m *message) *message {
	r := m.Reference
	if m.Quoted.known || m.Type != replyMessage || r == nil || idNumber(r.Message) == 0 ||
		!t.places.mention.Allow() {
		return m.Quoted.message
	}
	ctx, cancel := context.WithTimeout(ctx, quotedTime)
	defer cancel()
	var q message
	in := url.PathEscape(cmp.Or(r.Channel, m.Channel))
	if t.places.c.get(ctx, discordgo.EndpointChannelMessage(in, r.Message), &q) != nil {
		return nil
	}
	return &q
}

// quote translates the message to which another one replies, or returns nil.
func (t *translator) quote(where place, m *message) *bus.Quote {
	if m == nil {
		return nil
	}
	body := m.body()
	return &bus.Quote{
		ID: m.ID, Sender: m.Author.name(), Ours: m.Author.ID == t.me.ID,
		Text:        body.label(t.vocabulary(where, body, "").read(body.written())),
		Attachments: body.files(m),
	}
}

// files returns the attachments of c, which is part of m.
func (c *content) files(m *message) []bus.Attachment {
	var files []bus.Attachment
	for i := range c.Attachments {
		a := &c.Attachments[i]
		files = append(files, bus.Attachment{
			Kind: a.kind(c.Flags), Name: a.name(),
			Type: channels.MIMEType(a.Type), Size: a.Size, Seconds: int(a.Seconds + 0.5),
			Ref: fileRef{Channel: m.Channel, Message: m.ID, ID: a.ID, URL: a.URL}.String(),
		})
	}
	return files
}

// kind returns the kind by the MIME type. flags are those of the message, which mark a voice
// message.
func (a *attachment) kind(flags int) bus.Kind {
	kind := bus.KindOf(a.Type)
	if flags&voiceFlag != 0 && kind == bus.Audio {
		return bus.Voice
	}
	return kind
}

package discord

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
)

// maxEditAge is the maximum age of an edit. Discord reports other changes of a message, such as
// pinning, with the time of its last edit.
const maxEditAge = time.Hour

// inbound translates m. It returns false if m is not a text from a person: messages of bots,
// webhooks and Discord itself, and updates that change no text.
func (f *feed) inbound(
	ctx context.Context, m *message, edit bool,
) (bus.InboundMessage, bool, error) {
	if m.ID == "" || m.Author.ID == "" || m.Author.Bot || m.Webhook != "" ||
		m.Type != plainMessage && m.Type != replyMessage ||
		edit && (m.Edited == nil || time.Since(*m.Edited) > maxEditAge) {
		return bus.InboundMessage{}, false, nil
	}
	where, err := f.placeOf(ctx, m.Channel, m.Guild, m.live)
	if err != nil {
		return bus.InboundMessage{}, false, err
	}
	in := where.message(f.c.name)
	in.ID, in.Time = m.ID, madeAt(m.ID)
	in.Sender = bus.Sender{ID: m.Author.ID, Name: m.Member.name(&m.Author),
		Username: channels.Clean(m.Author.Username, channels.MaxName)}
	if news := f.isNews(m); edit {
		if !news {
			return bus.InboundMessage{}, false, nil
		}
		in.Edits, in.Time = m.ID, m.Edited.UTC()
		in.ID = m.ID + ":e" + strconv.FormatInt(m.Edited.UnixMilli(), 10)
	}
	if where.Guild != "" {
		if _, err := f.guild(ctx, where.Guild, m.Roles); err != nil {
			return bus.InboundMessage{}, false, err
		}
	}
	f.lookUpMentions(ctx, where, m.Content)
	body := m.content
	if m.Reference != nil && m.Reference.Type == forwarded && len(m.Snapshots) > 0 {
		body = m.Snapshots[0].Message
		in.Forwarded = "somebody" // Discord doesn't name the author
	}
	in.Text = body.label(f.vocabulary(where, &body, f.me.ID).read(body.Content))
	in.Attachments = body.files(m)
	in.ReplyTo = f.quote(where, m.Quoted)
	in.Addressed = !in.Group || f.mentioned(where, &body) || in.ReplyTo != nil && in.ReplyTo.Ours
	return in, true, nil
}

// mentioned reports whether c mentions the bot or its managed role. Discord offers that role under
// the bot's name.
func (f *feed) mentioned(where place, c *content) bool {
	g, _ := f.guilds.Get(where.Guild) // the zero guild has no role
	return slices.ContainsFunc(c.Mentions, func(m mentioned) bool { return m.ID == f.me.ID }) ||
		g.own != "" && slices.Contains(c.Roles, g.own)
}

// vocabulary returns the names for the mentions in c.
func (f *feed) vocabulary(where place, c *content, me string) *mentionNames {
	v := &mentionNames{users: map[string]string{f.me.ID: f.me.name()}}
	for i := range c.Mentions {
		m := &c.Mentions[i]
		v.users[m.ID] = m.Member.name(&m.user)
		if m.ID == me {
			v.me = me
		}
	}
	if g, ok := f.guilds.Get(where.Guild); ok {
		v.roles = g.roles
		if me != "" && slices.Contains(c.Roles, g.own) {
			v.role = g.own
		}
	}
	v.channels = func(id string) string {
		p, _ := f.places.Get(id) // its name is "" if it is unknown
		if p.Guild != where.Guild {
			return "" // of another guild, whose channels may be private
		}
		return channels.Clean(p.Name, channels.MaxName)
	}
	return v
}

// channelMention matches a mention of a channel.
var channelMention = regexp.MustCompile(`<#([0-9]+)>`)

// maxLookups is the maximum number of channels to look up for one message.
const maxLookups = 5

// lookUpMentions looks up the unknown channels of a guild that a text mentions. Mentions of other
// channels keep their number.
func (f *feed) lookUpMentions(ctx context.Context, where place, text string) {
	if where.Guild == "" {
		return
	}
	for _, found := range channelMention.FindAllStringSubmatch(text, maxLookups) {
		id := found[1]
		_, known := f.places.Get(id)
		if _, hidden := f.hidden.Get(id); known || hidden {
			continue
		}
		p := place{ID: id}
		err := f.c.get(ctx, discordgo.EndpointChannel(id), &p)
		if err == nil && p.Guild == where.Guild {
			f.places.Put(id, p) // without a time, so that it is looked up again when a message arrives
		} else {
			f.hidden.Put(id, true)
		}
	}
}

// quote translates the message to which another one replies, or returns nil.
func (f *feed) quote(where place, m *message) *bus.Quote {
	if m == nil {
		return nil
	}
	return &bus.Quote{
		ID: m.ID, Sender: m.Author.name(), Ours: m.Author.ID == f.me.ID,
		Text:        m.label(f.vocabulary(where, &m.content, "").read(m.Content)),
		Attachments: m.files(m),
	}
}

// files returns the attachments of c, which is part of m.
func (c *content) files(m *message) []bus.Attachment {
	var files []bus.Attachment
	for i := range c.Attachments {
		a := &c.Attachments[i]
		kind, _, _ := strings.Cut(a.Type, ";")
		files = append(files, bus.Attachment{
			Kind: a.kind(c.Flags), Name: channels.Clean(a.Name, channels.MaxName),
			Type: channels.Clean(kind, channels.MaxName),
			Size: a.Size, Seconds: int(a.Seconds + 0.5),
			Ref: fileRef{Channel: m.Channel, Message: m.ID, ID: a.ID, URL: a.URL}.String(),
		})
	}
	return files
}

func (a *attachment) kind(flags int) bus.Kind {
	major, minor, _ := strings.Cut(a.Type, "/")
	switch {
	case flags&voiceFlag != 0 && major == "audio":
		return bus.Voice
	case major == "image" && minor == "gif":
		return bus.Animation
	case major == "image":
		return bus.Photo
	case major == "video":
		return bus.Video
	case major == "audio":
		return bus.Audio
	}
	return bus.Document
}

// A place is a channel, with what the gateway knows about it.
type place struct {
	ID     string `json:"id"`
	Type   int    `json:"type"`
	Guild  string `json:"guild_id"` // "" for a direct chat
	Name   string `json:"name"`
	Parent string `json:"parent_id"` // of a thread; of another channel, the category
	Last   string `json:"last_message_id"`

	title string // of the chat
	at    time.Time
}

// isThread reports whether p is a thread, or a post in a forum.
func (p *place) isThread() bool { return p.Type >= 10 && p.Type <= 12 }

// message returns a message from p without content.
func (p *place) message(account string) bus.InboundMessage {
	m := bus.InboundMessage{From: bus.Address{Account: account, Chat: p.ID}}
	if p.isThread() && p.Parent != "" {
		m.From.Chat, m.From.Thread = p.Parent, p.ID
	}
	m.Group, m.ChatTitle = p.Guild != "", p.title
	return m
}

// A guild is what the gateway knows about a guild.
type guild struct {
	name  string
	roles map[string]string
	own   string // the bot's managed role, or ""
	at    time.Time
}

// guildTime is how long the known roles of a guild are considered complete.
const guildTime = time.Minute

// titleTime is how long the names of channels and guilds are considered current.
const titleTime = time.Hour

// placeOf returns the place of a channel. Live events without a guild are from direct chats.
func (f *feed) placeOf(ctx context.Context, id, guild string, live bool) (place, error) {
	if live && guild == "" {
		return place{ID: id}, nil
	}
	known, ok := f.places.Get(id)
	if ok && time.Since(known.at) < titleTime {
		return known, nil
	}
	p, err := f.lookUp(ctx, id)
	switch {
	case err == nil:
	case ok && ctx.Err() == nil:
		return known, nil // the name may have changed; the rest can't
	case errors.Is(err, channels.ErrRefused):
		p = place{ID: id, Guild: guild} // the bot was removed since then
	default:
		return place{}, err
	}
	p.at = time.Now()
	f.places.Put(id, p)
	return p, nil
}

// lookUp requests a channel, and the guild and the parent channel for its title.
func (f *feed) lookUp(ctx context.Context, id string) (place, error) {
	var p place
	err := f.retry(ctx, func() error {
		address := discordgo.EndpointChannel(url.PathEscape(id))
		return f.c.get(ctx, address, &p)
	})
	if err != nil {
		return p, fmt.Errorf("look up channel %s: %w", id, err)
	}
	if p.Guild == "" {
		return p, nil
	}
	g, err := f.guild(ctx, p.Guild, nil)
	if err != nil {
		return p, err
	}
	name := p.Name
	if p.isThread() && p.Parent != "" {
		parent, err := f.placeOf(ctx, p.Parent, p.Guild, false)
		if err != nil {
			return p, err
		}
		name = parent.Name
	}
	p.title = channels.Clean(strings.TrimPrefix(g.name+" / #"+name, " / "), channels.MaxName)
	return p, nil
}

// guild returns what is known about a guild, or the zero guild if the bot can't see it. It looks
// the guild up again if one of the given roles is unknown.
func (f *feed) guild(ctx context.Context, id string, roles []string) (guild, error) {
	known, ok := f.guilds.Get(id)
	unknown := func(role string) bool { return known.roles[role] == "" }
	if age := time.Since(known.at); ok && age < titleTime &&
		(age < guildTime || !slices.ContainsFunc(roles, unknown)) {
		return known, nil
	}
	g, err, _ := f.lookups.Do(id, func() (any, error) { return f.requestGuild(ctx, id) })
	if err != nil {
		return guild{}, err
	}
	return g.(guild), nil
}

// requestGuild requests a guild.
func (f *feed) requestGuild(ctx context.Context, id string) (guild, error) {
	var answer struct {
		Name  string `json:"name"`
		Roles []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			Tags struct {
				Bot string `json:"bot_id"`
			} `json:"tags"`
		} `json:"roles"`
	}
	err := f.retry(ctx, func() error {
		return f.c.get(ctx, discordgo.EndpointGuild(url.PathEscape(id)), &answer)
	})
	if known, ok := f.guilds.Get(id); err != nil && ok && ctx.Err() == nil {
		return known, nil // only a name may have changed
	}
	if err != nil && !errors.Is(err, channels.ErrRefused) {
		return guild{}, fmt.Errorf("look up guild %s: %w", id, err)
	}
	g := guild{name: channels.Clean(answer.Name, channels.MaxName), roles: make(map[string]string),
		at: time.Now()}
	for _, r := range answer.Roles {
		g.roles[r.ID] = channels.Clean(strings.TrimPrefix(r.Name, "@"), channels.MaxName)
		if r.Tags.Bot == f.me.ID {
			g.own = r.ID
		}
	}
	f.guilds.Put(id, g)
	return g, nil
}

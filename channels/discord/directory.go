package discord

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
)

// A place is a channel, with what the gateway knows about it.
type place struct {
	ID     string `json:"id"`
	Type   int    `json:"type"`
	Guild  string `json:"guild_id"` // "" for a direct chat
	Name   string `json:"name"`
	Parent string `json:"parent_id"`       // of a thread; of another channel, the category
	Last   string `json:"last_message_id"` // newest message when the place was looked up

	title string    // of the chat
	at    time.Time // of the look-up; zero: without a title
}

// isThread reports whether p is a thread, or a post in a forum. The types are those of threads in
// channels for announcements, public threads and private threads.
func (p *place) isThread() bool { return p.Type >= 10 && p.Type <= 12 }

// message returns a message from p without content.
func (p *place) message(account string) bus.InboundMessage {
	m := bus.InboundMessage{From: bus.Address{Account: account, Chat: p.ID}}
	// For Discord a thread is a channel of its own. For the gateway it belongs to its parent's
	// chat.
	if p.isThread() && p.Parent != "" {
		m.From.Chat, m.From.Thread = p.Parent, p.ID
	}
	m.Group, m.ChatTitle = p.Guild != "", p.title
	return m
}

// A guild is what the gateway knows about a guild.
type guild struct {
	name  string
	roles map[string]string // names by id
	own   string            // the bot's managed role, or ""
	at    time.Time
}

// A directory knows the channels and guilds that the bot has met in this run, and looks up the
// others. Its methods are safe for concurrent use.
type directory struct {
	c   *Channel
	bot string // id of the bot

	lookups singleflight.Group // requests for guilds
	places  *recent.Map[string, place]
	guilds  *recent.Map[string, guild]
	hidden  *recent.Map[string, bool] // channels that the bot can't see, or of other guilds
	mention *rate.Limiter             // of look-ups of mentioned channels
}

func newDirectory(c *Channel, bot string) *directory {
	return &directory{
		c: c, bot: bot,
		// The sizes only bound the memory. A forgotten entry is looked up again.
		places: recent.New[string, place](2000),
		guilds: recent.New[string, guild](500),
		hidden: recent.New[string, bool](500),

		mention: rate.NewLimiter(rate.Every(lookupEvery), lookupBurst),
	}
}

// guildTime is how long the known roles of a guild are considered complete.
const guildTime = time.Minute

// titleTime is how long the names of channels and guilds are considered current.
const titleTime = time.Hour

// placeOf returns the place of a channel. Live events without a guild are from direct chats. The
// other messages are read after a gap, and Discord's list of messages does not name the guild.
// placeOf returns the error of a failed look-up, unless Discord has refused it. It waits only for
// short rate limits, because other channels may be waiting.
func (d *directory) placeOf(ctx context.Context, id, guild string, live bool) (place, error) {
	if live && guild == "" {
		return place{ID: id}, nil
	}
	return d.placeWithin(ctx, id, guild, longestLimit)
}

// placeWithin is placeOf for a channel that may be unknown. It waits for rate limits up to limit.
func (d *directory) placeWithin(
	ctx context.Context, id, guild string, limit time.Duration,
) (place, error) {
	known, ok := d.places.Get(id)
	if guild != "" && known.Guild != guild {
		ok = false // a look-up was refused before the guild was known
	}
	if ok && time.Since(known.at) < titleTime {
		return known, nil
	}
	if ok {
		limit = longestLimit
	}
	p, err := d.lookUp(ctx, id, limit)
	switch {
	case err == nil:
		return p, nil
	case ok && ctx.Err() == nil:
		return known, nil // the name may have changed; the rest can't
	case errors.Is(err, channels.ErrRefused):
		return d.remember(id, place{ID: id, Guild: guild}), nil // the bot was removed since then
	}
	return place{}, err
}

// isCurrent reports whether messages from a channel of a guild need no look-up of either.
func (d *directory) isCurrent(id, guild string) bool {
	p, _ := d.places.Get(id) // the zero values are not current
	g, _ := d.guilds.Get(guild)
	return p.Guild == guild && time.Since(p.at) < titleTime && time.Since(g.at) < titleTime
}

// remember stores a place whose data is current.
func (d *directory) remember(id string, p place) place {
	p.at = time.Now()
	d.places.Put(id, p)
	return p
}

// lookUp requests a channel, and the guild and the parent channel for its title, and remembers it.
// It waits for rate limits up to limit.
func (d *directory) lookUp(
	ctx context.Context, id string, limit time.Duration,
) (place, error) {
	var p place
	err := retry(ctx, limit, func() error {
		address := discordgo.EndpointChannel(url.PathEscape(id))
		return d.c.get(ctx, address, &p)
	})
	if err != nil {
		return p, fmt.Errorf("look up channel %s: %w", id, err)
	}
	if p.Guild == "" {
		return d.remember(id, p), nil
	}
	g, err := d.guild(ctx, p.Guild, nil, limit)
	if err != nil {
		return p, err
	}
	name := p.Name
	if p.isThread() && p.Parent != "" {
		parent, err := d.placeWithin(ctx, p.Parent, p.Guild, limit)
		if err != nil {
			return p, err
		}
		name = parent.Name
	}
	p.title = channels.Clean(strings.TrimPrefix(g.name+" / #"+name, " / "), channels.MaxName)
	return d.remember(id, p), nil
}

// guild returns what is known about a guild, or the zero guild if the bot can't see it. It looks
// the guild up again if one of the given roles is unknown.
func (d *directory) guild(
	ctx context.Context, id string, roles []string, limit time.Duration,
) (guild, error) {
	known, ok := d.guilds.Get(id)
	unknown := func(role string) bool { return known.roles[role] == "" }
	if age := time.Since(known.at); ok && age < titleTime &&
		(age < guildTime || !slices.ContainsFunc(roles, unknown)) {
		return known, nil
	}
	if ok {
		limit = longestLimit
	}
	// Concurrent look-ups of a guild share one request, with the ctx of the first. All have the ctx
	// of the run, so none ends before the others.
	g, err, _ := d.lookups.Do(fmt.Sprint(id, limit), func() (any, error) {
		return d.requestGuild(ctx, id, limit)
	})
	if err != nil {
		return guild{}, err
	}
	return g.(guild), nil
}

// requestGuild requests a guild.
func (d *directory) requestGuild(
	ctx context.Context, id string, limit time.Duration,
) (guild, error) {
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
	err := retry(ctx, limit, func() error {
		return d.c.get(ctx, discordgo.EndpointGuild(url.PathEscape(id)), &answer)
	})
	if known, ok := d.guilds.Get(id); err != nil && ok && ctx.Err() == nil {
		return known, nil // only a name may have changed
	}
	// A refused look-up is remembered as a guild without name and roles: the bot was removed.
	if err != nil && !errors.Is(err, channels.ErrRefused) {
		return guild{}, fmt.Errorf("look up guild %s: %w", id, err)
	}
	g := guild{name: channels.Clean(answer.Name, channels.MaxName), roles: make(map[string]string),
		at: time.Now()}
	for _, r := range answer.Roles {
		g.roles[r.ID] = channels.Clean(strings.TrimPrefix(r.Name, "@"), channels.MaxName)
		if r.Tags.Bot == d.bot {
			g.own = r.ID
		}
	}
	d.guilds.Put(id, g)
	return g, nil
}

// knownGuild returns a guild as far as it is known, without looking it up.
func (d *directory) knownGuild(id string) guild {
	g, _ := d.guilds.Get(id) // the zero guild has no roles
	return g
}

// channelName returns the name of a known channel of a guild, or "".
func (d *directory) channelName(id, guild string) string {
	p, _ := d.places.Get(id) // its name is "" if it is unknown
	if p.Guild != guild {
		return "" // of another guild, whose channels may be private
	}
	return channels.Clean(p.Name, channels.MaxName)
}

// channelMention matches a mention of a channel.
var channelMention = regexp.MustCompile(`<#([0-9]+)>`)

// maxLookups is the maximum number of channels to look up for one message. All messages together
// may cause lookupBurst look-ups at once, and one more every lookupEvery: see lookUpMentions.
const (
	maxLookups  = 5
	lookupBurst = 30
	lookupEvery = time.Second
)

// lookUpMentions looks up the unknown channels of a guild that a text mentions. Mentions of other
// channels keep their number. Anybody in a guild can mention channels that the bot may not see, and
// Discord blocks an address after 10,000 refused calls within ten minutes. So there is a limit.
func (d *directory) lookUpMentions(ctx context.Context, where place, text string) {
	if where.Guild == "" {
		return
	}
	for _, found := range channelMention.FindAllStringSubmatch(text, maxLookups) {
		id := found[1]
		_, known := d.places.Get(id)
		if _, hidden := d.hidden.Get(id); known || hidden {
			continue
		}
		if !d.mention.Allow() {
			return
		}
		p := place{ID: id}
		err := d.c.get(ctx, discordgo.EndpointChannel(id), &p)
		// Even a temporary failure hides the channel: its name is not worth a second request.
		if err == nil && p.Guild == where.Guild {
			d.places.Put(id, p) // without a time, so that it is looked up again when a message arrives
		} else {
			d.hidden.Put(id, true)
		}
	}
}

package discordtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A User is a person or a bot.
type User struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	Name     string `json:"global_name,omitempty"` // shown instead of Username
	Bot      bool   `json:"bot,omitempty"`
}

// A File is a file that is attached to a message.
type File struct {
	Name    string
	Type    string // MIME type
	Content []byte

	Seconds  float64 // length of a voice message of the bot
	Waveform string  // waveform of a voice message, in base64
}

// A Button is a button below a message.
type Button struct {
	Label string
	ID    string // custom_id
}

// A Sent is a message of the bot in its current state.
type Sent struct {
	Channel string
	ID      string
	ReplyTo string
	Text    string // as the bot sent it
	Nonce   string
	Flags   int
	Buttons []Button
	Files   []File
	Pings   []string // ids of notified users and roles, or "everyone"
	Edits   int
	Deleted bool

	// Received is when the server had read the call. Served is when it last gave the bot a message
	// of this channel before that. The difference is the bot's response time.
	Received, Served time.Time
}

// Kinds of channels, with Discord's numbers.
const (
	kindText   = 0
	kindDM     = 1
	kindGroup  = 3 // a chat of several people without a guild
	kindThread = 11
	kindForum  = 15
)

type guild struct {
	id, name string
	nicks    map[string]string // by user
	roles    []role
	left     bool // the bot is not a member (any more)
	owned    bool // the bot owns it
}

// A role is a role of a guild. If bot is set, it is the managed role of that bot.
type role struct{ id, name, bot string }

// wire returns the roles of g as the REST API shows them.
func (g *guild) wire() []map[string]any {
	list := []map[string]any{{"id": g.id, "name": "@everyone", "managed": false}}
	for _, r := range g.roles {
		w := map[string]any{"id": r.id, "name": r.name, "managed": r.bot != ""}
		if r.bot != "" {
			w["tags"] = map[string]any{"bot_id": r.bot}
		}
		list = append(list, w)
	}
	return list
}

// A channel is one conversation. Its messages are in the order of their ids.
type channel struct {
	id, name  string
	kind      int
	guild     *guild   // nil for a direct chat
	parent    *channel // of a thread
	person    string   // of a direct chat
	refusal   reply    // if its status is set: why the bot may not use the channel
	denied    map[Permission]bool
	served    time.Time
	typing    int
	messages  []*message
	sentCount int
}

// A message is an entry of a channel, by a person or by the bot.
type message struct {
	author    string
	sent      Sent
	kind      int // 0, or 19 for a reply
	edited    time.Time
	files     []storedFile
	extra     map[string]any
	reactions map[string]map[string]bool // users by emoji
}

type nonce struct {
	message *message
	at      time.Time
}

func (ch *channel) find(id string) *message {
	i, ok := slices.BinarySearchFunc(ch.messages, number(id), func(m *message, n uint64) int {
		return cmp.Compare(number(m.sent.ID), n)
	})
	if !ok || ch.messages[i].sent.Deleted {
		return nil
	}
	return ch.messages[i]
}

// add stores m under the next id and removes the oldest messages beyond the limit.
func (s *Server) add(ch *channel, m *message) {
	m.sent.Channel, m.sent.ID = ch.id, s.nextID()
	ch.messages = append(ch.messages, m)
	if n := len(ch.messages) - s.opts.Keep; s.opts.Keep > 0 && n > 0 {
		clear(ch.messages[:n])
		ch.messages = ch.messages[n:]
	}
	s.changed.Notify()
}

// epoch is the zero time of Discord's ids, in Unix milliseconds.
const epoch = 1420070400000

// nextID returns a new id, larger than all before. The caller holds s.mu.
func (s *Server) nextID() string {
	s.lastID = max(s.lastID+1, uint64(time.Now().UnixMilli()-epoch)<<22)
	return strconv.FormatUint(s.lastID, 10)
}

// madeAt returns when an id was created.
func madeAt(id string) time.Time {
	return time.UnixMilli(int64(number(id)>>22) + epoch).UTC()
}

// number returns an id as a number, or 0.
func number(id string) uint64 {
	n, _ := strconv.ParseUint(id, 10, 64) // no number: no such object
	return n
}

// AddUser adds or changes a person or a bot.
func (s *Server) AddUser(u User) { s.change(func() { s.users[u.ID] = u }) }

// user returns a person, adding them if necessary. The caller holds s.mu.
func (s *Server) user(id string) User {
	u, ok := s.users[id]
	if !ok {
		u = User{ID: id, Username: "user" + id}
		s.users[id] = u
	}
	return u
}

// AddGuild adds a guild with the bot.
func (s *Server) AddGuild(id, name string) {
	s.change(func() { s.guilds[id] = &guild{id: id, name: name, nicks: make(map[string]string)} })
}

// Readmit adds the bot again to a guild that it has left.
func (s *Server) Readmit(guildID string) { s.change(func() { s.guilds[guildID].left = false }) }

// SetGuildOwner says whether the bot owns a guild. An owner can't leave.
func (s *Server) SetGuildOwner(guildID string, on bool) {
	s.change(func() { s.guilds[guildID].owned = on })
}

// InGuild reports whether the bot is a member of a guild.
func (s *Server) InGuild(guildID string) bool {
	return locked(s, func() bool { return !s.guilds[guildID].left })
}

// AddRole adds a role to a guild. With a bot's id it is the managed role of that bot.
func (s *Server) AddRole(guildID, id, name, botID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guilds[guildID]
	g.roles = append(g.roles, role{id, name, botID})
}

// SetNick sets the name of a person in a guild.
func (s *Server) SetNick(guildID, userID, nick string) {
	s.change(func() { s.guilds[guildID].nicks[userID] = nick })
}

// AddChannel adds a text channel to a guild. It panics if the guild is unknown.
func (s *Server) AddChannel(guildID, id, name string) { s.addChannel(guildID, id, name, kindText) }

// AddForum adds a forum to a guild. Its posts are threads.
func (s *Server) AddForum(guildID, id, name string) { s.addChannel(guildID, id, name, kindForum) }

func (s *Server) addChannel(guildID, id, name string, kind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guilds[guildID]
	if g == nil {
		panic(fmt.Sprintf("discordtest: no guild %s", guildID))
	}
	s.channels[id] = &channel{id: id, name: name, kind: kind, guild: g}
}

// AddThread makes a thread in a text channel, or a post in a forum.
func (s *Server) AddThread(parentID, id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.must(parentID)
	s.channels[id] = &channel{id: id, name: name, kind: kindThread, guild: p.guild, parent: p}
}

// AddDM makes the direct chat with a person.
func (s *Server) AddDM(userID, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user(userID)
	s.channels[id] = &channel{id: id, kind: kindDM, person: userID}
}

// must returns a channel. The caller holds s.mu.
func (s *Server) must(id string) *channel {
	ch := s.channels[id]
	if ch == nil {
		panic(fmt.Sprintf("discordtest: no channel %s", id))
	}
	return ch
}

// Refuse makes every call about a channel fail with 403 and one of Discord's codes, such as
// 50013 for a missing permission. With code 0, calls succeed again.
func (s *Server) Refuse(channelID string, code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.must(channelID)
	ch.refusal = reply{}
	if code != 0 {
		ch.refusal = refuse(403, code, reason)
	}
}

// A Permission is something that a bot may do in a channel and the threads of it.
type Permission int

// The permissions that a [Server] knows. A bot has all of them until one is denied.
const (
	SendMessages Permission = iota
	ReadMessageHistory
	AddReactions
	SendVoiceMessages
)

// Allow says whether the bot has a permission in a channel and the threads of it.
func (s *Server) Allow(channelID string, p Permission, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.must(channelID)
	if ch.denied == nil {
		ch.denied = make(map[Permission]bool)
	}
	ch.denied[p] = !on
}

func (ch *channel) denies(p Permission) bool {
	return ch.denied[p] || ch.parent != nil && ch.parent.denies(p)
}

// isSystem reports whether Discord itself wrote m, for example to tell that somebody has joined.
func (m *message) isSystem() bool {
	kind, ok := m.extra["type"].(int)
	return ok && kind != 0 && kind != 19 && kind != 20 && kind != 23
}

// History returns the messages that the bot sent to a channel, oldest first. It includes deleted
// ones.
func (s *Server) History(channelID string) []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[channelID]
	if ch == nil {
		return nil
	}
	var sent []Sent
	for _, m := range ch.messages {
		if m.author == s.bot.ID {
			sent = append(sent, m.sent)
		}
	}
	return sent
}

// SentCount returns how many messages the bot sent to a channel. It includes those that the
// server no longer keeps.
func (s *Server) SentCount(channelID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.channels[channelID]; ch != nil {
		return ch.sentCount
	}
	return 0
}

// Typing returns how often the bot showed in a channel that it is typing.
func (s *Server) Typing(channelID string) int {
	return locked(s, func() int { return s.must(channelID).typing })
}

// Reactions returns the emoji that the bot has put on a message, sorted.
func (s *Server) Reactions(channelID, messageID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var emoji []string
	if m := s.must(channelID).find(messageID); m != nil {
		for e, users := range m.reactions {
			if users[s.bot.ID] {
				emoji = append(emoji, e)
			}
		}
	}
	slices.Sort(emoji)
	return emoji
}

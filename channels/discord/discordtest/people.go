package discordtest

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// A Message is a message that a person writes.
type Message struct {
	Channel string
	User    string
	Text    string // in Discord's own form: a mention is <@id>
	ReplyTo string // id of a message in the same channel, or ""
	Files   []File

	// Extra holds further fields of Discord's message object, such as "sticker_items".
	Extra map[string]any
}

// Say makes a person write to a channel and returns the message's id. It panics if the channel is
// unknown.
func (s *Server) Say(channelID, userID, text string) string {
	return s.Deliver(Message{Channel: channelID, User: userID, Text: text})[0]
}

// Reply makes a person reply to a message of the channel.
func (s *Server) Reply(channelID, userID, text, messageID string) string {
	return s.Deliver(Message{Channel: channelID, User: userID, Text: text, ReplyTo: messageID})[0]
}

// SayFile makes a person send files.
func (s *Server) SayFile(channelID, userID, text string, files ...File) string {
	return s.Deliver(Message{Channel: channelID, User: userID, Text: text, Files: files})[0]
}

// Deliver makes people write messages, one directly after another, and returns their ids.
func (s *Server) Deliver(messages ...Message) []string {
	ids := make([]string, 0, len(messages))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range messages {
		ch := s.must(in.Channel)
		m := &message{author: s.user(in.User).ID, extra: in.Extra}
		m.sent.Text, m.sent.Received = in.Text, time.Now()
		if ch.find(in.ReplyTo) != nil {
			m.sent.ReplyTo, m.kind = in.ReplyTo, 19
		}
		for _, f := range in.Files {
			m.files = append(m.files, storedFile{File: f, id: s.nextID(), channel: ch.id})
		}
		s.add(ch, m)
		ids = append(ids, m.sent.ID)
		s.dispatchMessage("MESSAGE_CREATE", ch, m)
	}
	return ids
}

// EditSay makes the author of a message edit its text.
func (s *Server) EditSay(channelID, messageID, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.must(channelID)
	if m := ch.find(messageID); m != nil {
		m.sent.Text, m.edited = text, time.Now()
		s.dispatchMessage("MESSAGE_UPDATE", ch, m)
	}
}

// Embed makes Discord add a link preview to a message, which the bot sees as an update.
func (s *Server) Embed(channelID, messageID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.must(channelID)
	if m := ch.find(messageID); m != nil {
		m.extra = maps.Clone(m.extra)
		if m.extra == nil {
			m.extra = make(map[string]any)
		}
		m.extra["embeds"] = []any{map[string]any{"type": "link", "title": "A page"}}
		s.dispatchMessage("MESSAGE_UPDATE", ch, m)
	}
}

// Delete deletes a message.
func (s *Server) Delete(channelID, messageID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.channels[channelID]; ch != nil {
		if m := ch.find(messageID); m != nil {
			m.sent.Deleted = true
			s.changed.Notify()
		}
	}
}

// wire returns a message in the form of the REST API. The caller holds s.mu.
func (s *Server) wire(ch *channel, m *message) map[string]any {
	w := map[string]any{
		"id": m.sent.ID, "channel_id": ch.id, "type": m.kind, "content": m.sent.Text,
		"author": s.users[m.author], "timestamp": madeAt(m.sent.ID), "edited_timestamp": nil,
		"tts": false, "mention_everyone": false, "pinned": false,
		"embeds": []any{}, "flags": m.sent.Flags, "components": wireButtons(m.sent.Buttons),
	}
	if !m.edited.IsZero() {
		w["edited_timestamp"] = m.edited.UTC()
	}
	mentions, roles := []User{}, []string{}
	for _, found := range mention.FindAllStringSubmatch(m.sent.Text, -1) {
		if found[1] == "&" && ch.guild != nil && slices.ContainsFunc(ch.guild.roles,
			func(r role) bool { return r.id == found[2] }) {
			roles = append(roles, found[2])
		}
		if u, ok := s.users[found[2]]; ok && found[1] != "&" && !slices.Contains(mentions, u) {
			mentions = append(mentions, u)
		}
	}
	if m.sent.ReplyTo != "" {
		w["message_reference"] = map[string]any{
			"type": 0, "message_id": m.sent.ReplyTo, "channel_id": ch.id}
		w["referenced_message"] = nil
		if r := ch.find(m.sent.ReplyTo); r != nil {
			quoted := *r
			quoted.sent.ReplyTo = "" // Discord shows one level
			w["referenced_message"] = s.wire(ch, &quoted)
			if u := s.users[r.author]; !slices.Contains(mentions, u) {
				mentions = append(mentions, u)
			}
		}
	}
	if s.gateway.unquoted {
		delete(w, "referenced_message")
	}
	w["mentions"], w["mention_roles"] = mentions, roles
	files := []any{}
	for _, f := range m.files {
		files = append(files, s.wireFile(f))
	}
	w["attachments"] = files
	w["reactions"] = s.wireReactions(m)
	maps.Copy(w, m.extra)
	if s.opts.NoContent && !s.shown(ch, m) {
		hide(w)
	}
	return w
}

// shown reports whether the bot may see the content of a message even without the intent.
func (s *Server) shown(ch *channel, m *message) bool {
	return ch.guild == nil || m.author == s.bot.ID ||
		strings.Contains(m.sent.Text, "<@"+s.bot.ID+">") ||
		strings.Contains(m.sent.Text, "<@!"+s.bot.ID+">")
}

// hide removes the fields that need the Message Content Intent.
func hide(w map[string]any) {
	w["content"] = ""
	for _, field := range []string{"embeds", "attachments", "components"} {
		w[field] = []any{}
	}
}

func (s *Server) wireReactions(m *message) []any {
	list := []any{}
	for _, emoji := range slices.Sorted(maps.Keys(m.reactions)) {
		if users := m.reactions[emoji]; len(users) > 0 {
			list = append(list, map[string]any{
				"count": len(users), "me": users[s.bot.ID],
				"emoji": map[string]any{"id": nil, "name": emoji},
			})
		}
	}
	return list
}

func wireButtons(buttons []Button) []component {
	rows := []component{}
	for row := range slices.Chunk(buttons, 5) {
		r := component{Type: 1}
		for _, b := range row {
			r.Components = append(r.Components,
				component{Type: 2, Style: 2, Label: b.Label, ID: b.ID})
		}
		rows = append(rows, r)
	}
	return rows
}

// dispatchMessage sends a message to the gateway. The caller holds s.mu.
func (s *Server) dispatchMessage(event string, ch *channel, m *message) {
	if ch.guild != nil && ch.guild.left {
		return
	}
	intent := intentDirectMessages
	w := s.wire(ch, m)
	if ch.guild != nil {
		intent = intentGuildMessages
		w["guild_id"] = ch.guild.id
		member := map[string]any{"roles": []string{}}
		if nick := ch.guild.nicks[m.author]; nick != "" {
			member["nick"] = nick
		}
		w["member"] = member
	}
	hidden := w
	if !s.shown(ch, m) {
		hidden = maps.Clone(w)
		hide(hidden)
	}
	ch.served = time.Now()
	s.dispatch(event, ch.guild, intent, func(intents int) any {
		if intents&intentContent == 0 {
			return hidden
		}
		return w
	})
}

// SetOwner makes a user the owner of the bot's application.
func (s *Server) SetOwner(user string) { s.change(func() { s.owner = user }) }

// SetContentIntent switches the Message Content Intent of the bot's application on or off. It is on
// in a new Server.
func (s *Server) SetContentIntent(on bool) {
	const contents = 1 << 19 // GATEWAY_MESSAGE_CONTENT_LIMITED: on, for an unverified application
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flags = 0
	if on {
		s.flags = contents
	}
}

// application returns the bot's application as the REST API shows it. s.mu is held.
func (s *Server) application() map[string]any {
	app := map[string]any{"id": s.bot.ID, "name": s.bot.Name, "flags": s.flags}
	if owner, ok := s.users[s.owner]; ok {
		app["owner"] = owner
	}
	return app
}

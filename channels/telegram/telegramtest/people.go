package telegramtest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// SayPhoto makes user send a photo with a caption, and returns the message's id.
func (s *Server) SayPhoto(chatID, user int64, caption string, photo []byte) int {
	return s.SayFile(chatID, user, caption, File{Kind: "photo", Data: photo})
}

// SayVoice makes user send a voice message.
func (s *Server) SayVoice(chatID, user int64, voice []byte, seconds int) int {
	return s.SayFile(chatID, user, "",
		File{Kind: "voice", Type: "audio/ogg", Data: voice, Seconds: seconds})
}

// SayDocument makes user send a file of any kind.
func (s *Server) SayDocument(chatID, user int64, caption, name, mimeType string, data []byte) int {
	return s.SayFile(chatID, user, caption,
		File{Kind: "document", Name: name, Type: mimeType, Data: data})
}

// SayFile makes user send f with a caption.
func (s *Server) SayFile(chatID, user int64, caption string, f File) int {
	return s.Deliver(Message{Chat: chatID, User: user, Text: caption, File: &f})[0]
}

// SayAlbum makes user send photos together, the first with the caption, and returns the messages'
// ids.
func (s *Server) SayAlbum(chatID, user int64, caption string, photos ...[]byte) []int {
	var items []Message
	album := strconv.FormatInt(time.Now().UnixNano(), 10)
	for i, photo := range photos {
		m := Message{Chat: chatID, User: user, Album: album, File: &File{Kind: "photo", Data: photo}}
		if i == 0 {
			m.Text = caption
		}
		items = append(items, m)
	}
	return s.Deliver(items...)
}

// EditSay makes the author of a message change its text or caption. It panics if no person has
// written such a message.
func (s *Server) EditSay(chatID int64, id int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	m := c.find(id)
	if m == nil || m.said == nil {
		panic(fmt.Sprintf("telegramtest: no message %d of a person in chat %d", id, chatID))
	}
	m.sent.Text = text
	m.edited = max(time.Now().Unix(), m.edited+1)
	s.enqueue("edited_message", s.wire(c, m), c, id)
	s.changed.Notify()
}

// Touch reports a message of a person as edited although its text is the same, as Telegram does if
// somebody reacts to it, for example.
func (s *Server) Touch(chatID int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	s.enqueue("edited_message", s.wire(c, c.find(id)), c, id)
	s.changed.Notify()
}

// Migrate turns a group into the supergroup with the given id. Both chats report it, and messages
// to the old id are refused with the new id.
func (s *Server) Migrate(group, supergroup int64) {
	s.mu.Lock()
	old := s.chats[group]
	old.migrated = supergroup
	s.announce(old, map[string]any{"migrate_to_chat_id": supergroup})
	s.mu.Unlock()
	s.AddGroup(supergroup, old.title)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce(s.chats[supergroup], map[string]any{"migrate_from_chat_id": group})
	s.changed.Notify()
}

// announce delivers a service message. s.mu is held.
func (s *Server) announce(c *chat, fields map[string]any) {
	m := message{
		sent: Sent{Chat: c.id, Received: time.Now()}, said: &Message{Chat: c.id, Extra: fields},
	}
	m.sent.ID = c.add(m, s.opts.Keep)
	s.enqueue("message", s.wire(c, &m), c, m.sent.ID)
}

// Refuse makes Telegram refuse the bot's messages to a chat with status 403 and reason, such as
// "bot was blocked by the user"; "" ends that.
func (s *Server) Refuse(chatID int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chatID].refusal = reason
}

// InGroup reports whether the bot is a member of a group.
func (s *Server) InGroup(chatID int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.chats[chatID].gone()
}

// gone reports whether the bot was removed from the group c, or has left it.
func (c *chat) gone() bool {
	return c.kind != "private" &&
		(strings.Contains(c.refusal, "not a member") || strings.Contains(c.refusal, "kicked"))
}

// SetMember makes user change the bot's membership in a chat: "kicked" blocks it in a direct chat
// and removes it from a group, "left" removes it from a group, "member" adds it again.
func (s *Server) SetMember(chatID, user int64, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setMember(s.chats[chatID], s.user(user), status)
	s.changed.Notify()
}

// setMember is SetMember with s.mu held.
func (s *Server) setMember(c *chat, by User, status string) {
	old := "member"
	if strings.Contains(c.refusal, "not a member") {
		old = "left"
	} else if c.refusal != "" {
		old = "kicked"
	}
	switch {
	case status == "member":
		c.refusal = ""
	case c.kind == "private":
		c.refusal = "bot was blocked by the user"
	case status == "left":
		c.refusal = "bot is not a member of the " + c.kind + " chat"
	default:
		c.refusal = "bot was kicked from the " + c.kind + " chat"
	}
	s.enqueue("my_chat_member", marshal(map[string]any{
		"chat": c.wire(), "from": by, "date": time.Now().Unix(),
		"old_chat_member": map[string]any{"user": s.bot, "status": old},
		"new_chat_member": map[string]any{"user": s.bot, "status": status},
	}, nil), nil, 0)
}

// leaveChat makes the bot leave a group. s.mu is held.
func (s *Server) leaveChat(c call) reply {
	ch, refused := s.target(c)
	switch {
	case refused.code != 0:
		return refused
	case ch.kind == "private":
		return refuse(http.StatusBadRequest,
			"Bad Request: chat member status can't be changed in private chats")
	}
	s.setMember(ch, s.bot, "left")
	return reply{result: true}
}

package telegramtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// maxText is the longest text in UTF-16 units after parsing, and maxSource the most bytes that
// Telegram parses at all.
const (
	maxText   = 4096
	maxSource = 1 << 15
)

// sendMessage stores a message of the bot.
func (s *Server) sendMessage(c call) reply {
	text, refused := visible(c)
	if refused.code != 0 {
		return refused
	}
	answer, sent := s.store(c, text)
	if answer.code == 0 && s.onSend != nil {
		s.onSend(sent)
	}
	return answer
}

func (s *Server) store(c call, text string) (reply, Sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused, Sent{}
	}
	replyTo, refused := ch.replyTarget(c)
	if refused.code != 0 {
		return refused, Sent{}
	}
	m := message{from: s.bot.ID, sent: Sent{
		Chat: ch.id, Thread: c.int("message_thread_id"), ReplyTo: replyTo,
		Text: text, Source: c.params.Get("text"), Received: c.at, Served: ch.served,
	}}
	m.sent.ID = ch.add(m, s.keep)
	ch.sentCount++
	s.change()
	return reply{result: s.wire(ch, m.sent)}, m.sent
}

func (s *Server) wire(ch *chat, m Sent) wireMessage {
	return wireMessage{
		ID: m.ID, Thread: m.Thread, Topic: m.Thread != 0, From: &s.bot, Chat: ch.wire(),
		Date: m.Received.Unix(), Text: m.Text,
	}
}

// editMessageText replaces the text of a message of the bot.
func (s *Server) editMessageText(c call) reply {
	text, refused := visible(c)
	if refused.code != 0 {
		return refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused
	}
	m := ch.find(c.int("message_id"))
	switch {
	case m == nil:
		return refuse(http.StatusBadRequest, "Bad Request: message to edit not found")
	case m.from != s.bot.ID:
		return refuse(http.StatusBadRequest, "Bad Request: message can't be edited")
	case m.sent.Text == text && m.sent.Source == c.params.Get("text"):
		return refuse(http.StatusBadRequest, "Bad Request: message is not modified: "+
			"specified new message content and reply markup are exactly the same as a "+
			"current content and reply markup of the message")
	}
	m.sent.Text, m.sent.Source = text, c.params.Get("text")
	m.sent.Edits++
	s.change()
	return reply{result: s.wire(ch, m.sent)}
}

// deleteMessage deletes a message of the bot. The caller holds s.mu.
func (s *Server) deleteMessage(c call) reply {
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused
	}
	m := ch.find(c.int("message_id"))
	switch {
	case m == nil:
		return refuse(http.StatusBadRequest, "Bad Request: message to delete not found")
	case m.from != s.bot.ID:
		return refuse(http.StatusBadRequest, "Bad Request: message can't be deleted")
	}
	m.sent.Deleted = true
	return reply{result: true}
}

// sendChatAction counts one. The caller holds s.mu.
func (s *Server) sendChatAction(c call) reply {
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused
	}
	if c.params.Get("action") != "typing" {
		return refuse(http.StatusBadRequest, "Bad Request: wrong parameter action in request")
	}
	if ch.typing == nil {
		ch.typing = make(map[int]int)
	}
	ch.typing[c.int("message_thread_id")]++
	return reply{result: true}
}

// target finds the chat of a call and checks that the bot may write there. The caller
// holds s.mu.
func (s *Server) target(c call) (*chat, reply) {
	ch := s.chats[c.chat()]
	switch {
	case ch == nil:
		return nil, refuse(http.StatusBadRequest, "Bad Request: chat not found")
	case ch.migrated != 0:
		r := refuse(http.StatusBadRequest,
			"Bad Request: group chat was upgraded to a supergroup chat")
		r.migrateTo = ch.migrated
		return nil, r
	case ch.refusal != "":
		return nil, refuse(http.StatusForbidden, "Forbidden: "+ch.refusal)
	}
	if c.params.Has("message_thread_id") && !ch.topics[c.int("message_thread_id")] {
		return nil, refuse(http.StatusBadRequest, "Bad Request: message thread not found")
	}
	return ch, reply{}
}

// replyTarget returns the id of the message that a call replies to, or 0.
func (ch *chat) replyTarget(c call) (int, reply) {
	source := c.params.Get("reply_parameters")
	if source == "" {
		return 0, reply{}
	}
	var p struct {
		MessageID int  `json:"message_id"`
		Optional  bool `json:"allow_sending_without_reply"`
	}
	if err := json.Unmarshal([]byte(source), &p); err != nil || p.MessageID == 0 {
		return 0, refuse(http.StatusBadRequest,
			"Bad Request: can't parse reply parameters JSON object")
	}
	switch {
	case ch.find(p.MessageID) != nil:
		return p.MessageID, reply{}
	case p.Optional:
		return 0, reply{}
	}
	return 0, refuse(http.StatusBadRequest, "Bad Request: message to be replied not found")
}

// visible parses a call's text and holds it to Telegram's bounds.
func visible(c call) (string, reply) {
	text := c.params.Get("text")
	if !json.Valid([]byte(orNull(c.params.Get("link_preview_options")))) {
		return "", refuse(http.StatusBadRequest,
			"Bad Request: can't parse link preview options JSON object")
	}
	switch mode := c.params.Get("parse_mode"); {
	case strings.ToValidUTF8(text, "") != text:
		return "", refuse(http.StatusBadRequest, "Bad Request: strings must be encoded in UTF-8")
	case len(text) > maxSource:
		return "", refuse(http.StatusBadRequest, "Bad Request: message is too long")
	case mode == "HTML":
		parsed, err := ParseHTML(text)
		if err != nil {
			return "", refuse(http.StatusBadRequest,
				"Bad Request: can't parse entities: "+err.Error())
		}
		text = parsed
	case mode != "":
		return "", refuse(http.StatusBadRequest, "Bad Request: unsupported parse_mode")
	}
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", refuse(http.StatusBadRequest, "Bad Request: message text is empty")
	case len(text) > maxText && utf16Len(text) > maxText:
		return "", refuse(http.StatusBadRequest, "Bad Request: message is too long")
	}
	return text, reply{}
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

// chat returns the chat that c is about, or 0.
func (c call) chat() int64 {
	id, _ := strconv.ParseInt(c.params.Get("chat_id"), 10, 64) // no number: no such chat
	return id
}

// int returns a parameter that is a number, or 0.
func (c call) int(name string) int {
	n, _ := strconv.Atoi(c.params.Get(name)) // no number: no such message or topic
	return n
}

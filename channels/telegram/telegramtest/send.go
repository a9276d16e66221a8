package telegramtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText is the maximum length of a text in UTF-16 units after parsing, maxSource the maximum
// bytes that Telegram parses, maxEntities that of their entities, and maxRich the maximum length of
// a rich message in characters.
const (
	maxText     = 4096
	maxSource   = 1 << 15
	maxEntities = 9500
	maxRich     = 32_768
)

// send stores a message of the bot: a text, a rich message or a file.
func (s *Server) send(c call) reply {
	m := message{from: s.bot.ID}
	var refused reply
	switch c.method {
	case "sendMessage":
		m.sent.Source = c.params.Get("text")
		m.sent.Text, refused = visible(c, "text", maxText)
	case "sendRichMessage":
		m.sent.Rich = true
		m.sent.Text, refused = richText(c)
		m.sent.Source = m.sent.Text
	default:
		m.sent.Source = c.params.Get("caption")
		if m.sent.Text, refused = visible(c, "caption", maxCaption); refused.code == 0 {
			m.sent.File, refused = c.uploaded()
		}
	}
	if refused.code == 0 {
		m.keyboard, refused = c.keyboard()
	}
	if refused.code != 0 {
		return refused
	}
	answer, sent := s.store(c, m)
	if answer.code == 0 && s.opts.OnSend != nil {
		s.opts.OnSend(sent)
	}
	return answer
}

func (s *Server) store(c call, m message) (reply, Sent) {
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
	m.sent.Chat, m.sent.Thread, m.sent.ReplyTo = ch.id, c.int("message_thread_id"), replyTo
	m.sent.Received, m.sent.Served, m.sent.Hanging = c.at, ch.served, s.hanging[ch.id]
	if m.sent.File != nil {
		m.file = s.keepFile(m.sent.File)
	}
	m.sent.ID = ch.add(m, s.opts.Keep)
	ch.sentCount++
	ch.drafting = false
	s.changed.Notify()
	return reply{result: json.RawMessage(s.wire(ch, &m))}, m.sent
}

// editMessageText replaces the text of a message of the bot and removes its buttons. s.mu is held.
func (s *Server) editMessageText(c call) reply {
	source, rich := c.params.Get("text"), c.params.Has("rich_message")
	var text string
	var refused reply
	if rich {
		text, refused = richText(c)
		source = text
	} else {
		text, refused = visible(c, "text", maxText)
	}
	if refused.code != 0 {
		return refused
	}
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
	case m.sent.File != nil:
		return refuse(http.StatusBadRequest, "Bad Request: there is no text in the message to edit")
	case m.sent.Text == text && m.sent.Source == source && m.sent.Rich == rich && m.keyboard == nil:
		return refuse(http.StatusBadRequest, "Bad Request: message is not modified: "+
			"specified new message content and reply markup are exactly the same as a "+
			"current content and reply markup of the message")
	}
	m.sent.Text, m.sent.Source, m.sent.Rich, m.keyboard = text, source, rich, nil
	m.sent.Edits++
	return reply{result: json.RawMessage(s.wire(ch, m))}
}

// deleteMessage deletes a message of the bot. s.mu is held.
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

// sendChatAction counts a typing indicator. s.mu is held.
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

// target returns the chat of a call after checking that the bot may write there. s.mu is held.
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

// visible parses the text in a field of a call and checks Telegram's limits. It may have at most
// longest UTF-16 units. Only a caption may be empty.
func visible(c call, field string, longest int) (string, reply) {
	text := c.params.Get(field)
	if !json.Valid([]byte(orNull(c.params.Get("link_preview_options")))) {
		return "", refuse(http.StatusBadRequest,
			"Bad Request: can't parse link preview options JSON object")
	}
	tooLong := refuse(http.StatusBadRequest, "Bad Request: message is too long")
	if field == "caption" {
		tooLong.description = "Bad Request: message caption is too long"
	}
	switch mode := c.params.Get("parse_mode"); {
	case strings.ToValidUTF8(text, "") != text:
		return "", refuse(http.StatusBadRequest, "Bad Request: strings must be encoded in UTF-8")
	case len(text) > maxSource:
		return "", tooLong
	case mode == "HTML":
		parsed, size, err := parseHTML(text)
		if err != nil {
			return "", refuse(http.StatusBadRequest,
				"Bad Request: can't parse entities: "+err.Error())
		}
		if size > maxEntities {
			return "", refuse(http.StatusBadRequest, "Bad Request: ENTITIES_TOO_LONG")
		}
		text = parsed
	case mode != "":
		return "", refuse(http.StatusBadRequest, "Bad Request: unsupported parse_mode")
	}
	text = strings.TrimSpace(text)
	switch {
	case text == "" && field == "text":
		return "", refuse(http.StatusBadRequest, "Bad Request: message text is empty")
	case len(text) > longest && utf16Len(text) > longest:
		return "", tooLong
	}
	return text, reply{}
}

// richText returns the Markdown of a rich message. It does not render it.
func richText(c call) (string, reply) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.params.Get("rich_message")), &m); err != nil {
		return "", refuse(http.StatusBadRequest, "Bad Request: can't parse rich message JSON object")
	}
	var text string
	if err := json.Unmarshal(m["markdown"], &text); err != nil || len(m) != 1 {
		return "", refuse(http.StatusBadRequest,
			"Bad Request: rich message must have exactly one of html, markdown and blocks")
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", refuse(http.StatusBadRequest, "Bad Request: rich message is empty")
	case utf8.RuneCountInString(text) > maxRich:
		return "", refuse(http.StatusBadRequest, "Bad Request: rich message is too long")
	}
	return text, reply{}
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

// chat returns the id of the chat in c, or 0.
func (c call) chat() int64 {
	id, _ := strconv.ParseInt(c.params.Get("chat_id"), 10, 64) // 0 for an invalid number: no such chat
	return id
}

// int returns a numeric parameter, or 0.
func (c call) int(name string) int {
	n, _ := strconv.Atoi(c.params.Get(name)) // 0 for an invalid number: no such message or topic
	return n
}

package telegramtest

import (
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf16"
)

// wireMessage and the following types are the parts of the Bot API's objects that the server sends.
type wireMessage struct {
	ID              int             `json:"message_id"`
	Thread          int             `json:"message_thread_id,omitempty"`
	Topic           bool            `json:"is_topic_message,omitempty"`
	From            *User           `json:"from,omitempty"`
	Chat            wireChat        `json:"chat"`
	Date            int64           `json:"date"`
	EditDate        int64           `json:"edit_date,omitempty"`
	Album           string          `json:"media_group_id,omitempty"`
	ReplyTo         json.RawMessage `json:"reply_to_message,omitempty"`
	Text            string          `json:"text,omitempty"`
	Entities        []wireEntity    `json:"entities,omitempty"`
	Caption         string          `json:"caption,omitempty"`
	CaptionEntities []wireEntity    `json:"caption_entities,omitempty"`
}

type wireChat struct {
	ID    int64  `json:"id"`
	Type  string `json:"type"`
	Title string `json:"title,omitempty"`
	Forum bool   `json:"is_forum,omitempty"`
}

type wireEntity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"` // UTF-16 units
	Length int    `json:"length"`
}

// wire returns m in the Bot API's form, including the message to which it replies.
func (s *Server) wire(c *chat, m *message) []byte {
	w := s.wireAlone(c, m)
	if r := c.find(m.sent.ReplyTo); r != nil {
		quoted := s.wireAlone(c, r)
		w.ReplyTo = marshal(quoted, r.extra())
	}
	return marshal(w, m.extra())
}

// wireAlone is like wire, without the message to which m replies.
func (s *Server) wireAlone(c *chat, m *message) wireMessage {
	w := wireMessage{
		ID: m.sent.ID, Thread: m.sent.Thread, Topic: m.sent.Thread != 0, Chat: c.wire(),
		Date: m.sent.Received.Unix(), EditDate: m.edited, Text: m.sent.Text,
	}
	if u, ok := s.users[m.from]; ok {
		w.From = &u
	}
	if m.said != nil {
		w.Album = m.said.Album
		w.Entities = entities(m.sent.Text)
	}
	if m.file != nil {
		w.Text, w.Entities, w.Caption, w.CaptionEntities = "", nil, w.Text, w.Entities
	}
	return w
}

// extra returns the optional fields of m.
func (m *message) extra() map[string]any {
	if m.file == nil {
		if m.said == nil {
			return nil
		}
		return m.said.Extra
	}
	extra := map[string]any{m.sent.File.Kind: m.file}
	if m.sent.File.Kind == "animation" {
		extra["document"] = m.file // for clients without animations
	}
	if m.said != nil {
		maps.Copy(extra, m.said.Extra)
	}
	return extra
}

// marshal returns w as JSON with additional fields.
func marshal(w any, extra map[string]any) []byte {
	b, err := json.Marshal(w)
	if err == nil && len(extra) > 0 {
		var more []byte
		more, err = json.Marshal(extra)
		b = append(append(b[:len(b)-1], ','), more[min(1, len(more)):]...)
	}
	if err != nil {
		panic(err) // a test put something into Extra that is not JSON
	}
	return b
}

func (c *chat) wire() wireChat {
	return wireChat{ID: c.id, Type: c.kind, Title: c.title, Forum: c.forum}
}

// entities returns the mentions and commands in text: words that begin with "@" or "/". A path such
// as /etc/hosts is not a command.
func entities(text string) []wireEntity {
	if !strings.ContainsAny(text, "@/") {
		return nil
	}
	var found []wireEntity
	units := 0
	for word := range strings.FieldsSeq(text) {
		at := strings.Index(text, word)
		units += utf16Len(text[:at])
		text = text[at+len(word):]
		name := strings.TrimRight(word, ",.:;!?")
		switch {
		case len(name) > 1 && name[0] == '@':
			found = append(found, wireEntity{"mention", units, utf16Len(name)})
		case len(name) > 1 && strings.LastIndex(name, "/") == 0:
			found = append(found, wireEntity{"bot_command", units, utf16Len(name)})
		}
		units += utf16Len(word)
	}
	return found
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

package whatsapp

import (
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels/recent"
)

// Limits of what is remembered of messages: enough to quote recent ones.
const (
	maxRecent = 512
	maxQuoted = 8 << 10 // bytes of a message that is kept whole, with its preview
)

// A remembered is a recently received or sent message.
type remembered struct {
	message *waE2E.Message   // for a quote
	text    string           // Markdown if it is ours
	files   []bus.Attachment // at most one
	name    string           // of its author, or "" if that is us
	ours    bool
	sent    time.Time // not in the future
	removed bool      // deleted for everybody
}

// An inChat names a message of a chat.
type inChat struct{ chat, id string }

// messages remembers the newest messages of all chats. Its methods are safe for concurrent use.
type messages struct {
	*recent.Map[inChat, remembered]
}

func newMessages() messages { return messages{recent.New[inChat, remembered](maxRecent)} }

// add remembers a message.
func (r messages) add(chat, id string, m remembered) {
	if m.message != nil && proto.Size(m.message) > maxQuoted {
		m.message = &waE2E.Message{Conversation: &m.text}
	}
	r.Put(inChat{chat, id}, m)
}

// find returns a remembered message. It returns false if the message is not remembered.
func (r messages) find(chat, id string) (remembered, bool) { return r.Get(inChat{chat, id}) }

// remove records that a message no longer exists.
func (r messages) remove(chat, id string) {
	if m, ok := r.find(chat, id); ok {
		m.removed = true
		r.add(chat, id, m)
	}
}

// drop forgets the messages of a chat.
func (r messages) drop(chat string) {
	r.DeleteFunc(func(key inChat) bool { return key.chat == chat })
}

// maxPanics is the number of attempts after which a message that causes a panic is set aside.
// WhatsApp delivers it again on each connection until it is acknowledged.
const maxPanics = 3

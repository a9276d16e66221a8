package bus

import (
	"time"
)

// An Address names one conversation: a chat of an account, or a thread within it.
type Address struct {
	Account string `json:"account"`          // configured account name, such as "telegram"
	Chat    string `json:"chat"`             // conversation, in the platform's own form
	Thread  string `json:"thread,omitempty"` // topic within Chat, or "" if none
}

// String returns a as account/chat[/thread], the form of logs and session keys.
func (a Address) String() string {
	s := a.Account + "/" + a.Chat
	if a.Thread != "" {
		s += "/" + a.Thread
	}
	return s
}

// A Sender is the person who wrote a message, as the platform describes them.
// Name and Username are the person's own choice and must be treated as foreign text.
type Sender struct {
	ID       string `json:"id"`                 // platform's user id, never empty
	Name     string `json:"name,omitempty"`     // display name
	Username string `json:"username,omitempty"` // handle without "@"
}

// A Quote is the message that another one replies to.
type Quote struct {
	ID     string `json:"id"`               // platform's message id
	Sender string `json:"sender,omitempty"` // display name of its author
	Text   string `json:"text,omitempty"`
	Ours   bool   `json:"ours,omitempty"` // it was written by this gateway
}

// An InboundMessage is a message from a person to the agent.
//
// The adapter fills everything but Role, which is set at admission.
type InboundMessage struct {
	ID        string    `json:"id"` // platform's, unique within the account and chat
	From      Address   `json:"from"`
	Sender    Sender    `json:"sender"`
	Role      string    `json:"role,omitempty"` // "owner" or "user"
	Text      string    `json:"text"`
	Time      time.Time `json:"time"`                 // when it was sent, by the platform's clock
	Group     bool      `json:"group,omitempty"`      // more people than the sender read the chat
	ChatTitle string    `json:"chat_title,omitempty"` // of a group
	Addressed bool      `json:"addressed,omitempty"`  // direct, or a mention, reply or command
	ReplyTo   *Quote    `json:"reply_to,omitempty"`
	Forwarded string    `json:"forwarded,omitempty"` // original author's name, if it was forwarded
}

// An OutboundMessage is a message from the agent to a conversation.
type OutboundMessage struct {
	To      Address `json:"to"`
	ReplyTo string  `json:"reply_to,omitempty"` // platform's id of the message to quote, or ""
	Text    string  `json:"text"`               // Markdown; each channel converts it

	// Stream names the live preview that becomes this message, or is "". See [Progress].
	Stream string `json:"stream,omitempty"`
}

// A Part is what a channel delivers at once: an outbound message, or the piece
// of a longer one that fits the platform's limit.
type Part struct {
	// Key is the same each time this part is tried and different for any other
	// part: platforms that take an idempotency key get it.
	Key     string
	To      Address
	ReplyTo string // platform's message id, or ""
	Text    string // Markdown
}

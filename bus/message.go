package bus

import (
	"io"
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

	// Claimed says that nobody but the sender of the reply vouches for what is quoted, nor for who
	// has written it.
	Claimed bool `json:"claimed,omitempty"`

	Attachments []Attachment `json:"attachments,omitempty"`
}

// An InboundMessage is a message from a person to the agent.
//
// The adapter fills everything but Person, Role and Before, which are set at admission.
type InboundMessage struct {
	ID        string    `json:"id"` // platform's, unique within the account and chat
	From      Address   `json:"from"`
	Sender    Sender    `json:"sender"`
	Person    int64     `json:"person,omitempty"` // who that is, over all platforms; 0: unknown
	Role      Role      `json:"role,omitempty"`
	Text      string    `json:"text"`                 // a caption, if there are attachments
	Time      time.Time `json:"time"`                 // when it was sent, by the platform's clock
	Group     bool      `json:"group,omitempty"`      // more people than the sender read the chat
	ChatTitle string    `json:"chat_title,omitempty"` // of a group
	Addressed bool      `json:"addressed,omitempty"`  // direct, or a mention, reply, command or button
	Before    string    `json:"before,omitempty"`     // Chat of From before it moved, or ""
	ReplyTo   *Quote    `json:"reply_to,omitempty"`
	Forwarded string    `json:"forwarded,omitempty"` // original author's name, if it was forwarded

	// Literal says that Text is not a command, whatever it begins with: it was pasted or piped.
	Literal bool `json:"literal,omitempty"`

	// Self says that the account itself wrote it, to itself: a person who shares their account with
	// the gateway.
	Self bool `json:"self,omitempty"`

	Attachments []Attachment `json:"attachments,omitempty"`

	// Album is the same for messages that people see as one, such as photos sent at once; or "".
	Album string `json:"album,omitempty"`

	// Edits is the ID of an earlier message of which this is the new wording, or "".
	Edits string `json:"edits,omitempty"`

	Origin Origin `json:"origin,omitzero"` // who began it
}

// A Kind says what an [Attachment] is to people.
type Kind string

// The kinds of attachments.
const (
	Photo     Kind = "photo"
	Sticker   Kind = "sticker"
	Animation Kind = "animation"
	Video     Kind = "video"
	Voice     Kind = "voice" // recorded for this message; its transcript stands for it
	Audio     Kind = "audio"
	Document  Kind = "document" // any other file
)

// An Attachment is a file that a message carries. Its Name is foreign text.
//
// A channel that receives one fills Ref, with which the file can be fetched once the message is
// admitted. From then on Path says where it is, or Problem why it is not there.
type Attachment struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name,omitempty"`    // of the file, or ""
	Type    string `json:"type,omitempty"`    // MIME type: as the platform says, later by content
	Size    int64  `json:"size,omitempty"`    // bytes; 0 if unknown
	Seconds int    `json:"seconds,omitempty"` // of sound or video; 0 if unknown
	Ref     string `json:"ref,omitempty"`     // in the channel's own form
	Path    string `json:"path,omitempty"`    // slash-separated, below the media directory
	Problem string `json:"problem,omitempty"` // a few words
}

// An OutboundMessage is a message from the agent to a conversation.
type OutboundMessage struct {
	To      Address `json:"to"`
	ReplyTo string  `json:"reply_to,omitempty"` // platform's id of the message to quote, or ""
	Text    string  `json:"text"`               // Markdown; each channel converts it

	Attachments []Attachment `json:"attachments,omitempty"` // with Path
	Buttons     []Button     `json:"buttons,omitempty"`     // below the text

	// Answers are the platform's ids of the messages in the conversation that are answered by it.
	Answers []string `json:"answers,omitempty"`

	// Notice says that the message is about another one that could not be delivered. If it can't be
	// delivered itself it is dropped.
	Notice bool `json:"notice,omitempty"`

	// Stream names the live preview that becomes this message, or is "". See [Progress].
	Stream string `json:"stream,omitempty"`

	// Stops names the live previews of answers that have been stopped. They change no more once
	// this message is there.
	Stops []string `json:"stops,omitempty"`
}

// A Button is below a message. Pressing it is like sending its Text.
type Button struct {
	Label string `json:"label"` // one line
	Text  string `json:"text"`  // 64 bytes at most

	// Number, if it is not 0, says that sending it as a message is the same as pressing the button.
	Number int `json:"number,omitempty"`
}

// A Part is what a channel delivers at once: an outbound message, the piece of a longer one that
// fits the platform's limit, or one of its files.
type Part struct {
	// Key is the same each time this part is tried and different for any other
	// part: platforms that take an idempotency key get it.
	Key     string
	To      Address
	ReplyTo string   // platform's message id, or ""
	Text    string   // Markdown; the caption if there is a File, or ""
	File    *File    // or nil
	Buttons []Button // only on channels whose limits allow them
}

// A File is an [Attachment] that is to be sent.
type File struct {
	Attachment

	// Open returns the content. It may be called more than once.
	Open func() (io.ReadSeekCloser, error)
}

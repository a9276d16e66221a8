package bus

import (
	"io"
	"strings"
	"time"
)

// An Address names one conversation: a chat of an account, or a thread within it.
type Address struct {
	Account string `json:"account"`          // name in the configuration, such as "telegram"
	Chat    string `json:"chat"`             // chat id in the platform's own form
	Thread  string `json:"thread,omitempty"` // topic within Chat, or ""
}

// String returns a as account/chat[/thread], the form in logs and session keys.
func (a Address) String() string {
	s := a.Account + "/" + a.Chat
	if a.Thread != "" {
		s += "/" + a.Thread
	}
	return s
}

// A Sender is the person who wrote a message, as the platform describes them. People choose Name
// and Username themselves: treat both as untrusted text.
type Sender struct {
	ID       string `json:"id"`                 // platform's user id, never empty
	Name     string `json:"name,omitempty"`     // display name
	Username string `json:"username,omitempty"` // handle without "@"
}

// A Quote is the message to which another one replies.
type Quote struct {
	ID     string `json:"id"`               // platform's message id
	Sender string `json:"sender,omitempty"` // display name of its author
	Text   string `json:"text,omitempty"`
	Ours   bool   `json:"ours,omitempty"` // this gateway wrote it

	// Claimed says that the quoted text and its author are unverified: only the sender of the reply
	// vouches for them.
	Claimed bool `json:"claimed,omitempty"`

	Attachments []Attachment `json:"attachments,omitempty"`
}

// An InboundMessage is a message from a person to the agent.
//
// The channel sets all fields but Person, Role, PreviousChat and Origin.Former, which the gate sets
// at admission.
type InboundMessage struct {
	ID           string    `json:"id"` // platform's id, unique within account and chat
	From         Address   `json:"from"`
	Sender       Sender    `json:"sender"`
	Person       int64     `json:"person,omitempty"` // the sender's row, for all platforms; 0: unknown
	Role         Role      `json:"role,omitempty"`
	Text         string    `json:"text"`                 // the caption, if there are attachments
	Time         time.Time `json:"time"`                 // when it was sent, by the platform's clock
	Group        bool      `json:"group,omitempty"`      // people other than the sender read the chat
	ChatTitle    string    `json:"chat_title,omitempty"` // title of a group
	Addressed    bool      `json:"addressed,omitempty"`  // direct, mention, reply, command or button
	PreviousChat string    `json:"before,omitempty"`     // Chat of From before it moved, or ""
	ReplyTo      *Quote    `json:"reply_to,omitempty"`
	Forwarded    string    `json:"forwarded,omitempty"` // original author's name, if it was forwarded

	// Literal says that Text is not a command, even if it begins with a slash: it was pasted or
	// piped.
	Literal bool `json:"literal,omitempty"`

	// Self says that the account wrote the message to itself. This happens when a person shares
	// their own account with the gateway.
	Self bool `json:"self,omitempty"`

	Attachments []Attachment `json:"attachments,omitempty"`

	// Album groups the messages that people sent as one, such as photos sent together or the parts of
	// a long text; or "".
	Album string `json:"album,omitempty"`

	// Edits is the ID of the earlier message that this one rewords, or "". Then the ID of this one is
	// Edits, [EditMark] and ASCII letters, digits or dots.
	Edits string `json:"edits,omitempty"`

	// VoiceState says how far a short voice message has been transcribed and judged.
	VoiceState VoiceState `json:"hearing,omitempty"`

	Origin Origin `json:"origin,omitzero"` // who began it
}

// A VoiceState is the state of a short voice message. Its words decide whether it is for the agent,
// and whether it is a command.
type VoiceState string

// The values of VoiceState. "" means that the message is not a voice message, or was not
// transcribed yet.
const (
	Overheard     VoiceState = "overheard" // in a group; for the agent only if the words address it
	NotCommand    VoiceState = "heard"     // decided: not a command
	SpokenCommand VoiceState = "command"   // decided: a command, which Text contains
)

// Limits of the voice messages that are transcribed before the gateway decides what they are.
const (
	maxUtterance      = 30        // seconds
	maxUtteranceBytes = 256 << 10 // twice what the platforms' apps record in that time
)

// SharesAlbum reports whether m and o are parts of the same album, which people see as one message.
func (m *InboundMessage) SharesAlbum(o *InboundMessage) bool {
	return m.Album != "" && m.Album == o.Album && m.From == o.From && m.Sender.ID == o.Sender.ID
}

// EditMark follows Edits in the ID of a message that rewords another one.
const EditMark = ":e"

// Rewords reports whether m is a new wording of o, or of the message that o rewords.
func (m *InboundMessage) Rewords(o *InboundMessage) bool {
	return m.Edits != "" && (m.Edits == o.ID || m.Edits == o.Edits) &&
		m.From.Account == o.From.Account && m.From.Chat == o.From.Chat
}

// Utterance returns the voice message that m consists of, if its words may be a command or a
// mention. It returns nil if m has a text or further files, is long, forwarded or an edit, or was
// not written by a person.
func (m *InboundMessage) Utterance() *Attachment {
	if len(m.Attachments) != 1 || m.Text != "" || m.Forwarded != "" || m.Edits != "" || m.Literal ||
		m.Origin.Kind != Person {
		return nil
	}
	a := &m.Attachments[0]
	if a.Kind != Voice || a.Seconds > maxUtterance || a.Size > maxUtteranceBytes ||
		a.Seconds <= 0 && a.Size <= 0 {
		return nil
	}
	return a
}

// A Kind says what an [Attachment] is for people.
type Kind string

// The kinds of attachments.
const (
	Photo     Kind = "photo"
	Sticker   Kind = "sticker"
	Animation Kind = "animation"
	Video     Kind = "video"
	Voice     Kind = "voice" // recorded for this message; the transcript replaces it
	Audio     Kind = "audio"
	Document  Kind = "document" // any other file
)

// KindOf returns the kind of the files of a MIME type.
func KindOf(mimeType string) Kind {
	class, _, _ := strings.Cut(mimeType, "/")
	switch {
	case mimeType == "image/gif":
		return Animation
	case class == "image":
		return Photo
	case class == "video":
		return Video
	case class == "audio":
		return Audio
	}
	return Document
}

// An Attachment is a file that a message carries. Its Name is untrusted text.
//
// The channel sets Ref, with which the gateway fetches the file after admission. Then either Path
// says where the file is, or Problem says why it is missing.
type Attachment struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name,omitempty"`    // of the file, as its sender calls it
	Type    string `json:"type,omitempty"`    // MIME type: first the platform's claim, later detected
	Size    int64  `json:"size,omitempty"`    // bytes; 0 if unknown
	Seconds int    `json:"seconds,omitempty"` // duration of sound or video; 0 if unknown
	Ref     string `json:"ref,omitempty"`     // how to fetch it, in the channel's own form
	Path    string `json:"path,omitempty"`    // slash-separated, relative to the media directory
	Problem string `json:"problem,omitempty"` // why it is missing, in a few words

	// Waveform is the loudness of a voice message over time, as apps draw it: 64 bytes from 0 to
	// 100, in base64; "": unknown.
	Waveform string `json:"waveform,omitempty"`

	// Transcript is the transcript of a voice message. TranscriptError is the reason why there is
	// none, in a few words. Both are "" until the gateway has tried to transcribe it.
	Transcript      string `json:"said,omitempty"`
	TranscriptError string `json:"unsaid,omitempty"`
}

// An OutboundMessage is a message from the agent to a conversation.
type OutboundMessage struct {
	To      Address `json:"to"`
	ReplyTo string  `json:"reply_to,omitempty"` // platform's id of the message to quote, or ""
	Text    string  `json:"text"`               // Markdown; each channel converts it

	Attachments []Attachment `json:"attachments,omitempty"` // with Path set
	Buttons     []Button     `json:"buttons,omitempty"`     // below the text

	// Answers holds the platform's ids of the messages that this message answers.
	Answers []string `json:"answers,omitempty"`

	// Notice says that the message reports an undeliverable message. A notice that can't be
	// delivered itself is dropped.
	Notice bool `json:"notice,omitempty"`

	// Stream names the live preview that this message replaces, or is "". See [Progress].
	Stream string `json:"stream,omitempty"`

	// Leave, if not nil, makes the account leave the group To. Nothing is sent to it.
	Leave *Leave `json:"leave,omitempty"`

	// Stops names the live previews of stopped answers. They no longer change once this message is
	// sent.
	Stops []string `json:"stops,omitempty"`
}

// A Leave describes a group that an account leaves, and the people who learn the outcome.
type Leave struct {
	ID    string    `json:"id"`             // platform's id of the group, or of its server
	Name  string    `json:"name"`           // for people; Markdown
	Chats []string  `json:"chats"`          // the groups that the decision to leave concerns
	Tell  []Address `json:"tell,omitempty"` // addresses that learn the outcome

	// Before holds the earlier decision about each of the Chats, if there was one.
	Before map[string]string `json:"before,omitempty"`
}

// A Button appears below a message. Pressing it has the same effect as sending its Text.
type Button struct {
	Label string `json:"label"` // one line
	Text  string `json:"text"`  // at most 64 bytes

	// Number is what a person may send as a message instead of pressing the button; 0: nothing.
	Number int `json:"number,omitempty"`
}

// A Part is what a channel delivers in one call: a whole outbound message, a piece of one that
// exceeds the platform's limit, or one of its files.
type Part struct {
	// Key is the idempotency key. It is the same for each try of this part and differs from that of
	// any other part.
	Key     string
	To      Address
	ReplyTo string   // platform's message id, or ""
	Text    string   // Markdown; with a File its caption, or ""
	File    *File    // or nil
	Buttons []Button // only if the channel's limits allow them
}

// A File is an [Attachment] to send.
type File struct {
	Attachment

	// Open opens the content. It may be called more than once. Its error wraps
	// ErrRefused of package channels if the content no longer exists.
	Open func() (io.ReadSeekCloser, error)
}

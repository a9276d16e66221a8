package whatsapptest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"
	"google.golang.org/protobuf/proto"
)

// A Message is a message as a person sees it in a chat.
type Message struct {
	ID       string
	Chat     string // address of a group, or "" in the direct chat with the bot
	FromBot  bool
	Text     string // or caption
	Kind     string // image, video, audio, voice, document, sticker, or "" for a text
	Name     string // of a document
	Type     string // MIME type of a file
	Seconds  int    // length of sound
	Waveform []byte // of a voice message
	Quote    string // id of the message that it replies to, or ""
	Quoted   string // text of that message, as contained in the reply
	QuotedOf string // its author's address
	Edits    int    // how often it was edited
	Deleted  bool
	Copies   int // how often it arrived; a phone shows it once
	Expires  int // seconds until it disappears, or 0

	raw *waE2E.Message
}

// Media is a file that a person sends.
type Media struct {
	Kind    string // image, video, audio, voice, document or sticker
	Name    string // of a document
	Type    string // MIME type
	Caption string
	Seconds uint32 // of sound or video
	Data    []byte
}

// Say sends a text to the bot and returns the message's id.
func (p *Person) Say(ctx context.Context, text string) (string, error) {
	return p.Send(ctx, "", &waE2E.Message{Conversation: &text})
}

// SayGroup sends a text to a group.
func (p *Person) SayGroup(ctx context.Context, chat, text string) (string, error) {
	return p.Send(ctx, chat, &waE2E.Message{Conversation: &text})
}

// Reply sends a text that quotes a message of the chat ("" for the direct one).
func (p *Person) Reply(ctx context.Context, chat, id, text string) (string, error) {
	quoted := p.find(chat, id)
	if quoted == nil {
		return "", errors.New("whatsapptest: no message " + id)
	}
	author := p.of.lid
	if quoted.FromBot {
		author = p.s.bot.lid
	}
	return p.Send(ctx, chat, &waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{
		Text: &text, ContextInfo: &waE2E.ContextInfo{
			StanzaID: &id, Participant: proto.String(author.String()), QuotedMessage: quoted.raw,
		},
	}})
}

// Mention sends a text to a group in which users are mentioned as @digits.
func (p *Person) Mention(
	ctx context.Context, chat, text string, users ...types.JID,
) (string, error) {
	var mentioned []string
	for _, u := range users {
		mentioned = append(mentioned, u.String())
	}
	return p.Send(ctx, chat, &waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{
		Text: &text, ContextInfo: &waE2E.ContextInfo{MentionedJID: mentioned},
	}})
}

// Edit changes the text of a message of the person.
func (p *Person) Edit(ctx context.Context, chat, id, text string) error {
	to := p.to(chat)
	_, err := p.Send(ctx, chat,
		p.client.BuildEdit(to, id, &waE2E.Message{Conversation: &text}))
	return err
}

// React puts an emoji on a message of the bot; "" removes it.
func (p *Person) React(ctx context.Context, chat, id, emoji string) error {
	_, err := p.Send(ctx, chat, p.client.BuildReaction(p.to(chat), p.s.bot.lid, id, emoji))
	return err
}

// Revoke deletes a message of the person's account for everybody.
func (p *Person) Revoke(ctx context.Context, chat, id string) error {
	_, err := p.Send(ctx, chat, p.client.BuildRevoke(p.to(chat), types.EmptyJID, id))
	return err
}

// SendMedia uploads a file and sends it.
func (p *Person) SendMedia(ctx context.Context, chat string, m Media) (string, error) {
	msg, err := p.Media(ctx, m)
	if err != nil {
		return "", err
	}
	return p.Send(ctx, chat, msg)
}

// Send sends any message to a group, to the chat with another person, or to the bot ("").
func (p *Person) Send(ctx context.Context, chat string, m *waE2E.Message) (string, error) {
	return p.send(ctx, chat, m, "")
}

// SendAgain sends a message under an id that was used before.
func (p *Person) SendAgain(ctx context.Context, chat, id string, m *waE2E.Message) error {
	_, err := p.send(ctx, chat, m, id)
	return err
}

func (p *Person) send(
	ctx context.Context, chat string, m *waE2E.Message, id string,
) (string, error) {
	var r whatsmeow.SendResponse
	err := p.sessionLock.Send(ctx, nil, func(ctx context.Context) (err error) {
		r, err = p.client.SendMessage(ctx, p.to(chat), m,
			whatsmeow.SendRequestExtra{ID: id, Timeout: 3 * time.Minute})
		return err
	})
	if err != nil {
		return "", err
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.note(chat, r.ID, false, m)
	p.s.changed.Notify()
	return r.ID, nil
}

// StopClock gives all messages the present time until goOn is called, as if people sent them at
// once.
func (s *Server) StopClock() (goOn func()) {
	set := func(t time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = t
	}
	set(time.Now())
	return func() { set(time.Time{}) }
}

// now returns the time of a message. The caller holds s.mu.
func (s *Server) now() time.Time {
	if !s.stopped.IsZero() {
		return s.stopped
	}
	return time.Now()
}

// to returns the address for the name of a chat.
func (p *Person) to(chat string) types.JID {
	if chat == "" {
		return p.s.bot.lid
	}
	return jid(chat)
}

// Media uploads a file and returns the message with it.
func (p *Person) Media(ctx context.Context, m Media) (*waE2E.Message, error) {
	kind := map[string]whatsmeow.MediaType{
		"image": whatsmeow.MediaImage, "sticker": whatsmeow.MediaImage,
		"video": whatsmeow.MediaVideo, "audio": whatsmeow.MediaAudio,
		"voice": whatsmeow.MediaAudio, "document": whatsmeow.MediaDocument,
	}[m.Kind]
	u, err := p.client.UploadReader(ctx, bytes.NewReader(m.Data), nil, kind)
	if err != nil {
		return nil, err
	}
	caption := &m.Caption
	if m.Caption == "" {
		caption = nil
	}
	switch m.Kind {
	case "image":
		return &waE2E.Message{ImageMessage: &waE2E.ImageMessage{Caption: caption,
			Mimetype: &m.Type, URL: &u.URL, DirectPath: &u.DirectPath, MediaKey: u.MediaKey,
			FileEncSHA256: u.FileEncSHA256, FileSHA256: u.FileSHA256, FileLength: &u.FileLength}}, nil
	case "sticker":
		return &waE2E.Message{StickerMessage: &waE2E.StickerMessage{
			Mimetype: &m.Type, URL: &u.URL, DirectPath: &u.DirectPath, MediaKey: u.MediaKey,
			FileEncSHA256: u.FileEncSHA256, FileSHA256: u.FileSHA256, FileLength: &u.FileLength}}, nil
	case "video":
		return &waE2E.Message{VideoMessage: &waE2E.VideoMessage{Caption: caption, Seconds: &m.Seconds,
			Mimetype: &m.Type, URL: &u.URL, DirectPath: &u.DirectPath, MediaKey: u.MediaKey,
			FileEncSHA256: u.FileEncSHA256, FileSHA256: u.FileSHA256, FileLength: &u.FileLength}}, nil
	case "audio", "voice":
		return &waE2E.Message{AudioMessage: &waE2E.AudioMessage{Seconds: &m.Seconds,
			PTT: proto.Bool(m.Kind == "voice"), Mimetype: &m.Type, URL: &u.URL,
			DirectPath: &u.DirectPath, MediaKey: u.MediaKey, FileEncSHA256: u.FileEncSHA256,
			FileSHA256: u.FileSHA256, FileLength: &u.FileLength}}, nil
	}
	return &waE2E.Message{DocumentMessage: &waE2E.DocumentMessage{Caption: caption,
		FileName: &m.Name, Mimetype: &m.Type, URL: &u.URL, DirectPath: &u.DirectPath,
		MediaKey: u.MediaKey, FileEncSHA256: u.FileEncSHA256, FileSHA256: u.FileSHA256,
		FileLength: &u.FileLength}}, nil
}

// Fetch downloads the file of a message that the person has seen.
func (p *Person) Fetch(ctx context.Context, m Message) ([]byte, error) {
	for _, f := range []whatsmeow.DownloadableMessage{
		m.raw.GetImageMessage(), m.raw.GetVideoMessage(), m.raw.GetAudioMessage(),
		m.raw.GetStickerMessage(), m.raw.GetDocumentMessage(),
	} {
		if f.GetDirectPath() != "" {
			return p.client.Download(ctx, f)
		}
	}
	return nil, errors.New("whatsapptest: a message without a file")
}

// find returns the person's copy of a message, or nil.
func (p *Person) find(chat, id string) *Message {
	return locked(p.s, func() *Message { return p.known(chat, id) })
}

// known is find with Server.mu held.
func (p *Person) known(chat, id string) *Message {
	for _, m := range p.messages {
		if m.Chat == chat && m.ID == id {
			return m
		}
	}
	return nil
}

// see handles an event of the person's client.
func (p *Person) see(evt any) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	defer p.s.changed.Notify()
	switch e := evt.(type) {
	case *events.Message:
		chat := ""
		if e.Info.IsGroup {
			chat = e.Info.Chat.String()
		}
		p.note(chat, e.Info.ID, e.Info.Sender.User == p.s.bot.lid.User ||
			e.Info.Sender.User == p.s.bot.pn.User, e.Message)
	case *events.Receipt:
		for _, id := range e.MessageIDs {
			switch e.Type {
			case types.ReceiptTypeRead:
				p.read[id] = true
			case types.ReceiptTypeDelivered, types.ReceiptTypeInactive:
				p.delivered[id] = true
			}
		}
	case *events.ChatPresence:
		if e.State == types.ChatPresenceComposing && e.Sender.User == p.s.bot.lid.User {
			p.typing++
		}
	case *events.UndecryptableMessage:
		p.s.logf("%s can't read %s", p.of.name, e.Info.ID)
	}
}

// note applies one message to what the person sees. The caller holds Server.mu.
func (p *Person) note(chat, id string, fromBot bool, m *waE2E.Message) {
	if edited := m.GetEditedMessage().GetMessage(); edited != nil {
		m = edited
	}
	if r := m.GetReactionMessage(); r != nil {
		if fromBot {
			p.reactions[r.GetKey().GetID()] = r.GetText()
		}
		return
	}
	if change := m.GetProtocolMessage(); change != nil {
		was := p.known(chat, change.GetKey().GetID())
		if was == nil || was.FromBot != fromBot {
			return
		}
		switch change.GetType() {
		case waE2E.ProtocolMessage_REVOKE:
			was.Deleted = true
		case waE2E.ProtocolMessage_MESSAGE_EDIT:
			was.Edits++
			was.Text = read(change.GetEditedMessage()).Text
		}
		return
	}
	seen := read(m)
	if seen.Kind == "" && seen.Text == "" {
		return // for example the keys of a group
	}
	if was := p.known(chat, id); was != nil {
		was.Copies++
		return
	}
	seen.ID, seen.Chat, seen.FromBot, seen.Copies, seen.raw = id, chat, fromBot, 1, m
	p.messages = append(p.messages, &seen)
}

// read returns m as a phone shows it.
func read(m *waE2E.Message) Message {
	var out Message
	var info *waE2E.ContextInfo
	switch {
	case m.ExtendedTextMessage != nil:
		out.Text, info = m.ExtendedTextMessage.GetText(), m.ExtendedTextMessage.GetContextInfo()
	case m.ImageMessage != nil:
		f := m.ImageMessage
		out.Kind, out.Text, out.Type, info = "image", f.GetCaption(), f.GetMimetype(), f.GetContextInfo()
	case m.VideoMessage != nil:
		f := m.VideoMessage
		out.Kind, out.Text, out.Type, info = "video", f.GetCaption(), f.GetMimetype(), f.GetContextInfo()
	case m.AudioMessage != nil:
		f := m.AudioMessage
		out.Kind, out.Type, info = "audio", f.GetMimetype(), f.GetContextInfo()
		out.Seconds, out.Waveform = int(f.GetSeconds()), f.GetWaveform()
		if f.GetPTT() {
			out.Kind = "voice"
		}
	case m.StickerMessage != nil:
		f := m.StickerMessage
		out.Kind, out.Type, info = "sticker", f.GetMimetype(), f.GetContextInfo()
	case m.DocumentMessage != nil:
		f := m.DocumentMessage
		out.Kind, out.Text, out.Type = "document", f.GetCaption(), f.GetMimetype()
		out.Name, info = f.GetFileName(), f.GetContextInfo()
	default:
		out.Text = m.GetConversation()
	}
	out.Quote, out.QuotedOf = info.GetStanzaID(), info.GetParticipant()
	out.Expires = int(info.GetExpiration())
	if q := info.GetQuotedMessage(); q != nil {
		out.Quoted = read(q).Text
	}
	return out
}

package whatsapp

import (
	"fmt"
	"strings"

	"go.mau.fi/whatsmeow/proto/waE2E"

	"gateway/bus"
	"gateway/channels"
)

// A content is the readable content of a message.
type content struct {
	text    string
	files   []bus.Attachment
	context *waE2E.ContextInfo // the quoted message and the mentions; or nil
}

// wrappers is the maximum depth of nested envelopes.
const wrappers = 8

// unwrap returns the message inside the envelopes that say how to show it: for a limited time,
// once, with a caption, as an edit.
func unwrap(m *waE2E.Message) *waE2E.Message {
	for range wrappers {
		inner := (*waE2E.Message)(nil)
		for _, w := range []*waE2E.FutureProofMessage{
			m.GetEphemeralMessage(), m.GetViewOnceMessage(), m.GetViewOnceMessageV2(),
			m.GetViewOnceMessageV2Extension(), m.GetLottieStickerMessage(),
			m.GetDocumentWithCaptionMessage(), m.GetEditedMessage(), m.GetGroupMentionedMessage(),
			m.GetAssociatedChildMessage(), m.GetBotForwardedMessage(), m.GetSpoilerMessage(),
			m.GetPollCreationMessageV4(),
		} {
			if w.GetMessage() != nil {
				inner = w.GetMessage()
			}
		}
		if inner == nil {
			return m
		}
		if inner.MessageContextInfo == nil && m.MessageContextInfo != nil {
			inner.MessageContextInfo = m.MessageContextInfo
		}
		m = inner
	}
	return m
}

// read returns the content of m. It returns false for keys, reactions and unknown messages.
func read(m *waE2E.Message) (content, bool) {
	c, ok := readAny(unwrap(m))
	c.text = strings.ToValidUTF8(c.text, "\uFFFD") // the sender's client may send any bytes
	return c, ok
}

func readAny(m *waE2E.Message) (content, bool) {
	switch {
	case m == nil:
		return content{}, false
	case m.Conversation != nil:
		return content{text: m.GetConversation()}, m.GetConversation() != ""
	case m.ExtendedTextMessage != nil:
		e := m.ExtendedTextMessage
		return content{text: e.GetText(), context: e.GetContextInfo()}, e.GetText() != ""
	}
	if c, ok := readFile(m); ok {
		return c, true
	}
	if c, ok := readChoice(m); ok {
		return c, true
	}
	return readObject(m)
}

// readFile reads a message that is a file.
func readFile(m *waE2E.Message) (content, bool) {
	switch {
	case m.ImageMessage != nil:
		f := m.ImageMessage
		return file(bus.Attachment{Kind: bus.Photo}, "image", f, f.GetCaption(), f.GetContextInfo())
	case m.VideoMessage != nil, m.PtvMessage != nil:
		f := m.VideoMessage
		if f == nil {
			f = m.PtvMessage // a round one, without a caption
		}
		a := bus.Attachment{Kind: bus.Video, Seconds: int(f.GetSeconds())}
		if f.GetGifPlayback() {
			a.Kind = bus.Animation
		}
		return file(a, "video", f, f.GetCaption(), f.GetContextInfo())
	case m.AudioMessage != nil:
		f := m.AudioMessage
		a := bus.Attachment{Kind: bus.Audio, Seconds: int(f.GetSeconds())}
		if f.GetPTT() {
			a.Kind = bus.Voice
		}
		return file(a, "audio", f, "", f.GetContextInfo())
	case m.StickerMessage != nil:
		f := m.StickerMessage
		return file(bus.Attachment{Kind: bus.Sticker}, "image", f, "", f.GetContextInfo())
	case m.DocumentMessage != nil:
		f := m.DocumentMessage
		name := f.GetFileName()
		if name == "" {
			name = f.GetTitle()
		}
		a := bus.Attachment{Kind: bus.Document, Name: channels.Clean(name, channels.MaxName)}
		return file(a, "document", f, f.GetCaption(), f.GetContextInfo())
	}
	return content{}, false
}

// readChoice reads a choice from a list or a row of buttons.
func readChoice(m *waE2E.Message) (content, bool) {
	var c content
	switch {
	case m.ListResponseMessage != nil:
		c.text = m.ListResponseMessage.GetTitle()
		c.context = m.ListResponseMessage.GetContextInfo()
	case m.ButtonsResponseMessage != nil:
		c.text = m.ButtonsResponseMessage.GetSelectedDisplayText()
		c.context = m.ButtonsResponseMessage.GetContextInfo()
	case m.TemplateButtonReplyMessage != nil:
		c.text = m.TemplateButtonReplyMessage.GetSelectedDisplayText()
		c.context = m.TemplateButtonReplyMessage.GetContextInfo()
	}
	return c, c.text != ""
}

// readObject reads a message that is replaced by a label.
func readObject(m *waE2E.Message) (content, bool) {
	var c content
	switch {
	case m.LocationMessage != nil:
		l := m.LocationMessage
		c.text = place(l.GetDegreesLatitude(), l.GetDegreesLongitude(), l.GetName()+" "+l.GetAddress())
		c.context = l.GetContextInfo()
	case m.LiveLocationMessage != nil:
		l := m.LiveLocationMessage
		c.text = place(l.GetDegreesLatitude(), l.GetDegreesLongitude(), l.GetCaption())
		c.context = l.GetContextInfo()
	case m.ContactMessage != nil:
		c.text = card(m.ContactMessage)
		c.context = m.ContactMessage.GetContextInfo()
	case m.ContactsArrayMessage != nil:
		var all []string
		for _, one := range m.ContactsArrayMessage.GetContacts() {
			all = append(all, card(one))
		}
		c.text = strings.Join(all, "\n")
		c.context = m.ContactsArrayMessage.GetContextInfo()
	case m.EventMessage != nil:
		c.text = channels.Bracket("event", m.EventMessage.GetName())
		c.context = m.EventMessage.GetContextInfo()
	case m.GroupInviteMessage != nil:
		c.text = channels.Bracket("invitation to a group", m.GroupInviteMessage.GetGroupName())
		c.context = m.GroupInviteMessage.GetContextInfo()
	default:
		for _, p := range []*waE2E.PollCreationMessage{
			m.PollCreationMessage, m.PollCreationMessageV2, m.PollCreationMessageV3,
			m.PollCreationMessageV5, m.PollCreationMessageV6,
		} {
			if p != nil {
				c.text, c.context = channels.Bracket("poll", p.GetName()), p.GetContextInfo()
			}
		}
	}
	return c, c.text != ""
}

// place returns the label of a location.
func place(latitude, longitude float64, name string) string {
	return channels.Bracket("location", fmt.Sprintf("%g, %g %s", latitude, longitude, name))
}

// card returns the label of a contact: name and phone numbers.
func card(c *waE2E.ContactMessage) string {
	detail := c.GetDisplayName()
	for line := range strings.Lines(c.GetVcard()) {
		field, value, ok := strings.Cut(line, ":")
		field, _, _ = strings.Cut(strings.ToUpper(field), ";")
		if _, item, grouped := strings.Cut(field, "."); grouped {
			field = item // such as item1.TEL
		}
		if ok && field == "TEL" {
			detail += " " + strings.TrimSpace(value)
		}
	}
	return channels.Bracket("contact", detail)
}

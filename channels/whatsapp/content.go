package whatsapp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/reflect/protoreflect"

	"gateway/bus"
	"gateway/channels"
)

// A content is the readable content of a message.
type content struct {
	text    string
	files   []bus.Attachment   // at most one
	context *waE2E.ContextInfo // the quoted message and the mentions; or nil
}

// wrappers is the maximum depth of nested envelopes. A sender could nest more of them than any
// phone does.
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
		// The envelope may hold what belongs to its content, such as the album.
		if inner.MessageContextInfo == nil && m.MessageContextInfo != nil {
			inner.MessageContextInfo = m.MessageContextInfo
		}
		m = inner
	}
	return m
}

// read returns the content of m. It returns false for keys, reactions and unknown messages.
func read(m *waE2E.Message) (content, bool) {
	m = unwrap(m)
	c, ok := readFile(m)
	if !ok {
		c.text = cmp.Or(m.GetConversation(), m.GetExtendedTextMessage().GetText(), readChoice(m),
			readObject(m), businessText(m), responseText(m))
	}
	c.text = strings.ToValidUTF8(c.text, "\uFFFD") // the sender's client may send any bytes
	c.context = contextOf(m)
	return c, ok || c.text != ""
}

// contextOf returns the context of the only part of m that has one, or nil.
func contextOf(m *waE2E.Message) (info *waE2E.ContextInfo) {
	// The kinds of messages have no common interface. Reflection also finds those that a later
	// version of the library adds.
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() == nil || f.Cardinality() == protoreflect.Repeated {
			return true
		}
		part, ok := v.Message().Interface().(interface{ GetContextInfo() *waE2E.ContextInfo })
		if ok {
			info = part.GetContextInfo()
		}
		return info == nil
	})
	return info
}

// readFile reads a message that is a file.
func readFile(m *waE2E.Message) (content, bool) {
	switch {
	case m.GetImageMessage() != nil:
		f := m.ImageMessage
		return file(bus.Attachment{Kind: bus.Photo}, "image", f, f.GetCaption()), true
	case m.GetVideoMessage() != nil, m.GetPtvMessage() != nil:
		f := cmp.Or(m.VideoMessage, m.PtvMessage) // the latter is round and has no caption
		a := bus.Attachment{Kind: bus.Video, Seconds: int(f.GetSeconds())}
		if f.GetGifPlayback() {
			a.Kind = bus.Animation
		}
		return file(a, "video", f, f.GetCaption()), true
	case m.GetAudioMessage() != nil:
		f := m.AudioMessage
		a := bus.Attachment{Kind: bus.Audio, Seconds: int(f.GetSeconds())}
		if f.GetPTT() {
			a.Kind = bus.Voice
		}
		return file(a, "audio", f, ""), true
	case m.GetStickerMessage() != nil:
		return file(bus.Attachment{Kind: bus.Sticker}, "image", m.StickerMessage, ""), true
	case m.GetDocumentMessage() != nil:
		f := m.DocumentMessage
		name := channels.Clean(cmp.Or(f.GetFileName(), f.GetTitle()), channels.MaxName)
		return file(bus.Attachment{Kind: bus.Document, Name: name}, "document", f, f.GetCaption()), true
	}
	return content{}, false
}

// readChoice returns the choice from a list or a row of buttons, or "".
func readChoice(m *waE2E.Message) string {
	return cmp.Or(m.GetListResponseMessage().GetTitle(),
		m.GetButtonsResponseMessage().GetSelectedDisplayText(),
		m.GetTemplateButtonReplyMessage().GetSelectedDisplayText())
}

// businessText returns the text of a message that a program of a business has sent, or "". People
// forward such messages.
func businessText(m *waE2E.Message) string {
	template := cmp.Or(m.GetTemplateMessage(), m.GetHighlyStructuredMessage().GetHydratedHsm())
	four := cmp.Or(template.GetHydratedTemplate(), template.GetHydratedFourRowTemplate())
	active := cmp.Or(m.GetInteractiveMessage(), template.GetInteractiveMessageTemplate())
	buttons, list, product := m.GetButtonsMessage(), m.GetListMessage(), m.GetProductMessage()
	var label string
	if p := product.GetProduct(); p != nil {
		label = channels.Placeholder("product", fmt.Sprintf("%s %.2f %s", p.GetTitle(),
			float64(p.GetPriceAmount1000())/1000, p.GetCurrencyCode()))
	}
	return lines(four.GetHydratedTitleText(), four.GetHydratedContentText(),
		four.GetHydratedFooterText(), active.GetHeader().GetTitle(), active.GetHeader().GetSubtitle(),
		active.GetBody().GetText(), active.GetFooter().GetText(), buttons.GetText(),
		buttons.GetContentText(), buttons.GetFooterText(), list.GetTitle(), list.GetDescription(),
		list.GetFooterText(), label, product.GetProduct().GetDescription(),
		product.GetProduct().GetURL(), product.GetBody(), m.GetOrderMessage().GetOrderTitle(),
		m.GetOrderMessage().GetMessage())
}

// fromProgram reports whether m has a form that only programs of businesses send.
func fromProgram(m *waE2E.Message) bool {
	return m.GetTemplateMessage() != nil || m.GetHighlyStructuredMessage() != nil ||
		m.GetInteractiveMessage() != nil || m.GetButtonsMessage() != nil || m.GetListMessage() != nil
}

// responseText returns the text of an answer of Meta AI, or "". People forward these, too.
func responseText(m *waE2E.Message) string {
	var parts []string
	for _, part := range m.GetRichResponseMessage().GetSubmessages() {
		parts = append(parts, part.GetMessageText())
		for _, code := range part.GetCodeMetadata().GetCodeBlocks() {
			parts = append(parts, code.GetCodeContent())
		}
		for _, row := range part.GetTableMetadata().GetRows() {
			parts = append(parts, strings.Join(row.GetItems(), " | "))
		}
	}
	return lines(parts...)
}

// lines joins those texts that are not blank.
func lines(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool {
		return strings.TrimSpace(s) == ""
	}), "\n")
}

// readObject returns the label that replaces a message, or "".
func readObject(m *waE2E.Message) string {
	switch {
	case m.GetLocationMessage() != nil:
		l := m.LocationMessage
		return place(l.GetDegreesLatitude(), l.GetDegreesLongitude(), l.GetName()+" "+l.GetAddress())
	case m.GetLiveLocationMessage() != nil:
		l := m.LiveLocationMessage
		return place(l.GetDegreesLatitude(), l.GetDegreesLongitude(), l.GetCaption())
	case m.GetContactMessage() != nil:
		return contactLabel(m.ContactMessage)
	case m.GetContactsArrayMessage() != nil:
		var all []string
		for _, one := range m.ContactsArrayMessage.GetContacts() {
			all = append(all, contactLabel(one))
		}
		return strings.Join(all, "\n")
	case m.GetEventMessage() != nil:
		return eventLabel("event", m.EventMessage)
	case m.GetStickerPackMessage() != nil:
		p := m.StickerPackMessage
		label := channels.Placeholder("sticker pack", p.GetName()+" "+p.GetPublisher())
		return lines(label, p.GetCaption())
	case m.GetMusicMessage() != nil:
		song := m.MusicMessage.GetEmbeddedMusic()
		label := channels.Placeholder("music", song.GetTitle()+" "+song.GetAuthor())
		return lines(label, m.MusicMessage.GetSongUri())
	}
	if r := cmp.Or(m.GetPollResultSnapshotMessage(), m.GetPollResultSnapshotMessageV3()); r != nil {
		var votes []string
		for _, v := range r.GetPollVotes() {
			votes = append(votes, fmt.Sprintf("%s: %d", v.GetOptionName(), v.GetOptionVoteCount()))
		}
		return channels.List("results of a poll", r.GetName(), votes)
	}
	for _, p := range []*waE2E.PollCreationMessage{
		m.GetPollCreationMessage(), m.GetPollCreationMessageV2(), m.GetPollCreationMessageV3(),
		m.GetPollCreationMessageV5(), m.GetPollCreationMessageV6(),
	} {
		if p != nil {
			var options []string
			for _, o := range p.GetOptions() {
				options = append(options, o.GetOptionName())
			}
			return channels.List("poll", p.GetName(), options)
		}
	}
	return invitation(m)
}

// invitation returns the label and the text of an invitation, or "".
func invitation(m *waE2E.Message) string {
	var kind, to, text string
	switch {
	case m.GetGroupInviteMessage() != nil:
		i := m.GroupInviteMessage
		kind, to, text = "a group", i.GetGroupName(), i.GetCaption()
	case m.GetNewsletterFollowerInviteMessageV2() != nil:
		i := m.NewsletterFollowerInviteMessageV2
		kind, to, text = "a channel", i.GetNewsletterName(), i.GetCaption()
	case m.GetNewsletterAdminInviteMessage() != nil:
		i := m.NewsletterAdminInviteMessage
		kind, to, text = "manage a channel", i.GetNewsletterName(), i.GetCaption()
	case m.GetEventInviteMessage() != nil:
		i := m.EventInviteMessage
		return lines(eventLabel("invitation to an event", &waE2E.EventMessage{
			Name: i.EventTitle, StartTime: i.StartTime, EndTime: i.EndTime, JoinLink: i.CallLink,
			IsCanceled: i.IsCanceled,
		}), i.GetCaption())
	default:
		return ""
	}
	return lines(channels.Placeholder("invitation to "+kind, to), text)
}

// place returns the label of a location.
func place(latitude, longitude float64, name string) string {
	return channels.Placeholder("location", fmt.Sprintf("%g, %g %s", latitude, longitude, name))
}

// eventLabel returns the label of an event or of an invitation to one: its name, and when and where
// it is.
func eventLabel(kind string, e *waE2E.EventMessage) string {
	var details []string
	add := func(name, detail string) {
		if strings.TrimSpace(detail) != "" {
			details = append(details, name+": "+detail)
		}
	}
	if e.GetIsCanceled() {
		details = append(details, "cancelled")
	}
	add("begins", eventTime(e.GetStartTime()))
	add("ends", eventTime(e.GetEndTime()))
	add("place", e.GetLocation().GetName()+" "+e.GetLocation().GetAddress())
	add("description", e.GetDescription())
	add("link", e.GetJoinLink())
	return channels.List(kind, e.GetName(), details)
}

// eventTime returns a time of an event, in Unix seconds, or "" for 0.
func eventTime(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return time.Unix(seconds, 0).UTC().Format("Monday 2006-01-02 15:04 UTC")
}

// contactLabel returns the label of a contact: name and phone numbers.
func contactLabel(c *waE2E.ContactMessage) string {
	var detail strings.Builder // a sender can write any number of lines
	detail.WriteString(c.GetDisplayName())
	// A line of a vCard is "TEL;type=CELL:+49 151 1234567", with an optional group before the name.
	for line := range strings.Lines(c.GetVcard()) {
		field, value, ok := strings.Cut(line, ":")
		field, _, _ = strings.Cut(strings.ToUpper(field), ";")
		if _, item, grouped := strings.Cut(field, "."); grouped {
			field = item // such as item1.TEL
		}
		if ok && field == "TEL" {
			detail.WriteString(" " + strings.TrimSpace(value))
		}
	}
	return channels.Placeholder("contact", detail.String())
}

package whatsapp

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/bus"
	"gateway/channels"
)

// lookupWait is the time limit for requesting the hidden id of a phone number.
const lookupWait = 3 * time.Second

// inbound translates a message. It returns false if the message is not from a person to the
// account: keys, reactions, deletions, statuses, channels, and messages that the owner wrote on the
// phone to somebody else.
func (s *session) inbound(ctx context.Context, e *events.Message) (bus.InboundMessage, bool) {
	info := &e.Info
	if e.Message == nil || !isConversation(info) {
		return bus.InboundMessage{}, false
	}
	m := unwrap(e.Message)
	s.noteTimer(ctx, info, m)
	if info.IsFromMe {
		s.handleOwn(info.Chat, m)
		if !s.isOwn(info.Chat) || isOurs(info.ID) {
			return bus.InboundMessage{}, false
		}
	}
	m, edits, stamp := s.edited(ctx, e, m)
	parsed, ok := read(m)
	if !ok || info.IsFromMe && isOurs(edits) {
		return bus.InboundMessage{}, false
	}
	from := s.author(ctx, info)
	in := bus.InboundMessage{
		Self:        info.IsFromMe,
		From:        bus.Address{Account: s.c.name, Chat: from.id.String()},
		Sender:      bus.Sender{ID: from.id.String(), Name: s.nameOf(ctx, info, from)},
		Time:        notAfterNow(info.Timestamp).UTC(),
		Group:       info.IsGroup,
		Attachments: parsed.files,
		Album:       album(m),
	}
	if from.phone != "" {
		in.Sender.Username = "+" + from.phone
	}
	if info.IsGroup {
		in.From.Chat = info.Chat.String()
		in.ChatTitle = s.title(ctx, info.Chat)
	}
	in.ID = s.messageID(info, info.ID)
	if edits = channels.Clean(edits, maxID); edits != "" {
		in.Edits = s.messageID(info, edits)
		in.ID = in.Edits + editMark + stamp
	}
	s.address(ctx, &in, parsed)
	s.c.recent.add(in.From.Chat, bare(in.ID), remembered{
		message: quotable(m), text: in.Text, name: in.Sender.Name, sent: in.Time,
	})
	return in, true
}

// notAfterNow returns t, or now if t is in the future: the clocks of some senders are ahead.
func notAfterNow(t time.Time) time.Time {
	if now := time.Now(); t.After(now) {
		return now
	}
	return t
}

// author determines who wrote a message.
func (s *session) author(ctx context.Context, info *types.MessageInfo) person {
	if info.IsFromMe {
		return s.self()
	}
	return s.person(ctx, info.Sender, info.SenderAlt)
}

// self returns the owner of the account.
func (s *session) self() person {
	p := person{id: s.ownLID.ToNonAD(), phone: s.own.User}
	if s.ownLID.IsEmpty() {
		p.id = s.own.ToNonAD()
	}
	return p
}

// isConversation reports whether a message is part of a conversation with people.
func isConversation(info *types.MessageInfo) bool {
	if info.ID == "" || info.Sender.IsBot() {
		return false
	}
	switch info.Chat.Server {
	case types.GroupServer, types.HiddenUserServer, types.DefaultUserServer:
		return true
	}
	return false
}

// handleOwn handles a message that the account's owner sent from the phone. It matters only if it
// deletes one of our messages.
func (s *session) handleOwn(chat types.JID, m *waE2E.Message) {
	p := m.GetProtocolMessage()
	if p.GetType() == waE2E.ProtocolMessage_REVOKE && p.GetKey().GetFromMe() {
		if s.isOwn(chat) {
			chat = s.self().id
		}
		s.c.recent.remove(chat.ToNonAD().String(), p.GetKey().GetID())
	}
}

// edited returns the new text, the id of the edited message and the time of the edit, if m is an
// edit. Otherwise it returns only m.
func (s *session) edited(
	ctx context.Context, e *events.Message, m *waE2E.Message,
) (_ *waE2E.Message, id, stamp string) {
	p := m.GetProtocolMessage()
	stamp = strconv.FormatInt(e.Info.Timestamp.UnixMilli(), 10)
	if secret := m.GetSecretEncryptedMessage(); secret != nil &&
		secret.GetSecretEncType() == waE2E.SecretEncryptedMessage_MESSAGE_EDIT {
		plain, err := s.client.DecryptSecretEncryptedMessage(ctx, e)
		if err != nil {
			s.c.log.WarnContext(ctx, "edit can't be decrypted", "id", e.Info.ID, "err", err)
			return m, "", ""
		}
		inner := unwrap(plain)
		if p = inner.GetProtocolMessage(); p == nil {
			return inner, secret.GetTargetMessageKey().GetID(), stamp
		}
	}
	if p.GetType() != waE2E.ProtocolMessage_MESSAGE_EDIT || p.GetEditedMessage() == nil {
		return m, "", ""
	}
	if p.GetTimestampMS() != 0 {
		stamp = strconv.FormatInt(p.GetTimestampMS(), 10)
	}
	return unwrap(p.GetEditedMessage()), p.GetKey().GetID(), stamp
}

// maxID is the maximum length, in runes, of a message id from a sender. WhatsApp's ids have up to
// 32.
const maxID = 128

// editMark separates the id of a message from the time of an edit.
const editMark = ":e"

// bare returns the id of a message without the time of its edit.
func bare(id string) string {
	id, _, _ = strings.Cut(id, editMark)
	return id
}

// messageID returns the gateway's id of another person's message.
func (s *session) messageID(info *types.MessageInfo, id string) string {
	if info.IsGroup {
		return info.Sender.ToNonAD().String() + "/" + id
	}
	return id
}

// splitID returns WhatsApp's sender and id of a message in a chat. The sender is empty for our own
// message in a group.
func splitID(chat types.JID, id string) (types.JID, types.MessageID) {
	sender, rest, ok := strings.Cut(bare(id), "/")
	if !ok {
		if chat.Server == types.GroupServer {
			return types.EmptyJID, sender
		}
		return chat, sender
	}
	j, err := types.ParseJID(sender)
	if err != nil {
		return types.EmptyJID, rest
	}
	return j, rest
}

// A person holds the identifiers of a person.
type person struct {
	id    types.JID // hidden id, or the phone's id
	phone string    // digits, or ""
}

// person determines the person behind one or two addresses.
func (s *session) person(ctx context.Context, j, other types.JID) person {
	j, other = j.ToNonAD(), other.ToNonAD()
	if j.Server == types.DefaultUserServer {
		p := person{id: j, phone: j.User}
		if other.Server != types.HiddenUserServer {
			other = s.hiddenID(ctx, j)
		}
		if other.Server == types.HiddenUserServer {
			p.id = other
		}
		return p
	}
	p := person{id: j}
	if other.Server != types.DefaultUserServer && j.Server == types.HiddenUserServer {
		other, _ = s.lids.GetPNForLID(ctx, j) // without it the number is unknown
	}
	if other.Server == types.DefaultUserServer {
		p.phone = other.User
	}
	return p
}

// hiddenID returns the hidden id of a phone number, from the store or from WhatsApp, or the zero
// JID.
func (s *session) hiddenID(ctx context.Context, phone types.JID) types.JID {
	lid, err := s.lids.GetLIDForPN(ctx, phone)
	if err == nil && !lid.IsEmpty() {
		return lid.ToNonAD()
	}
	s.mu.Lock()
	asked := s.phoneOnly[phone]
	s.mu.Unlock()
	if asked {
		return types.EmptyJID
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	users, err := s.client.GetUserInfo(ctx, []types.JID{phone})
	if err != nil {
		s.c.log.InfoContext(ctx, "hidden id could not be read", "err", err)
		return types.EmptyJID
	}
	lid = users[phone].LID.ToNonAD()
	if lid.IsEmpty() {
		s.mu.Lock()
		s.phoneOnly[phone] = true
		s.mu.Unlock()
	}
	return lid
}

// nameOf returns the name of a message's sender: the sender's own choice, otherwise the phone's
// contact name.
func (s *session) nameOf(ctx context.Context, info *types.MessageInfo, p person) string {
	if name := channels.Clean(info.PushName, channels.MaxName); name != "" && name != "-" {
		return name
	}
	return s.contact(ctx, p.id)
}

// contact returns the name of a user from the store, or "".
func (s *session) contact(ctx context.Context, j types.JID) string {
	known, err := s.contacts.GetContact(ctx, j.ToNonAD())
	if err != nil {
		return ""
	}
	for _, name := range []string{known.PushName, known.FullName, known.BusinessName} {
		if name = channels.Clean(name, channels.MaxName); name != "" {
			return name
		}
	}
	return ""
}

// isOwn reports whether j is the account itself.
func (s *session) isOwn(j types.JID) bool {
	return j.User != "" && (j.Server == types.DefaultUserServer && j.User == s.own.User ||
		j.Server == types.HiddenUserServer && j.User == s.ownLID.User)
}

// address sets the text of a message and whether it is addressed to us.
func (s *session) address(ctx context.Context, in *bus.InboundMessage, parsed content) {
	text, mentioned := s.mentions(ctx, parsed.text, parsed.context.GetMentionedJID())
	in.Text = text
	in.ReplyTo = s.quote(ctx, in, parsed.context)
	if parsed.context.GetIsForwarded() {
		in.Forwarded = "somebody" // WhatsApp does not name the author
	}
	in.Addressed = !in.Group || mentioned || strings.HasPrefix(strings.TrimSpace(text), "/") ||
		in.ReplyTo != nil && in.ReplyTo.Ours
}

// mentions replaces the numbers that WhatsApp writes into a text by names. It removes our own
// mention and reports whether there was one.
func (s *session) mentions(ctx context.Context, text string, users []string) (_ string, ours bool) {
	for _, u := range users {
		j, err := types.ParseJID(u)
		if err != nil || j.User == "" {
			continue
		}
		at := "@" + j.User
		if s.isOwn(j) {
			ours = true
			if i := strings.Index(text, at); i >= 0 {
				if rest := channels.WithoutMention(text, i, i+len(at)); rest != "" {
					text = rest
				}
			}
			continue
		}
		if name := s.contact(ctx, j); name != "" {
			text = strings.ReplaceAll(text, at, "@"+name)
		}
	}
	return text, ours
}

// quote returns the message to which in replies, or nil.
func (s *session) quote(
	ctx context.Context, in *bus.InboundMessage, info *waE2E.ContextInfo,
) *bus.Quote {
	id := channels.Clean(info.GetStanzaID(), maxID)
	if id == "" {
		return nil
	}
	q := &bus.Quote{ID: id}
	author, err := types.ParseJID(info.GetParticipant())
	author = author.ToNonAD()
	known, found := s.c.recent.find(in.From.Chat, id)
	q.Ours = err == nil && s.isOwn(author) || found && known.ours
	if in.Self {
		q.Ours = isOurs(id) // the account's other messages are in the chat, too
	}
	switch {
	case q.Ours:
	case in.Group:
		q.ID = channels.Clean(author.String(), channels.MaxName) + "/" + id
		known, found = s.c.recent.find(in.From.Chat, q.ID)
		q.Sender = s.contact(ctx, author)
	default:
		q.Sender = in.Sender.Name
	}
	parsed, ok := read(info.GetQuotedMessage())
	q.Text, q.Attachments = parsed.text, parsed.files
	// The sender of a reply can forge the quoted text and its author.
	if q.Claimed = !found; found {
		q.Ours = known.ours || in.Self && q.Ours
		if known.name != "" {
			q.Sender = known.name
		}
		if known.text != "" || !ok {
			q.Text = known.text
		}
	}
	return q
}

// album returns the key that photos and videos sent together share, or "".
func album(m *waE2E.Message) string {
	a := m.GetMessageContextInfo().GetMessageAssociation()
	if a.GetAssociationType() != waE2E.MessageAssociation_MEDIA_ALBUM {
		return ""
	}
	return channels.Clean(a.GetParentMessageKey().GetID(), maxID)
}

// quotable returns m as a reply contains it: without the message that m itself quotes.
func quotable(m *waE2E.Message) *waE2E.Message {
	if e := m.GetExtendedTextMessage(); e != nil {
		text := e.GetText()
		return &waE2E.Message{Conversation: &text}
	}
	return m
}

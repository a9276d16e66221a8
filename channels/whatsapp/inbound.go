package whatsapp

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
	"gateway/channels/whatsapp/internal/inorder"
)

// A translator makes messages of the gateway from those of WhatsApp, and remembers them.
type translator struct {
	account string // its name in the gateway
	client  *whatsmeow.Client
	people  *addressBook
	timers  *timers
	recent  messages
	titles  *recent.Map[types.JID, title]
	log     *slog.Logger
}

// inbound translates a message. It returns false if the message is not from a person to the
// account: keys, reactions, deletions, statuses, channels, messages of a business's programs, and
// messages that the owner wrote on the phone to somebody else.
func (t *translator) inbound(ctx context.Context, e *events.Message) (bus.InboundMessage, bool) {
	info := &e.Info
	if e.Message == nil || !isConversation(info) {
		return bus.InboundMessage{}, false
	}
	m := unwrap(e.Message)
	if !e.IsViewOnce { // of such a message only a label may be left, without the timer: see viewOnce
		t.timers.note(ctx, info, m)
	}
	t.noteRemoval(info, m)
	// Devices of one account see each other's messages. In the chat with itself the owner talks to
	// the agent, and the gateway's own messages come back.
	if info.IsFromMe && (!t.people.me.is(info.Chat) || isOurs(info.ID)) {
		return bus.InboundMessage{}, false
	}
	m, edits, stamp := t.edited(ctx, e, m)
	parsed, ok := read(m)
	if !ok || info.IsFromMe && isOurs(edits) {
		return bus.InboundMessage{}, false
	}
	// Advertisements, codes and the like don't ask the agent anything. What people forward does.
	if fromProgram(unwrap(m)) && !parsed.context.GetIsForwarded() {
		return bus.InboundMessage{}, false
	}
	from := t.people.author(ctx, info)
	in := bus.InboundMessage{
		Self:        info.IsFromMe,
		From:        bus.Address{Account: t.account, Chat: from.id.String()},
		Sender:      bus.Sender{ID: from.id.String(), Name: t.people.nameOf(ctx, info, from)},
		Time:        notAfterNow(info.Timestamp).UTC(),
		Group:       info.IsGroup,
		Attachments: parsed.files,
		Album:       album(m),
	}
	if from.phone != "" {
		in.Sender.Username = "+" + from.phone
	}
	// A direct chat has the address of the other person, which is that of the sender.
	if info.IsGroup {
		in.From.Chat = info.Chat.String()
		in.ChatTitle = t.title(ctx, info.Chat)
	}
	// An edit has an id of its own, made from the original's and the time: edits of a message
	// differ.
	in.ID = messageID(info, info.ID)
	if edits = channels.Clean(edits, maxID); edits != "" {
		in.Edits = messageID(info, edits)
		in.ID = in.Edits + bus.EditMark + stamp
	}
	original := messageID(info, cmp.Or(copyOf(e.Message), copyOf(m)))
	if _, known := t.recent.find(in.From.Chat, original); known {
		return bus.InboundMessage{}, false
	}
	t.address(ctx, &in, parsed)
	// An edit changes only the words. Phones send the new caption in a file without an address.
	if in.Edits != "" {
		known, _ := t.recent.find(in.From.Chat, in.Edits)
		in.Attachments = known.files
	}
	t.recent.add(in.From.Chat, bare(in.ID), remembered{message: quotable(m), text: in.Text,
		files: in.Attachments, name: in.Sender.Name, sent: in.Time})
	return in, true
}

// sender returns who wrote a message that can't be decrypted. It returns false if the message can't
// be one for the agent.
func (t *translator) sender(ctx context.Context, info *types.MessageInfo) (inorder.Sender, bool) {
	if !isConversation(info) ||
		info.IsFromMe && (!t.people.me.is(info.Chat) || isOurs(info.ID)) {
		return inorder.Sender{}, false
	}
	author := t.people.author(ctx, info).id.String()
	if info.IsGroup {
		return inorder.Sender{Chat: info.Chat.String(), ID: author}, true
	}
	return inorder.Sender{Chat: author, ID: author}, true
}

// notAfterNow returns t, or now if t is in the future: the clocks of some senders are ahead.
func notAfterNow(t time.Time) time.Time {
	if now := time.Now(); t.After(now) {
		return now
	}
	return t
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

// noteRemoval notes that somebody has deleted one of our messages: the account's owner on the
// phone, or an admin of a group. Then a reply must not quote it any more, and phones ignore edits.
func (t *translator) noteRemoval(info *types.MessageInfo, m *waE2E.Message) {
	p := m.GetProtocolMessage()
	author, _ := types.ParseJID(p.GetKey().GetParticipant()) // as named by an admin
	if p.GetType() != waE2E.ProtocolMessage_REVOKE ||
		!(info.IsFromMe && p.GetKey().GetFromMe()) && !(info.IsGroup && t.people.me.is(author)) {
		return
	}
	chat := info.Chat
	if t.people.me.is(chat) {
		chat = t.people.me.person().id
	}
	t.recent.remove(chat.ToNonAD().String(), p.GetKey().GetID())
}

// edited returns the new text, the id of the edited message and the time of the edit, if m is an
// edit. Otherwise it returns only m.
func (t *translator) edited(
	ctx context.Context, e *events.Message, m *waE2E.Message,
) (_ *waE2E.Message, id, stamp string) {
	p := m.GetProtocolMessage()
	stamp = strconv.FormatInt(e.Info.Timestamp.UnixMilli(), 10)
	// An edit may be encrypted with a secret of the original message.
	if secret := m.GetSecretEncryptedMessage(); secret != nil &&
		secret.GetSecretEncType() == waE2E.SecretEncryptedMessage_MESSAGE_EDIT {
		plain, err := t.client.DecryptSecretEncryptedMessage(ctx, e)
		if err != nil {
			t.log.WarnContext(ctx, "edit can't be decrypted", "id", e.Info.ID, "err", err)
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

// bare returns the id of a message without the time of its edit.
func bare(id string) string {
	id, _, _ = strings.Cut(id, bus.EditMark)
	return id
}

// messageID returns the gateway's id of another person's message.
func messageID(info *types.MessageInfo, id string) string {
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

// address sets the text of a message and whether it is addressed to us.
func (t *translator) address(ctx context.Context, in *bus.InboundMessage, parsed content) {
	text, mentioned := t.people.mentions(ctx, parsed.text, parsed.context.GetMentionedJID())
	in.Text = text
	in.ReplyTo = t.quote(ctx, in, parsed.context)
	if parsed.context.GetIsForwarded() {
		in.Forwarded = "somebody" // WhatsApp does not name the author
	}
	in.Addressed = !in.Group || mentioned || strings.HasPrefix(strings.TrimSpace(text), "/") ||
		in.ReplyTo != nil && in.ReplyTo.Ours
}

// quote returns the message to which in replies, or nil.
func (t *translator) quote(
	ctx context.Context, in *bus.InboundMessage, info *waE2E.ContextInfo,
) *bus.Quote {
	id := channels.Clean(info.GetStanzaID(), maxID)
	if id == "" {
		return nil
	}
	q := &bus.Quote{ID: id}
	author, err := types.ParseJID(info.GetParticipant())
	author = author.ToNonAD()
	// Our own messages are remembered without a sender in their id, those of others in groups with
	// one.
	known, found := t.recent.find(in.From.Chat, id)
	q.Ours = err == nil && t.people.me.is(author) || found && known.ours
	if in.Self {
		q.Ours = isOurs(id) // the account's other messages are in the chat, too
	}
	switch {
	case q.Ours:
	case in.Group:
		q.ID = channels.Clean(author.String(), channels.MaxName) + "/" + id
		known, found = t.recent.find(in.From.Chat, q.ID)
		q.Sender = t.people.contact(ctx, author)
	default:
		q.Sender = in.Sender.Name
	}
	// The sender of a reply can forge the quoted text, its file and its author. So only what we
	// remember is certain, also if that has no text or no file.
	if q.Claimed = !found; found {
		q.Text, q.Attachments = known.text, known.files
		q.Ours = known.ours || in.Self && q.Ours
		if known.name != "" {
			q.Sender = known.name
		}
		return q
	}
	parsed, _ := read(info.GetQuotedMessage())
	q.Text, q.Attachments = parsed.text, parsed.files
	return q
}

// copies are the kinds of messages that repeat the file of an earlier one: a phone sends a picture
// or video at once in a small size, and then in a better one, or with the motion of the picture.
var copies = map[waE2E.MessageAssociation_AssociationType]bool{
	waE2E.MessageAssociation_HD_IMAGE_DUAL_UPLOAD:   true,
	waE2E.MessageAssociation_HD_VIDEO_DUAL_UPLOAD:   true,
	waE2E.MessageAssociation_HEVC_VIDEO_DUAL_UPLOAD: true,
	waE2E.MessageAssociation_MOTION_PHOTO:           true,
}

// copyOf returns WhatsApp's id of the message whose file m repeats, or "" if m repeats none.
func copyOf(m *waE2E.Message) string {
	a := m.GetMessageContextInfo().GetMessageAssociation()
	if !copies[a.GetAssociationType()] {
		return ""
	}
	return channels.Clean(a.GetParentMessageKey().GetID(), maxID)
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

package whatsapp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
)

// Send implements [channels.Channel]. The message's id is derived from the part's key, and phones
// show messages with the same id once. A part may therefore be sent again after any error, and no
// error is [channels.ErrUncertain].
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	id := c.messageKey(part.Key)
	return id, c.withSession(ctx, "send to", part.To, func(s *session, to types.JID) error {
		m, err := s.composer.compose(ctx, to, part)
		if err != nil {
			return err
		}
		if err := s.sender.sendAgain(ctx, to, id, m, id); err != nil {
			return err
		}
		parsed, _ := read(m) // for its file
		c.recent.add(to.String(), id, remembered{message: quotable(m), text: part.Text,
			files: parsed.files, ours: true, sent: time.Now()})
		return nil
	})
}

// Edit implements [channels.Editor]. WhatsApp allows edits for 20 minutes.
func (c *Channel) Edit(ctx context.Context, to bus.Address, id, text string) error {
	return c.withSession(ctx, "edit "+id+" in", to, func(s *session, chat types.JID) error {
		known, found := c.recent.find(chat.String(), id)
		sent := known.sent
		if !found { // for example after a restart
			var err error
			if sent, err = s.st.sentAt(ctx, id); err != nil {
				return err
			}
		}
		switch {
		case known.removed || sent.IsZero(): // phones ignore the edit
			return fmt.Errorf("%w: the message was deleted", channels.ErrRefused)
		case time.Since(sent) > c.opts.EditWindow:
			return fmt.Errorf("%w: WhatsApp lets nobody edit a message that is older than %v",
				channels.ErrRefused, c.opts.EditWindow)
		}
		formatted := markup.WhatsApp(text)
		m := s.client.BuildEdit(chat, id, &waE2E.Message{Conversation: &formatted})
		if err := s.sender.sendAgain(ctx, chat, c.messageKey(""), m, "edit "+id); err != nil {
			return err
		}
		if found {
			known.text, known.message = text, &waE2E.Message{Conversation: &formatted}
			c.recent.add(chat.String(), id, known)
		}
		return nil
	})
}

// Remove implements [channels.Remover].
func (c *Channel) Remove(ctx context.Context, to bus.Address, id string) error {
	return c.withSession(ctx, "remove "+id+" in", to, func(s *session, chat types.JID) error {
		if known, found := c.recent.find(chat.String(), id); found && known.removed {
			return fmt.Errorf("%w: the message was deleted", channels.ErrRefused)
		}
		// If the process dies before WhatsApp answers, the next one must not edit the message.
		if err := s.st.dropSent(ctx, id); err != nil {
			return err
		}
		m := s.client.BuildRevoke(chat, types.EmptyJID, id)
		if err := s.sender.sendAgain(ctx, chat, c.messageKey(""), m, "remove "+id); err != nil {
			return err
		}
		c.recent.remove(chat.String(), id)
		return nil
	})
}

// React implements [channels.Reactor].
func (c *Channel) React(ctx context.Context, to bus.Address, id, emoji string) error {
	return c.withSession(ctx, "react to "+id+" in", to, func(s *session, chat types.JID) error {
		sender, bareID := splitID(chat, id)
		m := s.client.BuildReaction(chat, sender, bareID, emoji)
		return s.sender.send(ctx, chat, c.messageKey(""), m, c.opts.MarkWait)
	})
}

// MarkRead implements [channels.Reader].
func (c *Channel) MarkRead(ctx context.Context, to bus.Address, ids []string) error {
	return c.withSession(ctx, "mark read in", to, func(s *session, chat types.JID) error {
		if s.me.is(chat) {
			return nil // nobody else could see it
		}
		var senders []types.JID
		bySender := make(map[types.JID][]types.MessageID)
		for _, id := range ids {
			sender, bareID := splitID(chat, id)
			if bySender[sender] == nil {
				// A receipt is for one sender. The list keeps the order of the messages.
				senders = append(senders, sender)
			}
			bySender[sender] = append(bySender[sender], bareID)
		}
		return s.working.do(ctx, func() error {
			ctx := context.WithoutCancel(ctx) // see sender.post: it must not end within a frame
			for _, sender := range senders {
				err := s.client.MarkRead(ctx, bySender[sender], time.Now(), chat, sender)
				if err != nil {
					return classify(err)
				}
			}
			return nil
		})
	})
}

// Type implements [channels.Typer]. WhatsApp shows the indicator for some 25 seconds, or until a
// message arrives.
func (c *Channel) Type(ctx context.Context, to bus.Address) error {
	return c.withSession(ctx, "type to", to, func(s *session, chat types.JID) error {
		if s.me.is(chat) {
			return nil // nobody else could see it
		}
		return s.working.do(ctx, func() error {
			ctx := context.WithoutCancel(ctx) // see sender.post: it must not end within a frame
			s.presence.enter(ctx)
			return classify(s.client.SendChatPresence(ctx, chat, types.ChatPresenceComposing,
				types.ChatPresenceMediaText))
		})
	})
}

// withSession calls f with the session and the chat of an address. what begins its error.
func (c *Channel) withSession(
	ctx context.Context, what string, to bus.Address, f func(*session, types.JID) error,
) error {
	var s *session
	chat, err := parseChat(to.Chat)
	if err == nil {
		s, err = c.current.wait(ctx, c.opts.ConnectWait)
	}
	if err == nil {
		err = f(s, chat)
	}
	if err != nil {
		return fmt.Errorf("whatsapp: %s %s: %w", what, to, c.rated(err))
	}
	return nil
}

// Deduplicates implements [channels.Deduplicator]: the id of a message follows from its key.
func (c *Channel) Deduplicates() {}

// Address implements [channels.Addresser]. It accepts phone numbers of people.
func (c *Channel) Address(chat string) (string, error) {
	j, err := parseChat(chat)
	if err != nil {
		return "", fmt.Errorf("%q is not a WhatsApp chat: use a phone number with + and the "+
			"country code, or an id that ends with @lid, @s.whatsapp.net or @g.us", chat)
	}
	return j.String(), nil
}

// phoneMarks removes what people write between the digits of a phone number.
var phoneMarks = strings.NewReplacer(" ", "", "-", "", "(", "", ")", "", "/", "", ".", "")

// parseChat returns the chat of an address.
func parseChat(chat string) (types.JID, error) {
	if number, ok := strings.CutPrefix(phoneMarks.Replace(chat), "+"); ok &&
		len(number) >= 7 && strings.Trim(number, "0123456789") == "" && number[0] != '0' {
		return types.NewJID(number, types.DefaultUserServer), nil
	}
	j, err := types.ParseJID(chat)
	if err == nil && j == j.ToNonAD() && j.User != "" && strings.Trim(j.User, "0123456789-") == "" {
		switch j.Server {
		case types.GroupServer, types.HiddenUserServer, types.DefaultUserServer:
			return j, nil
		}
	}
	return types.EmptyJID, fmt.Errorf("%w: no WhatsApp chat has this address", channels.ErrRefused)
}

// messageKey returns the id of the message with the given key, the same for each call; or a new id
// if key is "". isOurs recognises the id.
func (c *Channel) messageKey(key string) types.MessageID {
	// With the account's name in it, two accounts of a gateway never derive the same id.
	sum := sha256.Sum256([]byte(c.name + "\x00" + cmp.Or(key, rand.Text())))
	return newMessageID(strings.ToUpper(hex.EncodeToString(sum[:7])))
}

// newMessageID returns a message id made of 14 digits. It has 18 digits like the ids of WhatsApp
// Web, but the last four depend on the others.
func newMessageID(digits string) types.MessageID {
	sum := sha256.Sum256([]byte("gateway\x00" + digits))
	return whatsmeow.WebMessageIDPrefix + digits + strings.ToUpper(hex.EncodeToString(sum[:2]))
}

// isOurs reports whether a gateway sent the message with the given id: this one, at any time, or
// another one for the same account. One in 65,536 messages of WhatsApp Web looks the same.
func isOurs(id types.MessageID) bool {
	digits, ok := strings.CutPrefix(id, whatsmeow.WebMessageIDPrefix)
	return ok && len(digits) == 18 && newMessageID(digits[:14]) == id
}

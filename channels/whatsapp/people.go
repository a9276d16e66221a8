package whatsapp

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"

	"gateway/channels"
	"gateway/channels/recent"
)

// lookupWait is the time limit for requesting the hidden id of a phone number.
const lookupWait = 3 * time.Second

// maxPhoneOnly is the maximum number of remembered people without a hidden id.
const maxPhoneOnly = 5000

// A person holds the identifiers of a person.
type person struct {
	id    types.JID // hidden id, or the phone's id
	phone string    // digits, or ""
}

// An identity says who an account is. It is a copy, because the client clears its device when the
// account is logged out.
type identity struct {
	phone, hidden types.JID // its address by phone number, and its hidden id, if that is known
	name          string
}

// identityOf returns the identity of a linked device.
func identityOf(d *store.Device) identity {
	return identity{d.GetJID(), d.GetLID(), channels.Clean(d.PushName, channels.MaxName)}
}

// is reports whether j is the account itself.
func (i *identity) is(j types.JID) bool {
	return j.User != "" && (j.Server == types.DefaultUserServer && j.User == i.phone.User ||
		j.Server == types.HiddenUserServer && j.User == i.hidden.User)
}

// person returns the owner of the account.
func (i *identity) person() person {
	p := person{id: i.hidden.ToNonAD(), phone: i.phone.User}
	if i.hidden.IsEmpty() {
		p.id = i.phone.ToNonAD()
	}
	return p
}

// describe describes the account when it is connected.
func (i *identity) describe() string {
	if i.name == "" {
		return "connected as +" + i.phone.User
	}
	return "connected as +" + i.phone.User + " (" + i.name + ")"
}

// An addressBook knows the ids, phone numbers and names of people. Its methods are safe for
// concurrent use.
type addressBook struct {
	me       identity
	lids     store.LIDStore
	contacts store.ContactStore
	client   *whatsmeow.Client
	log      *slog.Logger

	phoneOnly *recent.Map[types.JID, bool] // people without a hidden id on WhatsApp
}

// author determines who wrote a message.
func (b *addressBook) author(ctx context.Context, info *types.MessageInfo) person {
	if info.IsFromMe {
		return b.me.person()
	}
	return b.person(ctx, info.Sender, info.SenderAlt)
}

// person determines the person behind one or two addresses. other may be empty. The hidden id comes
// from the message, the store or WhatsApp; the phone number only from the message or the store.
func (b *addressBook) person(ctx context.Context, j, other types.JID) person {
	j, other = j.ToNonAD(), other.ToNonAD()
	if j.Server == types.DefaultUserServer {
		p := person{id: j, phone: j.User}
		if other.Server != types.HiddenUserServer {
			other = b.hiddenID(ctx, j)
		}
		if other.Server == types.HiddenUserServer {
			p.id = other
		}
		return p
	}
	p := person{id: j}
	if other.Server != types.DefaultUserServer && j.Server == types.HiddenUserServer {
		other, _ = b.lids.GetPNForLID(ctx, j) // without it the number is unknown
	}
	if other.Server == types.DefaultUserServer {
		p.phone = other.User
	}
	return p
}

// hiddenID returns the hidden id of a phone number, from the store or from WhatsApp, or the zero
// JID.
func (b *addressBook) hiddenID(ctx context.Context, phone types.JID) types.JID {
	lid, err := b.lids.GetLIDForPN(ctx, phone)
	if err == nil && !lid.IsEmpty() {
		return lid.ToNonAD()
	}
	if _, asked := b.phoneOnly.Get(phone); asked {
		return types.EmptyJID
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	users, err := b.client.GetUserInfo(ctx, []types.JID{phone})
	if err != nil {
		b.log.InfoContext(ctx, "hidden id could not be read", "err", err)
		return types.EmptyJID
	}
	lid = users[phone].LID.ToNonAD()
	// This is an answer, not a failure, so it need not be asked for again.
	if lid.IsEmpty() {
		b.phoneOnly.Put(phone, true)
	}
	return lid
}

// nameOf returns the name of a message's sender: the sender's own choice, otherwise the phone's
// contact name.
func (b *addressBook) nameOf(ctx context.Context, info *types.MessageInfo, p person) string {
	if name := channels.Clean(info.PushName, channels.MaxName); name != "" && name != "-" {
		return name
	}
	return b.contact(ctx, p.id)
}

// contact returns the name of a user from the store, or "".
func (b *addressBook) contact(ctx context.Context, j types.JID) string {
	known, err := b.contacts.GetContact(ctx, j.ToNonAD())
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

// maxMentions is the maximum number of people to look up for one message. The client's store keeps
// everybody who was looked up in memory, also people whom it does not know.
const maxMentions = 50

// mentions replaces the numbers that WhatsApp writes into a text by names. It removes our own
// mention and reports whether there was one.
func (b *addressBook) mentions(
	ctx context.Context, text string, users []string,
) (_ string, ours bool) {
	var names []string // pairs of a mention and its replacement
	lookups := 0
	for _, u := range users {
		j, err := types.ParseJID(u)
		if err != nil || j.User == "" {
			continue
		}
		// The text contains the digits of an address, whatever its server.
		at := "@" + j.User
		if b.me.is(j) {
			ours = true
			if i := strings.Index(text, at); i >= 0 {
				if rest := channels.WithoutMention(text, i, i+len(at)); rest != "" {
					text = rest
				}
			}
			continue
		}
		if lookups == maxMentions || !strings.Contains(text, at) {
			continue
		}
		lookups++
		if name := b.contact(ctx, j); name != "" {
			names = append(names, at, "@"+name)
		}
	}
	// People choose their names, which may look like mentions. Replacing those, too, would make the
	// text longer with each mention.
	return strings.NewReplacer(names...).Replace(text), ours
}

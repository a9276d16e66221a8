package whatsapptest

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"

	"go.mau.fi/libsignal/ecc"
	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/store/sqlstore"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"gateway/channels/whatsapp/internal/sessionlock"
)

// A Person is somebody with a phone: a client that writes to the bot and sees the bot's
// messages. Its methods may be called concurrently.
type Person struct {
	s           *Server
	of          *account
	device      *device
	client      *whatsmeow.Client
	sessionLock *sessionlock.Lock
	db          *sql.DB
	once        sync.Once

	// All below is guarded by Server.mu.
	messages  []*Message
	reactions map[string]string // by message
	delivered map[string]bool
	read      map[string]bool
	typing    int
}

// Identity says how the server names a person.
type Identity int

// The identities.
const (
	Known   Identity = iota // by hidden id, with the phone number
	ByPhone                 // by phone number only; the server returns the hidden id on request
	NoLID                   // by phone number; the server never returns the hidden id
)

// NewPerson returns a person who is online until Close. Phone numbers and hidden ids are
// counted from 15550000002 and 100000000000002.
func (s *Server) NewPerson(ctx context.Context, name string, as Identity) (*Person, error) {
	s.mu.Lock()
	s.lastUser++
	n := s.lastUser
	a := s.addAccount("1555000"+fmt.Sprintf("%04d", n), "10000000000"+fmt.Sprintf("%04d", n), name)
	a.byPhone, a.hidden = as != Known, as == NoLID
	s.mu.Unlock()
	return s.person(ctx, a, n)
}

// Owner returns the owner of the bot's account with a client of their own, such as the phone.
func (s *Server) Owner(ctx context.Context) (*Person, error) {
	s.mu.Lock()
	s.lastUser++
	n := s.lastUser
	s.mu.Unlock()
	return s.person(ctx, s.bot, n)
}

// Link returns the person with a further device.
func (p *Person) Link(ctx context.Context) (*Person, error) {
	s := p.s
	s.mu.Lock()
	s.lastUser++
	n := s.lastUser
	s.mu.Unlock()
	return s.person(ctx, p.of, n)
}

// SetIdentity changes how the server names the person.
func (p *Person) SetIdentity(as Identity) {
	p.s.change(func() { p.of.byPhone, p.of.hidden = as != Known, as == NoLID })
}

// SetName changes the name that the person has chosen.
func (p *Person) SetName(ctx context.Context, name string) error {
	p.client.Store.PushName = name
	return p.client.SendPresence(ctx, types.PresenceAvailable)
}

func (s *Server) person(ctx context.Context, a *account, n int) (*Person, error) {
	u := url.URL{Scheme: "file", Opaque: filepath.ToSlash(s.personFile(n))}
	u.RawQuery = url.Values{"_pragma": {"foreign_keys(1)", "busy_timeout(5000)",
		"journal_mode(MEMORY)", "synchronous(OFF)"}}.Encode()
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	p := &Person{
		s: s, of: a, db: db,
		reactions: make(map[string]string),
		delivered: make(map[string]bool),
		read:      make(map[string]bool),
	}
	if err := p.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("whatsapptest: %s: %w", a.name, err), db.Close())
	}
	return p, nil
}

// connect links the person's client, without the detour of a QR code, and logs it in.
func (p *Person) connect(ctx context.Context) error {
	container := sqlstore.NewWithDB(p.db, "sqlite", nil)
	if err := container.Upgrade(ctx); err != nil {
		return err
	}
	d := container.NewDevice()
	if err := p.register(ctx, d); err != nil {
		return err
	}
	p.sessionLock = sessionlock.Attach(d)
	p.client = whatsmeow.NewClient(d, nil)
	p.client.SynchronousAck = true
	p.client.EnableDecryptedEventBuffer = true // the session lock needs it
	p.client.ManualHistorySyncDownload = true
	p.client.BackgroundEventCtx = context.WithoutCancel(ctx)
	to := &http.Client{Transport: redirect(p.s.base)}
	p.client.SetWebsocketHTTPClient(to)
	p.client.SetPreLoginHTTPClient(to)
	p.client.SetMediaHTTPClient(to)
	connected := make(chan struct{})
	var once sync.Once
	p.client.AddEventHandler(func(evt any) {
		if _, ok := evt.(*events.Connected); ok {
			once.Do(func() { close(connected) })
		}
		p.see(evt)
	})
	if err := p.client.Connect(); err != nil {
		return err
	}
	select {
	case <-connected:
	case <-ctx.Done():
		p.client.Disconnect()
		return ctx.Err()
	}
	return p.client.SendPresence(ctx, types.PresenceAvailable)
}

// register makes d a device of the person's account, on the server and in its own store.
func (p *Person) register(ctx context.Context, d *store.Device) error {
	registration := make([]byte, 4)
	binary.BigEndian.PutUint32(registration, d.RegistrationID)
	id := make([]byte, 4)
	binary.BigEndian.PutUint32(id, d.SignedPreKey.KeyID)
	s := p.s
	s.mu.Lock()
	p.device = &device{
		noise: *d.NoiseKey.Pub, identity: d.IdentityKey.Pub[:], registration: registration,
		signedKey: signedKey(id[1:], d.SignedPreKey.Pub[:], d.SignedPreKey.Signature[:]),
	}
	s.persons = append(s.persons, p)
	s.addDevice(p.of, p.device)
	d.Account = p.of.vouch(p.device)
	j, name := p.device.pn(), p.of.name
	d.ID, d.LID, d.PushName, d.Platform = &j, p.device.lid(), name, "android"
	s.mu.Unlock()
	signed := append(append([]byte{6, 1}, d.Account.Details...), d.IdentityKey.Pub[:]...)
	signed = append(signed, d.Account.AccountSignatureKey...)
	signature := ecc.CalculateSignature(ecc.NewDjbECPrivateKey(*d.IdentityKey.Priv), signed)
	d.Account.DeviceSignature = signature[:]
	return d.Save(ctx)
}

// redirect sends every request to a server at its base URL.
type redirect string

func (to redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := url.Parse(string(to))
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = base.Scheme, base.Host, base.Host
	return http.DefaultTransport.RoundTrip(r)
}

// leave ends the person's client.
func (p *Person) leave() {
	p.once.Do(func() {
		if p.client != nil {
			p.client.Disconnect()
		}
		_ = p.db.Close() // its file is deleted anyway
	})
}

// ViewOnce sends a view-once picture to the bot and returns the message's id. Linked devices
// learn only that the picture exists.
func (p *Person) ViewOnce() string {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	defer p.s.changed.Notify()
	n := node{Tag: "message", Attrs: attrs{"id": p.client.GenerateMessageID(), "type": "media"}}
	for _, d := range p.s.bot.devices {
		if !p.s.owned(d) {
			c := &conn{s: p.s, device: p.device}
			p.s.deliver(d, node{Tag: "message", Attrs: c.head(&n, p.s.bot.lid, nil, d),
				Content: []node{{Tag: "unavailable", Attrs: attrs{"type": "view_once"}}}})
		}
	}
	return n.Attrs["id"].(string)
}

// Offline ends the person's connection. Messages to them wait until Online.
func (p *Person) Offline() { p.client.Disconnect() }

// Online connects the person again.
func (p *Person) Online() error { return p.client.Connect() }

// Chat returns the address of the direct chat with the person, as the bot names it.
func (p *Person) Chat() string {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.of.hidden {
		return p.of.pn.String()
	}
	return p.of.lid.String()
}

// Phone returns the person's phone number, digits.
func (p *Person) Phone() string { return p.of.pn.User }

// LID returns the person's hidden id, digits.
func (p *Person) LID() string { return p.of.lid.User }

// Typing returns how often the person saw that the bot is typing.
func (p *Person) Typing() int { return locked(p.s, func() int { return p.typing }) }

// Reaction returns the emoji that the bot has put on a message, or "".
func (p *Person) Reaction(id string) string {
	return locked(p.s, func() string { return p.reactions[id] })
}

// Delivered reports whether a message of the person has reached the bot.
func (p *Person) Delivered(id string) bool {
	return locked(p.s, func() bool { return p.delivered[id] })
}

// Read reports whether the bot has read a message of the person.
func (p *Person) Read(id string) bool { return locked(p.s, func() bool { return p.read[id] }) }

// Settled reports whether the person has seen everything that was sent to them.
func (p *Person) Settled() bool {
	return locked(p.s, func() bool { return p.device.unread() == 0 })
}

// Messages returns the messages that the person has seen in a chat, oldest first. If chat is "",
// these are the bot's messages in the direct chat. Otherwise they are everybody's messages in
// the group.
func (p *Person) Messages(chat string) []Message {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	var all []Message
	for _, m := range p.messages {
		if m.Chat == chat {
			all = append(all, *m)
		}
	}
	return all
}

// Texts returns the texts of the messages that the person sees from the bot in the direct
// chat, oldest first, without those that were deleted.
func (p *Person) Texts() []string {
	var all []string
	for _, m := range p.Messages("") {
		if !m.Deleted && m.FromBot {
			all = append(all, m.Text)
		}
	}
	return all
}

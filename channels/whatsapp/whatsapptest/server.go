// Package whatsapptest is a WhatsApp server that keeps its state in memory.
//
// A [Server] speaks the protocol of linked devices with real clients. It pairs them by QR code
// and by phone code, relays their end-to-end encrypted messages, receipts and typing indicators,
// keeps unacknowledged messages, and stores media. It can't read messages, so people are
// clients, too: a [Person] writes to the bot and sees the bot's messages. [Server.Wait] waits
// for any change. Methods such as [Server.SetOutage] and [Server.RefuseSends] inject faults.
//
// It has one account of the gateway, the bot, with its owner's phone. It is stricter than
// WhatsApp in one respect: it records unknown stanzas in [Server.Violations]. History sync, app
// state and calls are missing. Persons store their keys in files in Options.Dir.
package whatsapptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/util/keys"

	"gateway/channels/channeltest/notifier"
	"gateway/channels/whatsapp/internal/mute"
)

// Options are the optional settings of a [Server]. The zero value is ready for use.
type Options struct {
	Phone string // of the bot, digits; default 15550000001
	LID   string // hidden id of the bot, digits; default 100000000000001
	Name  string // of the bot, as people see it; default Gateway

	Dir string       // for the stores of persons; default a temporary one, removed by Close
	Log func(string) // called with each stanza; default nothing
}

// A Server is a WhatsApp server for one bot. Its methods are safe for concurrent use.
type Server struct {
	static *keys.KeyPair
	cert   []byte
	dir    string
	tidy   bool // dir is removed by Close
	log    func(string)

	http    *http.Server
	base    string
	serving sync.WaitGroup
	closing chan struct{} // closed by Close
	closer  sync.Once

	mu         sync.Mutex
	closed     bool
	bot        *account
	accounts   map[types.JID]*account // by phone and by hidden id
	byNoise    map[[32]byte]*device
	unpaired   map[[32]byte]*conn
	passkey    *passkeyLink             // the link that must be confirmed, or nil
	codes      map[string]*phonePairing // by ref
	conns      map[*conn]bool
	groups     map[types.JID]*group
	persons    []*Person
	media      map[string][]byte // by path
	violations []string
	stopped    time.Time         // time of each message, or zero
	props      string            // name of the last device that asked to be linked
	lastUser   int               // of a person
	changed    notifier.Notifier // notified at each change
	faults
}

// An account is one phone number with its linked devices.
type account struct {
	pn, lid types.JID
	name    string
	primary *keys.KeyPair
	devices map[uint16]*device
	next    uint16

	byPhone bool // its stanzas identify it by phone number and omit the hidden id
	hidden  bool // the server never reveals its hidden id
}

// A device is a linked client of an account.
type device struct {
	of           *account
	id           uint16
	noise        [32]byte
	registration []byte
	identity     []byte
	signedKey    node
	preKeys      []node
	logins       int
	presences    []bool // whether it is online, as it has said
	conn         *conn
	queue        []*waiting // not acknowledged, oldest first
}

// A waiting stanza is delivered until it is acknowledged.
type waiting struct {
	class, id string
	n         node
	sent      bool
}

// A group is a group chat.
type group struct {
	jid     types.JID
	title   string
	members []*account
	byPhone bool // its members are named by phone number
	timer   int  // seconds after which its messages disappear, or 0
}

func (d *device) pn() types.JID  { return at(d.of.pn, d.id) }
func (d *device) lid() types.JID { return at(d.of.lid, d.id) }

func at(j types.JID, device uint16) types.JID {
	j.Device = device
	return j
}

// New returns a Server. A nil opts means the defaults.
func New(opts *Options) *Server {
	o := *cmp.Or(opts, new(Options))
	mute.SilenceSignal()
	s := &Server{
		static:   keys.NewKeyPair(),
		dir:      o.Dir,
		log:      o.Log,
		closing:  make(chan struct{}),
		accounts: make(map[types.JID]*account),
		byNoise:  make(map[[32]byte]*device),
		unpaired: make(map[[32]byte]*conn),
		codes:    make(map[string]*phonePairing),
		conns:    make(map[*conn]bool),
		groups:   make(map[types.JID]*group),
		media:    make(map[string][]byte),
		lastUser: 1,
	}
	s.bot = s.addAccount(cmp.Or(o.Phone, "15550000001"), cmp.Or(o.LID, "100000000000001"),
		cmp.Or(o.Name, "Gateway"))
	return s
}

func (s *Server) addAccount(phone, lid, name string) *account {
	a := &account{
		pn:      types.NewJID(phone, types.DefaultUserServer),
		lid:     types.NewJID(lid, types.HiddenUserServer),
		name:    name,
		primary: keys.NewKeyPair(),
		devices: make(map[uint16]*device),
		next:    1,
	}
	s.accounts[a.pn], s.accounts[a.lid] = a, a
	return a
}

// Start listens on a free loopback port and serves until Close. It returns the base URL, which
// replaces WhatsApp's own servers.
func (s *Server) Start(ctx context.Context) (baseURL string, err error) {
	if s.cert, err = certificate(s.static); err != nil {
		return "", err
	}
	if s.dir == "" {
		s.tidy = true
		if s.dir, err = os.MkdirTemp("", "whatsapptest-*"); err != nil {
			return "", err
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/chat", s.serveSocket)
	mux.HandleFunc("POST /mms/{kind}/{token}", s.upload)
	mux.HandleFunc("GET /v/{name}", s.download)
	mux.HandleFunc("GET /{$}", s.webPage)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.violation("unknown request %s %s", r.Method, r.URL.Path)
		http.NotFound(w, r)
	})
	// Clients open connections that they use much later. Closing one at that moment would lose the
	// call, so this time is longer than clients keep unused connections.
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 2 * time.Minute}
	s.base = "http://" + ln.Addr().String()
	s.serving.Go(func() {
		_ = s.http.Serve(ln) // ErrServerClosed, after Close
	})
	return s.base, nil
}

// Close disconnects the persons, closes all connections and stops listening.
func (s *Server) Close() {
	s.closer.Do(func() { close(s.closing) })
	s.mu.Lock()
	persons := slices.Clone(s.persons)
	s.mu.Unlock()
	for _, p := range persons {
		p.leave()
	}
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.close()
	}
	s.mu.Unlock()
	if s.http != nil {
		_ = s.http.Close() // the listener may already be closed
	}
	s.serving.Wait()
	if s.tidy {
		_ = os.RemoveAll(s.dir) // a temporary directory
	}
}

// Wait waits until cond returns true, and returns nil, or ctx's error if ctx is done first. It
// calls cond immediately and after each change of the server's state or of what a person sees.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	return s.changed.Wait(ctx, cond)
}

// change calls f with s.mu held.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// locked returns the result of f, which it calls with s.mu held.
func locked[T any](s *Server, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

func (s *Server) logf(format string, args ...any) {
	if s.log != nil {
		s.log(fmt.Sprintf(format, args...))
	}
}

// Violations returns unknown or forbidden actions of clients.
func (s *Server) Violations() []string {
	return locked(s, func() []string { return slices.Clone(s.violations) })
}

func (s *Server) violation(format string, args ...any) {
	s.change(func() { s.violate(format, args...) })
}

// violate records a violation. The caller holds s.mu.
func (s *Server) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	s.logf("violation: %s", v)
	s.violations = append(s.violations, v)
}

// Connected reports whether a linked device of the bot is connected and ready for messages.
func (s *Server) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.bot.devices {
		if d.conn != nil && d.conn.active && !s.owned(d) {
			return true
		}
	}
	return false
}

// owned reports whether d is a Person's client, not the gateway's. The caller holds s.mu.
func (s *Server) owned(d *device) bool {
	return slices.ContainsFunc(s.persons, func(p *Person) bool { return p.device == d })
}

// Devices returns how many devices of the bot are linked.
func (s *Server) Devices() int { return locked(s, func() int { return len(s.bot.devices) }) }

// Logins returns how often the bot's devices that are linked now have logged in.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.bot.devices {
		n += d.logins
	}
	return n
}

// Presences returns what the bot's devices have said, in order: whether they are online.
func (s *Server) Presences() (list []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.bot.devices {
		list = append(list, d.presences...)
	}
	return list
}

// DeviceName returns the name that the phone shows for the device that last asked to be linked.
func (s *Server) DeviceName() string { return locked(s, func() string { return s.props }) }

// Pending returns the number of messages that the bot has not acknowledged.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.bot.devices {
		if !s.owned(d) {
			n += d.unread()
		}
	}
	return n
}

// BotPhone returns the bot's phone number, digits.
func (s *Server) BotPhone() string { return s.bot.pn.User }

// BotLID returns the bot's hidden id, digits.
func (s *Server) BotLID() string { return s.bot.lid.User }

// AddGroup creates a group of the bot and the persons and returns its chat address. If byPhone is
// set, its members are identified by phone number, as in groups that have not moved to hidden ids.
func (s *Server) AddGroup(title string, byPhone bool, members ...*Person) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &group{
		jid:     types.NewJID("12036300000000"+strconv.Itoa(1000+len(s.groups)), types.GroupServer),
		title:   title,
		members: []*account{s.bot},
		byPhone: byPhone,
	}
	for _, p := range members {
		g.members = append(g.members, p.of)
	}
	s.groups[g.jid] = g
	return g.jid.String()
}

// group returns the group with the given address. The caller holds s.mu.
func (s *Server) group(chat string) (*group, error) {
	if g := s.groups[jid(chat)]; g != nil {
		return g, nil
	}
	return nil, errors.New("whatsapptest: no group " + chat)
}

// notice returns the stanza that tells members about a change of the group.
func (g *group) notice(id string, change node) node {
	return node{Tag: "notification", Attrs: attrs{"type": "w:gp2", "from": g.jid, "id": id,
		"t": unix(time.Now())}, Content: []node{change}}
}

// RenameGroup gives a group another title and tells its members.
func (s *Server) RenameGroup(chat, title string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	g, err := s.group(chat)
	if err != nil {
		return err
	}
	g.title = title
	for _, a := range g.members {
		for _, d := range a.devices {
			s.deliver(d, g.notice("subject-"+title,
				node{Tag: "subject", Attrs: attrs{"subject": title, "s_t": unix(time.Now())}}))
		}
	}
	return nil
}

// SetGroupTimer makes messages of a group disappear after the given number of seconds (0: never)
// and tells its online members.
func (s *Server) SetGroupTimer(chat string, seconds int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	g, err := s.group(chat)
	if err != nil {
		return err
	}
	g.timer = seconds
	change := node{Tag: "not_ephemeral"}
	if seconds > 0 {
		change = node{Tag: "ephemeral", Attrs: attrs{"expiration": strconv.Itoa(seconds)}}
	}
	for _, a := range g.members {
		s.toAll(a, g.notice("timer-"+strconv.Itoa(seconds), change))
	}
	return nil
}

// Expel removes the bot from a group.
func (s *Server) Expel(chat string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.group(chat)
	if err != nil {
		return err
	}
	g.remove(s.bot)
	return nil
}

func (g *group) remove(who *account) {
	g.members = slices.DeleteFunc(g.members, func(a *account) bool { return a == who })
}

// Invite makes a person add the bot to a group, and tells the bot.
func (s *Server) Invite(chat string, by *Person) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	g := s.groups[jid(chat)]
	g.remove(s.bot)
	g.members = append(g.members, s.bot)
	for _, d := range s.bot.devices {
		n := g.notice(fmt.Sprint("create-", len(d.queue), "-", g.jid.User),
			node{Tag: "create", Content: []node{g.wire()}})
		n.Attrs["participant"], n.Attrs["participant_pn"] = by.of.lid, by.of.pn
		n.Attrs["notify"] = by.of.name
		s.deliver(d, n)
	}
}

// InGroup reports whether the bot is a member of a group.
func (s *Server) InGroup(chat string) bool {
	return locked(s, func() bool { return slices.Contains(s.groups[jid(chat)].members, s.bot) })
}

// jid parses an address that this package created.
func jid(s string) types.JID {
	j, _ := types.ParseJID(s) // the zero JID belongs to nobody
	return j
}

// personFile returns a new path for the store of a person.
func (s *Server) personFile(n int) string {
	return filepath.Join(s.dir, "person-"+strconv.Itoa(n)+".db")
}

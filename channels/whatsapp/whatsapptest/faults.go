package whatsapptest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.mau.fi/whatsmeow/store"
)

// faults are the faults that the bot's clients meet. Server.mu guards them.
type faults struct {
	outage       bool
	hanging      bool
	silent       bool // pings get no answer
	refusals     []int
	refuseAll    int
	swallow      int
	ackDelay     time.Duration
	holdAcks     bool
	heldAcks     []func() // functions that send them
	damage       bool     // the next message to the bot
	holdRetries  bool     // the bot's requests to send a message again
	heldRetries  []func() // functions that pass them on
	failKeys     int
	keyless      *device // whose keys the server does not return
	quiet        bool    // clients don't hear of new devices
	loginFailure *LoginFailure
	mediaStatus  int
	breakMedia   int
	sends        int
	groupQueries int
	refuseLeave  int
	wantPasskey  bool
	newVersion   uint32 // of WhatsApp Web, which clients must have; 0: the library's
}

// A LoginFailure says why a client may not log in.
type LoginFailure struct {
	Reason  int  // such as 402 (banned for a time), 405 (client too old) or 503
	Code    int  // why an account is banned
	Expire  int  // seconds until the ban ends
	Pairing bool // for clients that are being linked, not for linked ones
	Times   int  // how many logins fail; default one
}

// open reports whether the servers can be reached, and answers w if not.
func (s *Server) open(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	outage, hanging := s.outage, s.hanging
	s.mu.Unlock()
	if hanging {
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
		return false
	}
	if outage {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return false
	}
	return true
}

// deaf reports whether the server ignores what clients send.
func (s *Server) deaf(c *conn) bool {
	return locked(s, func() bool { return s.hanging && (c.device == nil || c.device.of == s.bot) })
}

// SetOutage says whether WhatsApp is down for everybody. It closes the bot's connections.
func (s *Server) SetOutage(on bool) {
	s.mu.Lock()
	s.outage = on
	s.mu.Unlock()
	if on {
		s.Drop()
	}
}

// SetHang says whether the servers accept what the bot sends but never answer.
func (s *Server) SetHang(on bool) { s.change(func() { s.hanging = on }) }

// SetSilent says whether the bot's pings get no answer.
func (s *Server) SetSilent(on bool) { s.change(func() { s.silent = on }) }

// Drop cuts the bot's connections, including those that wait to be linked.
func (s *Server) Drop() {
	s.each(func(c *conn) { c.close() })
}

// each calls f for every connection of the gateway's clients.
func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.device == nil || c.device.of == s.bot && !s.owned(c.device) {
			f(c)
		}
	}
}

// Replace takes over the connection, like another program with the bot's keys.
func (s *Server) Replace() {
	s.each(func(c *conn) { c.finish(conflict("replaced")) })
}

// Restart makes the bot's clients reconnect, with the given code: 515 after linking, 503 when a
// server goes down.
func (s *Server) Restart(code int) {
	s.each(func(c *conn) {
		c.finish(node{Tag: "stream:error", Attrs: attrs{"code": strconv.Itoa(code)}})
	})
}

// LogOut removes the gateway from the phone's list of devices, as the bot's owner can.
func (s *Server) LogOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.bot.devices {
		if s.owned(d) {
			continue
		}
		delete(s.byNoise, d.noise)
		delete(s.bot.devices, id)
		if d.conn != nil {
			d.conn.finish(conflict("device_removed"))
		}
	}
	s.announce(s.bot)
	s.changed.Notify()
}

// FailLogin makes logins of the gateway fail.
func (s *Server) FailLogin(f LoginFailure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(1, f.Times)
	s.loginFailure = &f
}

// ReleaseVersion makes the server refuse clients that are older than a version of WhatsApp Web that
// is newer than the library.
func (s *Server) ReleaseVersion() {
	s.change(func() { s.newVersion = store.GetWAVersion()[2] + 1000 })
}

// webPage returns the page of WhatsApp Web as far as clients read it.
func (s *Server) webPage(w http.ResponseWriter, r *http.Request) {
	if !s.open(w, r) {
		return
	}
	version := max(store.GetWAVersion()[2], locked(s, func() uint32 { return s.newVersion }))
	fmt.Fprintf(w, `<html><script>{"client_revision":%d,"tier":null}</script></html>`, version)
}

// takeLoginFailure counts a failed login and returns the stanza with its reason. The caller
// holds s.mu.
func (s *Server) takeLoginFailure() node {
	f := s.loginFailure
	if f.Times--; f.Times == 0 {
		s.loginFailure = nil
	}
	a := attrs{"reason": strconv.Itoa(f.Reason), "location": "test"}
	if f.Code != 0 {
		a["code"], a["expire"] = strconv.Itoa(f.Code), strconv.Itoa(f.Expire)
	}
	return node{Tag: "failure", Attrs: a}
}

// RefuseSends makes the bot's next messages fail, each with one of the codes: 429 for too many
// messages, 463 for a stranger, 479 for a bad address.
func (s *Server) RefuseSends(codes ...int) {
	s.change(func() { s.refusals = append(s.refusals, codes...) })
}

// RefuseAllSends makes all of the bot's messages fail with a code; 0 ends it.
func (s *Server) RefuseAllSends(code int) { s.change(func() { s.refuseAll = code }) }

// SwallowAcks makes the bot's next n messages arrive without an acknowledgement.
func (s *Server) SwallowAcks(n int) { s.change(func() { s.swallow = n }) }

// HoldAcks delays acknowledgements of the bot's messages until release is called.
func (s *Server) HoldAcks() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdAcks = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, send := range s.heldAcks {
			send()
		}
		s.holdAcks, s.heldAcks = false, nil
	}
}

// DelayAcks delays acknowledgements of the bot's messages by the given time.
func (s *Server) DelayAcks(d time.Duration) { s.change(func() { s.ackDelay = d }) }

// Damage makes the bot unable to decrypt the next message to it. The bot's requests to send it
// again reach nobody until resend is called.
func (s *Server) Damage() (resend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage, s.holdRetries = true, true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holdRetries = false
		for _, pass := range s.heldRetries {
			pass()
		}
		s.heldRetries = nil
	}
}

// spoil damages a copy of a message for d, if that is due. The caller holds s.mu.
func (s *Server) spoil(d *device, content []node) {
	if !s.damage || d.of != s.bot || s.owned(d) {
		return
	}
	for i, n := range content {
		if n.Tag == "enc" {
			content[i].Content, s.damage = []byte("damaged"), false
		}
	}
}

// FailKeys makes the bot's next n requests for people's keys fail.
func (s *Server) FailKeys(n int) { s.change(func() { s.failKeys = n }) }

// WithholdKeys makes the server return no keys of the person's device, as for a device that has
// none left. nil ends that.
func (s *Server) WithholdKeys(p *Person) {
	s.change(func() {
		if s.keyless = nil; p != nil {
			s.keyless = p.device
		}
	})
}

// HideNewDevices makes clients hear of new devices only if they ask, as if the news were lost.
func (s *Server) HideNewDevices() { s.change(func() { s.quiet = true }) }

// Sends returns how many messages of all clients were relayed.
func (s *Server) Sends() int { return locked(s, func() int { return s.sends }) }

// GroupQueries returns how often clients asked about groups.
func (s *Server) GroupQueries() int { return locked(s, func() int { return s.groupQueries }) }

// RefuseLeave makes WhatsApp refuse, with this code, to let accounts leave groups. 0 ends that.
func (s *Server) RefuseLeave(code int) { s.change(func() { s.refuseLeave = code }) }

// refusal returns the code with which a message of c is refused, or 0. The caller holds s.mu.
func (c *conn) refusal(g *group) int {
	s := c.s
	if g != nil && !slices.Contains(g.members, c.device.of) {
		return 403
	}
	if c.device.of != s.bot || s.owned(c.device) {
		return 0
	}
	if len(s.refusals) > 0 {
		code := s.refusals[0]
		s.refusals = s.refusals[1:]
		return code
	}
	return s.refuseAll
}

// acknowledge sends the answer to a message of c, unless a fault prevents or delays it. The caller
// holds s.mu.
func (c *conn) acknowledge(ack node) {
	s := c.s
	switch {
	case c.device.of != s.bot || s.owned(c.device):
		c.send(ack)
	case s.swallow > 0:
		s.swallow--
	case s.holdAcks:
		s.heldAcks = append(s.heldAcks, func() { c.send(ack) })
	case s.ackDelay > 0:
		time.AfterFunc(s.ackDelay, func() { c.send(ack) })
	default:
		c.send(ack)
	}
}

package whatsapptest

import (
	"context"
	"crypto/cipher"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	waBinary "go.mau.fi/whatsmeow/binary"
	"go.mau.fi/whatsmeow/proto/waWa6"
	"go.mau.fi/whatsmeow/types"
)

type (
	node  = waBinary.Node
	attrs = waBinary.Attrs
)

// A conn is the websocket of one client.
type conn struct {
	s       *Server
	ws      *websocket.Conn
	in      []byte // read but not used yet
	noise   [32]byte
	payload waWa6.ClientPayload
	close   context.CancelFunc

	readKey, writeKey cipher.AEAD
	read, written     uint32

	// All of these are guarded by s.mu.
	device *device // nil before the login, and once another connection has replaced this one
	active bool    // stanzas may be delivered

	mu   sync.Mutex
	out  []node
	last time.Duration // if not 0: hang up that long after the end of out; nothing may be added to out
	wake chan struct{}
}

// serveSocket is the chat server: it serves one client until either side leaves.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	s.serving.Add(1)
	defer s.serving.Done()
	if !s.open(w, r) {
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }() // it may be closed already
	ws.SetReadLimit(1 << 25)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ws.CloseNow() })
	defer stop()
	c := &conn{s: s, ws: ws, close: cancel, wake: make(chan struct{}, 1)}
	if !s.enter(c) {
		return
	}
	defer s.leave(c)
	if err := c.handshake(ctx); err != nil {
		s.logf("handshake: %v", err)
		return
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	writing.Go(func() { c.writeAll(ctx) })
	if c.login() {
		c.readAll(ctx)
		return
	}
	for err := error(nil); err == nil; { // until the reason was read
		_, err = c.frame(ctx)
	}
}

// enter notes an open socket, unless the server is closing.
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = true
	s.changed.Notify()
	return true
}

// leave removes a socket. The next socket of the device gets the stanzas that its client has not
// acknowledged.
func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	delete(s.unpaired, c.noise)
	if d := c.device; d != nil && d.conn == c {
		d.conn = nil
		for _, w := range d.queue {
			w.sent = false
		}
	}
	s.changed.Notify()
}

// send queues n. Stanzas to one client arrive in order.
func (c *conn) send(n node) { c.enqueue(n, 0) }

// How long the server waits before it hangs up. Clients drop stanzas that they have not handled by
// then.
const (
	lastWord = 200 * time.Millisecond // for a client that reconnects anyway
	verdict  = 30 * time.Second       // for a client that hangs up itself once it has read the reason
)

// finish queues n and hangs up after it.
func (c *conn) finish(n node) {
	hold := verdict
	for _, key := range []string{"code", "reason"} { // of an error of the server
		code, _ := n.Attrs[key].(string)
		if strings.HasPrefix(code, "5") && code != "515" { // at 515 the client connects anew
			hold = lastWord
		}
	}
	c.enqueue(n, hold)
}

func (c *conn) enqueue(n node, last time.Duration) {
	c.mu.Lock()
	if c.last == 0 {
		c.out = append(c.out, n)
		c.last = last
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// writeAll writes the queue until ctx is done or the connection ends.
func (c *conn) writeAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		out, last := c.out, c.last
		c.out = nil
		c.mu.Unlock()
		for _, n := range out {
			if err := c.write(ctx, n); err != nil {
				c.close()
				return
			}
		}
		if last > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(last):
			}
			c.close()
			return
		}
	}
}

func (c *conn) write(ctx context.Context, n node) error {
	b, err := waBinary.Marshal(n)
	if err != nil {
		c.s.violation("marshal %s: %v", n.Tag, err)
		return err
	}
	c.s.logf("to %s: %s", c.name(), &n)
	sealed := c.writeKey.Seal(nil, nonce(c.written), b, nil)
	c.written++
	return c.writeFrame(ctx, sealed)
}

// readAll handles stanzas until the connection ends.
func (c *conn) readAll(ctx context.Context) {
	for {
		f, err := c.frame(ctx)
		if err != nil {
			return
		}
		b, err := c.readKey.Open(nil, nonce(c.read), f, nil)
		c.read++
		if err != nil {
			c.s.violation("a frame can't be decrypted: %v", err)
			return
		}
		raw, err := waBinary.Unpack(b)
		if err != nil {
			c.s.violation("a frame can't be unpacked: %v", err)
			return
		}
		n, err := waBinary.Unmarshal(raw)
		if err != nil {
			c.s.violation("a stanza can't be read: %v", err)
			return
		}
		c.s.logf("from %s: %s", c.name(), n)
		if !c.s.deaf(c) {
			c.handle(n)
		}
	}
}

// name returns the client's name in the log.
func (c *conn) name() string {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.device == nil {
		return "new device"
	}
	return c.device.pn().String()
}

// login tells the client the result of its login: QR codes for a new client, success, or the reason
// of a refusal. It reports whether the connection continues.
func (c *conn) login() bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	agent := c.payload.GetUserAgent()
	ours := c.payload.GetDevicePairingData() != nil || s.byNoise[c.noise] != nil &&
		s.byNoise[c.noise].of == s.bot
	if ours && agent.GetAppVersion().GetTertiary() < s.newVersion {
		c.finish(node{Tag: "failure", Attrs: attrs{"reason": "405"}})
		return false
	}
	if c.payload.GetDevicePairingData() != nil {
		if s.loginFailure != nil && s.loginFailure.Pairing {
			c.finish(s.takeLoginFailure())
			return false
		}
		s.unpaired[c.noise] = c
		c.send(s.pairDevice())
		return true
	}
	d := s.byNoise[c.noise]
	switch {
	case d == nil:
		c.finish(node{Tag: "failure", Attrs: attrs{"reason": "401"}})
		return false
	case s.loginFailure != nil && !s.loginFailure.Pairing && d.of == s.bot:
		c.finish(s.takeLoginFailure())
		return false
	}
	if d.conn != nil {
		d.conn.finish(conflict("replaced"))
		d.conn.device = nil
		for _, w := range d.queue {
			w.sent = false
		}
	}
	d.conn, c.device = c, d
	d.logins++
	c.send(node{Tag: "success", Attrs: attrs{"t": unix(time.Now()), "lid": d.lid()}})
	return true
}

func conflict(kind string) node {
	n := node{Tag: "stream:error", Attrs: attrs{}, Content: []node{
		{Tag: "conflict", Attrs: attrs{"type": kind}},
	}}
	if kind == "device_removed" {
		n.Attrs["code"] = "401"
	}
	return n
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// handle executes one stanza of the client.
func (c *conn) handle(n *node) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	if c.device == nil && n.Tag != "iq" {
		if n.Tag != "ack" && n.Tag != "ib" && s.unpaired[c.noise] != nil {
			s.violate("a client that is not logged in sends <%s>", n.Tag)
		}
		return // it was replaced, or is not linked yet
	}
	switch n.Tag {
	case "iq":
		c.iq(n)
	case "message":
		c.relay(n)
	case "receipt":
		c.receipt(n)
	case "ack":
		class, _ := n.Attrs["class"].(string)
		c.device.acked(class, fmt.Sprint(n.Attrs["id"]))
	case "presence":
		c.presence(n)
	case "chatstate":
		c.chatstate(n)
	case "ib": // telemetry
		if _, ok := n.GetOptionalChildByTag("unified_session"); !ok {
			s.violate("unknown stanza %s", n)
		}
	default:
		s.violate("unknown stanza <%s>", n.Tag)
	}
}

// presence records whether a client is online. The caller holds s.mu.
func (c *conn) presence(n *node) {
	if n.Attrs["type"] != "available" && n.Attrs["type"] != "unavailable" {
		c.s.violate("unknown presence %s", n)
	}
	if name, ok := n.Attrs["name"].(string); ok {
		c.device.of.name = name
	}
	c.device.presences = append(c.device.presences, n.Attrs["type"] == "available")
}

// chatstate passes on a typing indicator. The caller holds s.mu.
func (c *conn) chatstate(n *node) {
	to, _ := n.Attrs["to"].(types.JID)
	if g := c.s.groups[to]; g != nil {
		for _, a := range g.members {
			if a != c.device.of {
				c.s.toAll(a, node{Tag: "chatstate", Attrs: attrs{"from": to,
					"participant": c.device.of.lid}, Content: n.Content})
			}
		}
		return
	}
	a := c.s.accounts[to]
	if a == nil || a == c.device.of {
		c.s.violate("<chatstate> to %s, which is not another account", to)
		return
	}
	c.s.toAll(a, node{Tag: "chatstate", Attrs: attrs{"from": c.device.of.lid}, Content: n.Content})
}

package discordtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Intents that matter to the server.
const (
	intentMembers        = 1 << 1
	intentPresences      = 1 << 8
	intentGuildMessages  = 1 << 9
	intentDirectMessages = 1 << 12
	intentContent        = 1 << 15
	allIntents           = 1<<26 - 1
)

// The operations of the gateway.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opPresence       = 3
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opHeartbeatAck   = 11
)

// silence cuts the connection instead of answering.
const silence = -1

// maxReplay is how many events of a session can be replayed.
const maxReplay = 5000

// A session is a bot's session with the gateway, which the bot can resume. It outlives its
// connection.
type session struct {
	id      string
	shard   [2]int
	intents int
	seq     int64
	log     [][]byte // last events; the newest has number seq
	conn    *conn    // nil: not connected
}

// A conn is a connection to the gateway.
type conn struct {
	ws      *websocket.Conn
	session *session // nil before IDENTIFY or RESUME
	queue   [][]byte // not yet written
	wake    chan struct{}
	ended   chan struct{} // closed when nothing more will be written
	code    int           // the server's close code; 0: silent
	over    bool
}

type frame struct {
	Op   int    `json:"op"`
	Data any    `json:"d"`
	Seq  int64  `json:"s,omitempty"`
	Type string `json:"t,omitempty"`
}

// gatewayFaults are the faults of the gateway.
type gatewayFaults struct {
	outage   bool
	mute     bool // heartbeats are not acknowledged
	frozen   bool // nothing is sent
	refuse   []int
	onResume []int // operations that answer the next RESUMEs, or close codes, or silence
	unquoted bool  // replies lack the message to which they reply

	starts int       // sessions that the bot may still begin before reset
	reset  time.Time // when it may begin dailyStarts again
}

// dailyStarts is how many sessions a bot may begin in 24 hours.
const dailyStarts = 1000

// refill begins a new day of sessions when the last one has ended. The caller holds s.mu.
func (s *Server) refill() {
	if now := time.Now(); !now.Before(s.gateway.reset) {
		s.gateway.starts, s.gateway.reset = dailyStarts, now.Add(24*time.Hour)
	}
}

// getGatewayBot returns the address of the gateway and how many sessions the bot may begin.
func (s *Server) getGatewayBot() reply {
	s.refill()
	return reply{result: map[string]any{
		"url": "ws" + strings.TrimPrefix(s.base, "http") + "/gateway", "shards": 1,
		"session_start_limit": map[string]any{
			"total": dailyStarts, "remaining": s.gateway.starts, "max_concurrency": 1,
			"reset_after": time.Until(s.gateway.reset).Milliseconds(),
		},
	}}
}

// start counts a session that the bot begins. If there are too many, the server ends all of them
// and makes the token invalid, as Discord does.
func (s *Server) start() (ok bool) {
	s.refill()
	if s.gateway.starts > 0 {
		s.gateway.starts--
		return true
	}
	s.token = "reset-" + s.nextID()
	clear(s.sessions)
	return false
}

// serveGateway serves a bot until the connection ends.
func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request) {
	ws, err := s.up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	c := &conn{ws: ws, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	s.mu.Lock()
	select {
	case <-s.closing:
		s.mu.Unlock()
		_ = ws.Close() // the bot may be gone already
		return
	default:
	}
	s.serving.Add(1)
	defer s.serving.Done()
	s.conns[c] = true
	s.send(c, opHello, map[string]any{"heartbeat_interval": s.opts.Heartbeat.Milliseconds()})
	if q := r.URL.Query(); q.Get("v") != "9" || q.Get("encoding") != "json" {
		s.end(c, 4012)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		defer close(done)
		s.writeFrames(c)
	}()
	s.readFrames(c)
	s.mu.Lock()
	s.end(c, 0)
	s.changed.Notify()
	s.mu.Unlock()
	<-done
	_ = ws.Close() // it is closed already
}

// writeFrames writes the queue until the connection ends.
func (s *Server) writeFrames(c *conn) {
	for over := false; !over; {
		select {
		case <-c.wake:
		case <-c.ended:
			over = true
		}
		s.mu.Lock()
		queue, code := c.queue, c.code
		c.queue = nil
		s.mu.Unlock()
		if over && code == 0 {
			break
		}
		_ = c.ws.SetWriteDeadline(time.Now().Add(5 * time.Second)) // it never fails
		for _, f := range queue {
			if c.ws.WriteMessage(websocket.TextMessage, f) != nil {
				break // the reader notices, too
			}
		}
		if over {
			goodbye := websocket.FormatCloseMessage(code, closeTexts[code])
			_ = c.ws.WriteMessage(websocket.CloseMessage, goodbye) // the bot may be gone
		}
	}
	_ = c.ws.Close() // ends the reader
}

var closeTexts = map[int]string{
	4001: "Unknown opcode.", 4002: "Decode error.", 4003: "Not authenticated.",
	4004: "Authentication failed.", 4005: "Already authenticated.", 4007: "Invalid seq.",
	4009: "Session timed out.", 4010: "Invalid shard.", 4011: "Sharding required.",
	4012: "Invalid API version.", 4013: "Invalid intents.", 4014: "Disallowed intents.",
}

// readFrames handles the bot's frames until the connection ends.
func (s *Server) readFrames(c *conn) {
	for {
		_ = c.ws.SetReadDeadline(time.Now().Add(5 * s.opts.Heartbeat / 2)) // it never fails
		_, raw, err := c.ws.ReadMessage()
		s.mu.Lock()
		if err != nil {
			s.lost(c, err)
			s.mu.Unlock()
			return
		}
		var f struct {
			Op   int             `json:"op"`
			Data json.RawMessage `json:"d"`
		}
		if json.Unmarshal(raw, &f) != nil {
			s.end(c, 4002)
		} else if code := s.obey(c, f.Op, f.Data); code != 0 {
			s.end(c, code)
		}
		s.changed.Notify()
		s.mu.Unlock()
	}
}

// lost records that a connection has ended. If the bot closed it first, permanently, its session
// ends, too. The caller holds s.mu.
func (s *Server) lost(c *conn, err error) {
	closed, ok := errors.AsType[*websocket.CloseError](err)
	if ok && !c.over && (closed.Code == 1000 || closed.Code == 1001) && c.session != nil {
		delete(s.sessions, c.session.id)
	}
}

// obey executes a frame of the bot and returns the code with which to close, or 0. The caller holds
// s.mu.
func (s *Server) obey(c *conn, op int, data json.RawMessage) int {
	switch op {
	case opHeartbeat:
		s.calls["heartbeat"]++
		if !s.gateway.mute {
			s.send(c, opHeartbeatAck, nil)
		}
		return 0
	case opIdentify:
		s.calls["identify"]++
		return s.identify(c, data)
	case opResume:
		s.calls["resume"]++
		return s.resume(c, data)
	case opPresence:
		if c.session == nil {
			return 4003
		}
		return 0
	}
	return 4001
}

func (s *Server) authentic(token string) bool {
	return strings.TrimPrefix(token, "Bot ") == s.token
}

// identify begins a session.
func (s *Server) identify(c *conn, data json.RawMessage) int {
	var d struct {
		Token   string  `json:"token"`
		Intents *int    `json:"intents"`
		Shard   *[2]int `json:"shard"`
	}
	if json.Unmarshal(data, &d) != nil {
		return 4002
	}
	if c.session == nil && s.authentic(d.Token) && !s.start() {
		return 4004
	}
	if len(s.gateway.refuse) > 0 {
		code := s.gateway.refuse[0]
		s.gateway.refuse = s.gateway.refuse[1:]
		return code
	}
	shard := [2]int{0, 1}
	if d.Shard != nil {
		shard = *d.Shard
	}
	switch {
	case c.session != nil:
		return 4005
	case !s.authentic(d.Token):
		return 4004
	case shard[1] < 1 || shard[0] < 0 || shard[0] >= shard[1]:
		return 4010
	case d.Intents == nil || *d.Intents&^allIntents != 0:
		return 4013
	case *d.Intents&(intentMembers|intentPresences) != 0,
		*d.Intents&intentContent != 0 && s.opts.NoContent:
		return 4014
	}
	for id, old := range s.sessions {
		if old.conn == nil && old.shard == shard {
			delete(s.sessions, id) // a bot that identifies does not resume
		}
	}
	se := &session{id: "session-" + s.nextID(), shard: shard, intents: *d.Intents, conn: c}
	s.sessions[se.id], c.session = se, se
	guilds := []any{}
	for id := range s.guilds {
		guilds = append(guilds, map[string]any{"id": id, "unavailable": true})
	}
	s.event(se, "READY", map[string]any{
		"v": 9, "user": s.bot, "guilds": guilds, "session_id": se.id, "shard": shard,
		"resume_gateway_url": "ws" + strings.TrimPrefix(s.base, "http") + "/gateway",
		"application":        map[string]any{"id": s.bot.ID, "flags": 0},
	})
	return 0
}

// resume continues a session and first replays missed events.
func (s *Server) resume(c *conn, data json.RawMessage) int {
	var d struct {
		Token string `json:"token"`
		ID    string `json:"session_id"`
		Seq   int64  `json:"seq"`
	}
	if json.Unmarshal(data, &d) != nil {
		return 4002
	}
	if len(s.gateway.onResume) > 0 {
		op := s.gateway.onResume[0]
		s.gateway.onResume = s.gateway.onResume[1:]
		switch {
		case op == silence:
			s.end(c, 0)
			return 0
		case op >= 4000:
			return op
		case op == opInvalidSession:
			delete(s.sessions, d.ID)
		}
		s.send(c, op, false)
		return 0
	}
	se := s.sessions[d.ID]
	switch {
	case c.session != nil:
		return 4005
	case !s.authentic(d.Token):
		return 4004
	case se == nil || se.seq-int64(len(se.log)) > d.Seq:
		s.send(c, opInvalidSession, false)
		return 0
	case d.Seq > se.seq || d.Seq < 0:
		delete(s.sessions, se.id)
		return 4007
	}
	if se.conn != nil {
		s.end(se.conn, 4000)
	}
	se.conn, c.session = c, se
	for _, missed := range se.log[len(se.log)-int(se.seq-d.Seq):] {
		s.queue(c, missed)
	}
	s.event(se, "RESUMED", map[string]any{"_trace": []string{}})
	return 0
}

// dispatch sends an event to each session with the right shard and intents. The caller holds s.mu.
func (s *Server) dispatch(event string, g *guild, intent int, data func(intents int) any) {
	for _, se := range s.sessions {
		shard := 0
		if g != nil {
			shard = int((number(g.id) >> 22) % uint64(se.shard[1]))
		}
		if se.shard[0] == shard && (intent == 0 || se.intents&intent != 0) {
			s.event(se, event, data(se.intents))
		}
	}
	s.changed.Notify()
}

// event adds an event to a session. The caller holds s.mu.
func (s *Server) event(se *session, event string, data any) {
	se.seq++
	raw, err := json.Marshal(frame{Op: opDispatch, Data: data, Seq: se.seq, Type: event})
	if err != nil {
		panic(err) // the test put something into Extra that is not JSON
	}
	se.log = append(se.log, raw)
	if n := len(se.log) - maxReplay; n > 0 {
		clear(se.log[:n])
		se.log = se.log[n:]
	}
	if se.conn != nil {
		s.queue(se.conn, raw)
	}
}

// send queues a frame that is not an event. The caller holds s.mu.
func (s *Server) send(c *conn, op int, data any) {
	raw, _ := json.Marshal(frame{Op: op, Data: data}) // booleans and maps always marshal
	s.queue(c, raw)
}

func (s *Server) queue(c *conn, raw []byte) {
	if c.over || s.gateway.frozen {
		return
	}
	c.queue = append(c.queue, raw)
	select {
	case c.wake <- struct{}{}:
	default: // the writer has a token already
	}
}

// end closes a connection, with a code or silently. The caller holds s.mu.
func (s *Server) end(c *conn, code int) {
	if c.over {
		return
	}
	c.over, c.code = true, code
	delete(s.conns, c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
		if code == 4007 || code == 4009 {
			delete(s.sessions, c.session.id)
		}
	}
	close(c.ended)
}

package discordtest

import (
	"slices"
	"time"
)

// Connected returns how many sessions are connected to the gateway.
func (s *Server) Connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, se := range s.sessions {
		if se.conn != nil {
			n++
		}
	}
	return n
}

// each calls do for each connection to the gateway.
func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
	s.changed.Notify()
}

// Drop cuts each connection to the gateway silently. The sessions can be resumed.
func (s *Server) Drop() { s.each(func(c *conn) { s.end(c, 0) }) }

// CloseGateway closes every connection to the gateway with one of Discord's codes.
func (s *Server) CloseGateway(code int) { s.each(func(c *conn) { s.end(c, code) }) }

// Reconnect asks every bot that is connected to reconnect and resume (operation 7).
func (s *Server) Reconnect() { s.each(func(c *conn) { s.send(c, opReconnect, nil) }) }

// InvalidSession tells each connected bot that its session is over (operation 9). If resumable is
// true, the bot may resume it on a new connection instead.
func (s *Server) InvalidSession(resumable bool) {
	s.each(func(c *conn) {
		if c.session != nil {
			if !resumable {
				delete(s.sessions, c.session.id)
			}
			c.session.conn = nil
			c.session = nil // the bot may identify on the same connection
		}
		s.send(c, opInvalidSession, resumable)
	})
}

// Mute says whether heartbeats stay unacknowledged.
func (s *Server) Mute(on bool) { s.change(func() { s.gateway.mute = on }) }

// Freeze says whether the gateway sends nothing while connections stay open.
func (s *Server) Freeze(on bool) { s.change(func() { s.gateway.frozen = on }) }

// OmitQuotes says whether replies lack the message to which they reply, as if Discord had not
// looked it up.
func (s *Server) OmitQuotes(on bool) { s.change(func() { s.gateway.unquoted = on }) }

// RefuseIdentify closes the next connections that identify, with these codes.
func (s *Server) RefuseIdentify(codes ...int) {
	s.change(func() { s.gateway.refuse = slices.Clone(codes) })
}

// LimitStarts says how many sessions the bot may still begin before the limit is reset. If it
// begins more, its token becomes invalid.
func (s *Server) LimitStarts(left int, reset time.Duration) {
	s.change(func() { s.gateway.starts, s.gateway.reset = left, time.Now().Add(reset) })
}

// RefuseResume tells the next n resuming bots that their session is over.
func (s *Server) RefuseResume(n int) { s.onResume(opInvalidSession, n) }

// ReconnectOnResume asks the next n resuming bots to reconnect before anything else.
func (s *Server) ReconnectOnResume(n int) { s.onResume(opReconnect, n) }

// DropOnResume cuts the connections of the next n resuming bots silently. The sessions can be
// resumed.
func (s *Server) DropOnResume(n int) { s.onResume(silence, n) }

// CloseOnResume closes the connections of the next n resuming bots with a code.
func (s *Server) CloseOnResume(code, n int) { s.onResume(code, n) }

func (s *Server) onResume(op, n int) {
	s.change(func() { s.gateway.onResume = slices.Repeat([]int{op}, n) })
}

// SetContent switches the Message Content Intent on or off in the developer portal.
func (s *Server) SetContent(on bool) { s.change(func() { s.opts.NoContent = !on }) }

// SetToken changes the valid token, like a reset in the developer portal.
func (s *Server) SetToken(token string) { s.change(func() { s.token = token }) }

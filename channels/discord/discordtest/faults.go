package discordtest

import (
	"cmp"
	"net/http"
	"time"

	"gateway/channels/channeltest/faults"
)

// An Effect says how a call fails.
type Effect = faults.Effect

// The effects: see [faults.Effect].
const (
	Answer = faults.Answer
	Page   = faults.Page
	Drop   = faults.Drop
	Lose   = faults.Lose
	Hang   = faults.Hang
)

// A Fault makes calls fail that meet all of its conditions.
type Fault struct {
	// Method is one of createMessage, editMessage, deleteMessage, getMessage, listMessages,
	// typing, putReaction, deleteReaction, getChannel, getGuild, guildChannels, leaveGuild,
	// activeThreads, getMe, getApplication, putCommands, callback, deleteResponse, getGateway,
	// getGatewayBot, gateway (the websocket's handshake) and file; default any.
	Method  string
	Channel string                 // default: any
	When    func(text string) bool // condition on the content; must not call the Server
	Times   int                    // number of calls; default: all until removed

	Effect     Effect
	Status     int           // default 500, 429 with RetryAfter, 502 for a Page
	Code       int           // one of Discord's error codes, such as 50013
	Text       string        // message of an Answer
	RetryAfter time.Duration // in an Answer
	Global     bool          // the limit applies to the whole bot
}

// Inject adds a fault until f.Times calls have failed or remove is called. If several faults match
// a call, the oldest one applies.
func (s *Server) Inject(f Fault) (remove func()) {
	return s.faults.Inject(f, f.Effect, f.Times)
}

// Hits returns how many calls about a channel ("": about no channel) had the given effect.
func (s *Server) Hits(e Effect, channelID string) int { return s.faults.Hits(e, channelID) }

// RateLimit makes the server refuse the next message and name this time.
func (s *Server) RateLimit(after time.Duration) {
	s.Inject(Fault{Method: "createMessage", Times: 1, RetryAfter: after})
}

// Hang makes the server answer no more calls.
func (s *Server) Hang() { s.Inject(Fault{Effect: Hang}) }

// SetOutage says whether Discord is down. Then the server closes all connections and accepts no
// new ones. Sessions of the gateway survive it.
func (s *Server) SetOutage(on bool) {
	s.mu.Lock()
	s.gateway.outage = on
	s.mu.Unlock()
	if on {
		s.Drop()
	}
}

// meet returns the fault for c, if there is one, and counts it. The caller holds s.mu.
func (s *Server) meet(c *call) (Fault, bool) {
	if s.gateway.outage {
		s.faults.Count(Drop, c.channel)
		return Fault{Effect: Drop}, true
	}
	return s.faults.Meet(c.channel, func(f Fault) bool {
		return (f.Method == "" || f.Method == c.method) &&
			(f.Channel == "" || f.Channel == c.channel) && (f.When == nil || f.When(c.text()))
	})
}

// fail answers c according to f.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, c *call, f Fault) {
	switch f.Effect {
	case Answer:
		answer := refuse(cmp.Or(f.Status, http.StatusInternalServerError), f.Code, f.Text)
		if f.RetryAfter > 0 {
			answer.status = cmp.Or(f.Status, http.StatusTooManyRequests)
			answer.message = cmp.Or(f.Text, "You are being rate limited.")
			answer.retryAfter, answer.global = f.RetryAfter, f.Global
		}
		answer.message = cmp.Or(answer.message, http.StatusText(answer.status))
		write(w, answer)
		return
	case Page:
		faults.WritePage(w, f.Status)
		return
	case Lose:
		if c.method != "gateway" && c.method != "file" {
			s.execute(c)
		}
	case Hang:
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
	}
	faults.Abort()
}

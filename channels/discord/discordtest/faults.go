package discordtest

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// An Effect is the way in which a call fails.
type Effect int

const (
	Answer Effect = iota // the API's own error answer; nothing is executed
	Page                 // an HTML error page, as a proxy sends it; nothing is executed
	Drop                 // the connection is closed before anything is executed
	Lose                 // the call is executed, then the connection is closed
	Hang                 // nothing happens until the client or the server gives up
)

// A Fault makes calls fail. Those of its conditions that are set must all hold.
type Fault struct {
	// Method is one of createMessage, editMessage, deleteMessage, getMessage, listMessages,
	// typing, putReaction, deleteReaction, getChannel, getGuild, activeThreads, getMe,
	// getApplication, putCommands, callback, deleteResponse, getGateway, gateway (the
	// websocket's handshake) and file; default any.
	Method  string
	Channel string                 // default any
	When    func(text string) bool // decides by the content; must not call the Server
	Times   int                    // how many calls fail; default all until it is removed

	Effect     Effect
	Status     int           // default 500, 429 with RetryAfter, 502 for a Page
	Code       int           // of Discord's own errors, such as 50013
	Text       string        // message of an Answer
	RetryAfter time.Duration // in an Answer
	Global     bool          // the rate limit is that of the whole bot
}

// A hit counts the faults of one kind in one channel.
type hit struct {
	effect  Effect
	channel string
}

// Inject makes calls fail until f.Times is used up or remove is called. Of several faults the
// one that was injected first counts.
func (s *Server) Inject(f Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(g *Fault) bool { return g == &f })
	}
}

// Hits returns how many calls about a channel ("": about none) had the given effect.
func (s *Server) Hits(e Effect, channelID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[hit{e, channelID}]
}

// RateLimit refuses the next message for that long.
func (s *Server) RateLimit(after time.Duration) {
	s.Inject(Fault{Method: "createMessage", Times: 1, RetryAfter: after})
}

// Hang lets calls go unanswered from now on.
func (s *Server) Hang() { s.Inject(Fault{Effect: Hang}) }

// SetOutage says whether Discord is down: every connection is closed, and so are new ones.
// Sessions of the gateway survive it.
func (s *Server) SetOutage(on bool) {
	s.mu.Lock()
	s.gateway.outage = on
	s.mu.Unlock()
	if on {
		s.Drop()
	}
}

// take returns the fault that c meets, if any, and counts it. The caller holds s.mu.
func (s *Server) take(c *call) (Fault, bool) {
	if s.gateway.outage {
		s.hits[hit{Drop, c.channel}]++
		return Fault{Effect: Drop}, true
	}
	for i, f := range s.faults {
		if f.Method != "" && f.Method != c.method || f.Channel != "" && f.Channel != c.channel ||
			f.When != nil && !f.When(c.text()) {
			continue
		}
		s.hits[hit{f.Effect, c.channel}]++
		if f.Times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		f.Times--
		return *f, true
	}
	return Fault{}, false
}

// fail answers c as f says.
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
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(cmp.Or(f.Status, http.StatusBadGateway))
		_, _ = w.Write([]byte("<html><h1>Bad Gateway</h1></html>")) // the client may be gone
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
	panic(http.ErrAbortHandler) // net/http's way to close the connection without an answer
}

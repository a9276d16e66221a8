package telegramtest

import (
	"cmp"
	"context"
	"net/http"

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
	Cut    = faults.Cut // only conditions on Method apply
)

// A Fault makes calls fail that meet all of its conditions.
type Fault struct {
	Method string                 // default: any; "file": the download of a file
	Chat   int64                  // default: any
	When   func(text string) bool // condition on the text parameter; must not call the Server
	Times  int                    // number of calls; default: all until removed

	Effect     Effect
	Code       int    // status; default 500, 429 with RetryAfter, 502 for a Page
	Text       string // description of an Answer
	RetryAfter int    // seconds, in an Answer
}

// Inject adds a fault until f.Times calls have failed or remove is called. If several faults match
// a call, the oldest one applies.
func (s *Server) Inject(f Fault) (remove func()) {
	return s.faults.Inject(f, f.Effect, f.Times)
}

// Hits returns how many calls about a chat (0: about no chat) had the given effect.
func (s *Server) Hits(e Effect, chatID int64) int { return s.faults.Hits(e, chatID) }

// meet returns the fault for c, if there is one, and counts it.
func (s *Server) meet(c call) (Fault, bool) {
	return s.faults.Meet(c.chat(), func(f Fault) bool {
		return f.Effect != Cut && (f.Method == "" || f.Method == c.method) &&
			(f.Chat == 0 || f.Chat == c.chat()) && (f.When == nil || f.When(c.params.Get("text")))
	})
}

// cut closes the connection of an unread call if a fault says so.
func (s *Server) cut(method string) {
	_, ok := s.faults.Meet(0, func(f Fault) bool {
		return f.Effect == Cut && (f.Method == "" || f.Method == method)
	})
	if ok {
		s.changed.Notify()
		faults.Abort()
	}
}

// hang returns when the client or the server gives up.
func (s *Server) hang(ctx context.Context, chatID int64) {
	s.count(chatID, 1)
	defer s.count(chatID, -1)
	select {
	case <-ctx.Done():
	case <-s.closing:
	}
}

// count adds n to the number of hanging calls about a chat.
func (s *Server) count(chatID int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging[chatID] += n
}

// fail answers c according to f.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, c call, f Fault) {
	switch f.Effect {
	case Answer:
		code := cmp.Or(f.Code, http.StatusInternalServerError)
		if f.RetryAfter > 0 {
			code = cmp.Or(f.Code, http.StatusTooManyRequests)
		}
		write(w, reply{
			code: code, retryAfter: f.RetryAfter,
			description: cmp.Or(f.Text, http.StatusText(code)),
		})
		return
	case Page:
		faults.WritePage(w, f.Code)
		return
	case Lose:
		s.execute(r.Context(), c)
	case Hang:
		s.hang(r.Context(), c.chat())
	}
	faults.Abort()
}

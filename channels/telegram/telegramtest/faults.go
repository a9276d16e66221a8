package telegramtest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
)

// An Effect is the way in which a call fails.
type Effect int

const (
	Answer Effect = iota // the API's own error answer; nothing is executed
	Page                 // an HTML error page, as a proxy sends it; nothing is executed
	Drop                 // the connection is closed before anything is executed
	Lose                 // the call is executed, then the connection is closed
	Hang                 // nothing happens until the client or the server gives up
	Cut                  // the connection is closed before the call was read; goes by Method alone
)

// A Fault makes calls fail. Those of its conditions that are set must all hold.
type Fault struct {
	Method string                 // default any; "file" is the download of one
	Chat   int64                  // default any
	When   func(text string) bool // decides by the text parameter; must not call the Server
	Times  int                    // how many calls fail; default all until it is removed

	Effect     Effect
	Code       int    // status; default 500, 429 with RetryAfter, 502 for a Page
	Text       string // description of an Answer
	RetryAfter int    // seconds, in an Answer
}

// A hit counts the faults of one kind in one chat.
type hit struct {
	effect Effect
	chat   int64
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

// Hits returns how many calls about a chat (0: about none) had the given effect.
func (s *Server) Hits(e Effect, chatID int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[hit{e, chatID}]
}

// take returns the fault that c meets, if any, and counts it. The caller holds s.mu.
func (s *Server) take(c call) (Fault, bool) {
	for i, f := range s.faults {
		if f.Effect == Cut || f.Method != "" && f.Method != c.method ||
			f.Chat != 0 && f.Chat != c.chat() || f.When != nil && !f.When(c.params.Get("text")) {
			continue
		}
		return s.use(i, c.chat()), true
	}
	return Fault{}, false
}

// use returns the fault at i and counts it. The caller holds s.mu.
func (s *Server) use(i int, chatID int64) Fault {
	f := s.faults[i]
	s.hits[hit{f.Effect, chatID}]++
	if f.Times == 1 {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	f.Times--
	return *f
}

// cut ends a call that has not been read, if a fault says so.
func (s *Server) cut(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Effect == Cut && (f.Method == "" || f.Method == method) {
			s.use(i, 0)
			s.bell.Ring()
			panic(http.ErrAbortHandler) // net/http's way to close the connection
		}
	}
}

// hang returns when the client or the server has given up.
func (s *Server) hang(ctx context.Context, chatID int64) {
	s.count(chatID, 1)
	defer s.count(chatID, -1)
	select {
	case <-ctx.Done():
	case <-s.closing:
	}
}

// count adds n to the calls of a chat that hang.
func (s *Server) count(chatID int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging[chatID] += n
}

// fail answers c as f says.
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
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(cmp.Or(f.Code, http.StatusBadGateway))
		_, _ = w.Write([]byte("<html><h1>Bad Gateway</h1></html>")) // the client may be gone
		return
	case Lose:
		s.execute(r.Context(), c)
	case Hang:
		s.hang(r.Context(), c.chat())
	}
	panic(http.ErrAbortHandler) // net/http's way to close the connection without an answer
}

package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"gateway/bus"
)

// Times in the life of a server.
const (
	startTimeout = 30 * time.Second // from the start to the list of tools
	maxStart     = 5 * time.Minute  // the same, for a process that has not been ready before
	minDelay     = time.Second      // before the next attempt
	maxDelay     = 5 * time.Minute
	longLife     = time.Minute // of a connection after which failures are forgotten
	listDelay    = time.Second // between two lists after the server reported changes
)

// errIdle ends an unused connection.
var errIdle = errors.New("not used")

// A base is what the parts of a server share.
type base struct {
	Server
	opts     *Options
	status   *status
	login    *login
	redactor *redactor
}

// A server keeps the connection to a configured server. One goroutine, run, opens and closes
// connections; calls use the present one.
type server struct {
	base
	problem error         // in the configuration
	first   time.Duration // delay after the first failure; tests set another value
	stale   chan struct{} // the server has reported that its tools changed

	cache    cache
	requests *liveRequests
	caller   *caller
	toolset  *toolset
	review   *changeReview
	dialer   *dialer
}

// newServer returns a server. names are the names of all servers of the client.
func newServer(s Server, o *Options, names []string) *server {
	s.Timeout = cmp.Or(s.Timeout, 60*time.Second)
	s.MinRole = cmp.Or(s.MinRole, bus.User)
	login := newLogin(s, o)
	b := base{s, o, newStatus(s, o), login, &redactor{login, s.secrets()}}
	one := &server{base: b, problem: s.Check(), first: minDelay, stale: make(chan struct{}, 1),
		cache: newCache(s, o), requests: newLiveRequests()}
	// The parts refer to one another, so each comes after those that it needs.
	one.caller = &caller{b, one.requests}
	one.toolset = &toolset{base: b, naming: newNaming(s.Name, names), caller: one.caller}
	one.review = &changeReview{base: b, cache: one.cache, tools: one.toolset, stale: one.stale}
	one.dialer = &dialer{b, one.stale, one.elicit}
	return one
}

// run keeps the server connected until ctx ends.
func (s *server) run(ctx context.Context) {
	defer s.status.update(func() { s.status.ended = true })
	defer s.login.drop()
	if s.problem != nil {
		s.status.update(func() { s.status.set(Waiting, s.problem.Error()) })
		<-ctx.Done()
		return
	}
	if err := s.login.load(); err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp login not read", "server", s.Name, "err", err)
	}
	// A process whose tools are known, for this configuration, starts only for a call. Any other
	// server is connected at once.
	needed := !s.restore(ctx) || s.URL != ""
	for ctx.Err() == nil {
		if !needed {
			s.status.update(func() { s.status.set(Idle, "") })
			select {
			case <-s.status.wanted:
			case <-ctx.Done():
				return
			}
		}
		err := s.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		if needed = !errors.Is(err, errIdle); needed && !s.pause(ctx, err) {
			return
		}
	}
}

// restore gives the cached tools to the agent, and reports whether there are any, which the server
// has with the present configuration.
func (s *server) restore(ctx context.Context) bool {
	k, err := s.cache.read()
	if err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp cache not read", "server", s.Name, "err", err)
	}
	if k == nil {
		return false
	}
	s.status.update(func() { s.status.dialect = k.dialect })
	// The first call must run alone already, if the server is known to ask during calls.
	s.requests.mu.Lock()
	s.requests.inCall = k.dialect.Asks
	s.requests.mu.Unlock()
	s.review.restore(ctx, k)
	return s.status.show().Tools > 0 && !k.old
}

// connection opens a connection, keeps it until it ends, and returns the reason for the end.
func (s *server) connection(ctx context.Context) error {
	// A call that has asked for this connection must not cause another one.
	select {
	case <-s.status.wanted:
	default:
	}
	s.status.update(func() { s.status.set(Starting, "") })
	begin := s.opts.Now()
	l, err := s.dialer.connect(ctx, s.refresh)
	if err != nil {
		s.status.update(func() {
			s.status.tries++
			// The next attempt tries the other handshake.
			s.status.dialect.Legacy = !s.status.dialect.Legacy
		})
		return err
	}
	defer l.close()
	s.status.update(func() {
		s.status.tries++
		s.status.link, s.status.used = l, s.opts.Now()
		s.status.set(Connected, "")
	})
	s.opts.Logger.InfoContext(ctx, "mcp server connected", "server", s.Name,
		"took", s.opts.Now().Sub(begin))
	err = s.watch(ctx, l)
	s.status.update(func() {
		s.status.link = nil
		if s.opts.Now().Sub(begin) > longLife {
			s.status.failed = 0
		}
	})
	return err
}

// watch lists changed tools until the connection ends or is unused for too long.
func (s *server) watch(ctx context.Context, l *link) error {
	idle := time.NewTimer(s.opts.Idle)
	defer idle.Stop()
	pause := time.NewTimer(0) // until the tools may be listed again
	defer pause.Stop()
	stale := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ended:
			return l.err
		case <-s.stale:
			if !stale { // a later report must not put the list off
				stale = true
				pause.Reset(listDelay)
			}
		case <-pause.C:
			if !stale {
				continue
			}
			stale = false
			limited, cancel := context.WithTimeout(ctx, startTimeout)
			err := s.refresh(limited, l)
			cancel()
			if err != nil {
				s.opts.Logger.WarnContext(ctx, "mcp tools not listed", "server", s.Name,
					"err", s.redactor.scrub(err.Error()))
			}
		case <-idle.C:
			left := s.status.rest()
			if left <= 0 && s.URL == "" {
				return errIdle
			}
			// The link of an endpoint stays, so the timer must not fire at once again.
			idle.Reset(max(left, s.opts.Idle/10, time.Millisecond))
		}
	}
}

// pause waits before the next attempt, longer after each failure. A call that needs the server ends
// the wait, but not in the first second. pause returns false if ctx has ended.
func (s *server) pause(ctx context.Context, err error) bool {
	why := s.redactor.scrub(err.Error())
	var delay time.Duration
	s.status.update(func() {
		s.status.set(Waiting, why)
		delay = min(s.first<<min(s.status.failed, 16), maxDelay)
		s.status.failed++
	})
	// Servers that failed together should not come back at the same moment.
	delay += rand.N(delay/4 + 1)
	s.opts.Logger.WarnContext(ctx, "mcp server not connected", "server", s.Name, "err", why,
		"again", delay)
	over := time.After(delay)
	select {
	case <-time.After(min(delay, s.first)):
	case <-ctx.Done():
		return false
	}
	select {
	case <-over:
	case <-s.status.wanted:
	case <-ctx.Done():
		return false
	}
	return true
}

// refresh lists the server's tools, gives them to the agent and stores them. It returns a panic as
// an error. Otherwise the list of a server could end the gateway, again after each start.
func (s *server) refresh(ctx context.Context, l *link) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.Logger.ErrorContext(ctx, "mcp list of tools panicked", "server", s.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the gateway failed at its list of tools: see the log")
		}
	}()
	ctx, done := l.bind(ctx)
	defer done()
	c, err := listCatalog(ctx, l.session, s.allows)
	if err != nil {
		return fmt.Errorf("it can't list its tools: %w", err)
	}
	s.review.adopt(ctx, c)
	return nil
}

// notify puts a token into c, unless there is one already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

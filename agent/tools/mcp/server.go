package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"gateway/bus"
)

// Times in the life of a server.
const (
	startTimeout = 30 * time.Second // from the start to the list of tools
	minDelay     = time.Second      // before the next attempt
	maxDelay     = 5 * time.Minute
	longLife     = time.Minute // of a connection after which failures are forgotten
	listDelay    = time.Second // between two lists after the server reported changes

	// patience is how many consecutive failures a call waits for. If a server has failed more
	// often, the call fails after the next attempt.
	patience = 2
)

// errIdle ends an unused connection.
var errIdle = errors.New("not used")

// A server is a configured server and its connection. One goroutine, run, opens and closes
// connections; calls use the present one.
type server struct {
	Server
	opts *Options
	naming
	login   *login
	hidden  []string // secrets
	problem error    // error in the configuration
	first   time.Duration

	wanted chan struct{} // a call waits for a connection
	stale  chan struct{} // the server has reported that its tools changed

	mu     sync.Mutex
	state  State
	link   *link         // or nil
	change chan struct{} // closed and replaced whenever a field here changes
	attempts
	busy    int // calls that use the link or wait for it
	used    time.Time
	known   known
	dialect dialect
	ended   bool // run has returned

	requests liveRequests
}

// attempts counts the attempts to connect.
type attempts struct {
	failed int // consecutive failed attempts and connections
	tries  int // finished attempts
}

// newServer returns a server. names are the names of all servers of the client.
func newServer(s Server, o *Options, names []string) *server {
	s.Timeout = cmp.Or(s.Timeout, 60*time.Second)
	s.MinRole = cmp.Or(s.MinRole, bus.User)
	one := &server{
		Server: s, opts: o, naming: naming{prefix: "mcp_" + s.Name + "_"},
		login: newLogin(s, o), problem: s.Check(), hidden: s.secrets(),
		requests: newAskings(),
		first:    minDelay, wanted: make(chan struct{}, 1), stale: make(chan struct{}, 1),
		change: make(chan struct{}), state: State{Name: s.Name, State: Starting, Since: o.Now()},
	}
	for _, name := range names {
		if prefix := "mcp_" + name + "_"; prefix != one.prefix && strings.HasPrefix(prefix, one.prefix) {
			one.others = append(one.others, prefix)
		}
	}
	return one
}

// run keeps the server connected until ctx ends.
func (s *server) run(ctx context.Context) {
	defer s.update(func() { s.ended = true })
	defer s.login.drop()
	if s.problem != nil {
		s.update(func() { s.setState(Waiting, s.problem.Error()) })
		<-ctx.Done()
		return
	}
	if err := s.login.load(); err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp login not read", "server", s.Name, "err", err)
	}
	needed := !s.restore(ctx) || s.URL != ""
	for ctx.Err() == nil {
		if !needed {
			s.update(func() { s.setState(Idle, "") })
			select {
			case <-s.wanted:
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

// restore gives the cached tools to the agent, and reports whether there are any.
func (s *server) restore(ctx context.Context) bool {
	k, err := s.readCache()
	if err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp cache not read", "server", s.Name, "err", err)
	}
	if k == nil {
		return false
	}
	s.update(func() { s.dialect = k.dialect })
	s.requests.mu.Lock()
	s.requests.inCall = k.dialect.Asks
	s.requests.mu.Unlock()
	s.known.mu.Lock()
	s.known.agreed, s.known.held, s.known.reported = &k.Catalog, k.Held, k.Held
	changeReview{s}.offer(ctx)
	s.known.mu.Unlock()
	return s.show().Tools > 0
}

// publish makes the tools of c available to the agent.
func (s *server) publish(ctx context.Context, c catalog) {
	c = c.sorted()
	s.mu.Lock()
	known := same(s.known.shown, &c)
	s.mu.Unlock()
	if known {
		return
	}
	tools, refused := s.define(c)
	if s.opts.Set != nil {
		if err := s.opts.Set("mcp/"+s.Name, tools); err != nil {
			refused = append(refused, s.scrub(err.Error()))
		}
	}
	for _, why := range refused {
		s.opts.Logger.WarnContext(ctx, "mcp tool refused", "server", s.Name, "reason", why)
	}
	s.update(func() {
		s.known.shown = &c
		s.state.Tools, s.state.Refused = len(tools), refused
	})
}

// connection opens a connection, keeps it until it ends, and returns the reason for the end.
func (s *server) connection(ctx context.Context) error {
	select {
	case <-s.wanted:
	default:
	}
	s.update(func() { s.setState(Starting, "") })
	begin := s.opts.Now()
	l, err := s.connect(ctx)
	if err != nil {
		s.update(func() {
			s.tries++
			s.dialect.Legacy = !s.dialect.Legacy
		})
		return err
	}
	defer l.close()
	s.update(func() {
		s.tries++
		s.link, s.used = l, s.opts.Now()
		s.setState(Connected, "")
	})
	s.opts.Logger.InfoContext(ctx, "mcp server connected", "server", s.Name,
		"took", s.opts.Now().Sub(begin))
	err = s.watch(ctx, l)
	s.update(func() {
		s.link = nil
		if s.opts.Now().Sub(begin) > longLife {
			s.failed = 0
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
			stale = true
			pause.Reset(listDelay)
		case <-pause.C:
			if !stale {
				continue
			}
			stale = false
			if err := s.refresh(ctx, l); err != nil {
				s.opts.Logger.WarnContext(ctx, "mcp tools not listed", "server", s.Name,
					"err", s.scrub(err.Error()))
			}
		case <-idle.C:
			left := s.rest()
			if left <= 0 && s.URL == "" {
				return errIdle
			}
			idle.Reset(max(left, s.opts.Idle/10, time.Millisecond))
		}
	}
}

// rest returns how long the link may stay unused. If the time is over, it removes the link of a
// process, so that no call uses it.
func (s *server) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.opts.Idle - s.opts.Now().Sub(s.used)
	if s.busy > 0 {
		left = s.opts.Idle
	}
	if left <= 0 && s.URL == "" {
		s.link = nil
		select {
		case <-s.wanted: // from a call that already got its link
		default:
		}
	}
	return left
}

// pause waits before the next attempt, longer after each failure. A call that needs the server ends
// the wait, but not in the first second. pause returns false if ctx has ended.
func (s *server) pause(ctx context.Context, err error) bool {
	why := s.scrub(err.Error())
	var delay time.Duration
	s.update(func() {
		s.setState(Waiting, why)
		delay = min(s.first<<min(s.failed, 16), maxDelay)
		s.failed++
	})
	delay += rand.N(delay/4 + 1)
	s.opts.Logger.WarnContext(ctx, "mcp server not connected", "server", s.Name, "err", why,
		"again", delay)
	least, timer := time.NewTimer(min(delay, s.first)), time.NewTimer(delay)
	defer least.Stop()
	defer timer.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-timer.C:
	case <-s.wanted:
	case <-ctx.Done():
		return false
	}
	return true
}

// update calls change with the lock held and wakes those who wait for changes.
func (s *server) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.change)
	s.change = make(chan struct{})
}

// setState sets the state. It must be called within update. In the state Starting, the previous
// error stays visible.
func (s *server) setState(state, problem string) {
	if state != s.state.State {
		s.state.State, s.state.Since = state, s.opts.Now()
	}
	if state != Starting {
		s.state.Error = problem
	}
}

func (s *server) show() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Refused = append([]string(nil), state.Refused...)
	state.Held = append([]string(nil), state.Held...)
	return state
}

// acquire waits for the link and returns it. The caller must call release after use.
func (s *server) acquire(ctx context.Context) (l *link, release func(), err error) {
	s.mu.Lock()
	s.busy++ // from now on, so that the new link does not count as unused
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	tries := s.tries
	for {
		switch {
		case s.link != nil && s.link.alive():
			l := s.link
			s.mu.Unlock()
			return l, s.release, nil
		case s.ended:
			s.mu.Unlock()
			return nil, nil, fmt.Errorf("the MCP server %s is stopped; nothing was done", s.Name)
		case s.tries > tries && s.failed > patience && s.state.State == Waiting:
			why := s.state.Error
			s.mu.Unlock()
			return nil, nil, s.unavailable(why)
		}
		change := s.change
		s.mu.Unlock()
		notify(s.wanted)
		select {
		case <-change:
		case <-ctx.Done():
			return nil, nil, s.unavailable(cmp.Or(s.show().Error, "it is still starting"))
		}
		s.mu.Lock()
	}
}

// notify puts a token into c, unless there is one already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *server) unavailable(why string) error {
	return fmt.Errorf("the MCP server %s is not connected: %s; nothing was done", s.Name, why)
}

func (s *server) release() {
	s.update(func() {
		s.busy--
		s.used = s.opts.Now()
	})
}

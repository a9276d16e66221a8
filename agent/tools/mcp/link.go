package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// legacyVersion is the newest version of the protocol with the old handshake.
	legacyVersion = "2025-11-25"

	maxMessage  = 16 << 20 // bytes of one message of a server
	maxListed   = 2_000    // tools that are read of a server
	maxPages    = 100      // of a list
	closeTime   = 10 * time.Second
	maxLogEntry = 500 // characters of what a server wants logged
)

// A link is one connection to a server.
type link struct {
	session *sdk.ClientSession
	ended   chan struct{} // closed when the connection is of no more use

	// bind returns a context that ends with the link, too.
	bind func(ctx context.Context) (context.Context, context.CancelFunc)
	stop func() // ends everything and waits for it

	once sync.Once
	err  error // set before ended is closed
}

// fail says that the link is of no more use, and why.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.ended)
	})
}

func (l *link) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// awaitEnd waits a little for the end of a link that is broken.
func (l *link) awaitEnd() {
	timer := time.NewTimer(3 * endTime)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
	}
}

// reason returns why the link has ended.
func (l *link) reason() error { return l.err }

// forgotten reports whether the link has ended because the endpoint does not know its session.
func (l *link) forgotten() bool {
	return !l.alive() && errors.Is(l.reason(), sdk.ErrSessionMissing)
}

// close ends the link and waits for its goroutines.
func (l *link) close() {
	l.fail(errors.New("closed"))
	l.stop()
}

// A carrier is the way to a server: its process, or the requests to its endpoint.
type carrier struct {
	transport sdk.Transport

	// end ends the way at once or, at the end of a session, in order; it may be called twice and
	// returns once nothing is left.
	end func()

	// why explains err, an error of the session, with what only the carrier knows.
	why func(err error) error
}

// connect makes a connection. An endpoint that does not know streamable HTTP may speak the
// transport of old versions, as the protocol wants clients to find out.
func (s *server) connect(ctx context.Context) (*link, error) {
	l, err := s.attempt(ctx)
	if err == nil || !lacksEndpoint(err) || ctx.Err() != nil {
		return l, err
	}
	s.update(func() { s.dialect.SSE = !s.dialect.SSE })
	l, other := s.attempt(ctx)
	if other == nil {
		return l, nil
	}
	if s.dialect.SSE { // what streamable HTTP says is what its owner expects
		s.update(func() { s.dialect.SSE = false })
		other = err
	}
	return nil, other
}

// attempt starts the server, agrees with it on a protocol and reads what it has.
func (s *server) attempt(ctx context.Context) (*link, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var c *carrier
	var err error
	if s.URL != "" {
		c, err = s.overHTTP(life)
	} else {
		c, err = s.startProcess(life)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	start, done := context.WithTimeout(ctx, startTimeout)
	defer done()
	// The library waits without regard to ctx in some places; the end of the way ends them.
	guard := context.AfterFunc(start, c.end)
	l, err := s.session(start, life, c)
	if err == nil {
		err = s.learn(start, l)
	}
	inTime := guard()
	if err == nil && inTime {
		stop := l.stop
		l.stop = func() {
			stop()
			cancel()
		}
		return l, nil
	}
	if err == nil { // it was ready when its time was over
		err = context.Cause(start)
	}
	err = c.why(err)
	if start.Err() != nil {
		err = fmt.Errorf("it was not ready within %s: %w", startTimeout, err)
	}
	if l != nil {
		l.close()
	}
	cancel()
	c.end()
	return nil, err
}

// session opens the session that c carries. Its goroutine ends with l.stop.
func (s *server) session(ctx, life context.Context, c *carrier) (*link, error) {
	opts := &sdk.ClientSessionOptions{}
	s.update(func() {
		if s.dialect.Legacy || s.dialect.SSE {
			opts.ProtocolVersion = legacyVersion
		}
	})
	way := &opened{Transport: c.transport}
	session, err := s.client().Connect(ctx, way, opts)
	if err != nil {
		if way.conn != nil { // the library leaves it open after some errors
			c.end()
			_ = way.conn.Close() // err is the one that matters
		}
		return nil, err
	}
	life, cancel := context.WithCancel(life)
	l := &link{session: session, ended: make(chan struct{})}
	l.bind = func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, done := context.WithCancel(ctx)
		undo := context.AfterFunc(life, done)
		return ctx, func() {
			undo()
			done()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := session.Wait()
		if err == nil {
			err = errors.New("the server has ended the connection")
		}
		l.fail(c.why(err))
	})
	l.stop = func() {
		cancel() // calls under way would hold up the rest
		if s.URL == "" {
			c.end()
		}
		late := time.AfterFunc(closeTime, c.end)
		_ = session.Close() // the session is over either way
		wg.Wait()
		late.Stop()
		c.end()
	}
	return l, nil
}

// An opened transport remembers its connection.
type opened struct {
	sdk.Transport
	conn sdk.Connection
}

func (o *opened) Connect(ctx context.Context) (sdk.Connection, error) {
	var err error
	o.conn, err = o.Transport.Connect(ctx)
	return o.conn, err
}

// client returns the client for one session: it offers nothing to the server.
func (s *server) client() *sdk.Client {
	stale := func() {
		select {
		case s.stale <- struct{}{}:
		default:
		}
	}
	return sdk.NewClient(&sdk.Implementation{Name: "gateway", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // no roots
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},

		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { stale() },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { stale() },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { stale() },
		//lint:ignore SA1019 servers of the versions before still use it
		LoggingMessageHandler: func(ctx context.Context, r *sdk.LoggingMessageRequest) {
			if r.Params != nil && s.opts.Logger.Enabled(ctx, slog.LevelDebug) {
				s.opts.Logger.DebugContext(ctx, "mcp server says", "server", s.Name,
					"level", tame(string(r.Params.Level), 20),
					"entry", clip(s.scrub(fmt.Sprint(r.Params.Data)), maxLogEntry))
			}
		},
	})
}

// learn reads what the server has, gives it to the agent and keeps it.
func (s *server) learn(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, done := l.bind(ctx)
	defer done()
	c, err := s.list(ctx, l.session)
	if err != nil {
		return fmt.Errorf("it does not list what it has: %w", err)
	}
	holder{s}.adopt(ctx, c)
	return nil
}

// list reads what the server has.
func (s *server) list(ctx context.Context, session *sdk.ClientSession) (catalog, error) {
	var c catalog
	has := &sdk.ServerCapabilities{}
	if r := session.InitializeResult(); r != nil && r.Capabilities != nil {
		has = r.Capabilities
	}
	if has.Tools != nil {
		if err := s.listTools(ctx, session, &c); err != nil {
			return c, err
		}
	}
	// A server that says that it has some and can't list them has none.
	if has.Resources != nil {
		r, err := session.ListResources(ctx, &sdk.ListResourcesParams{})
		c.Resources = err == nil && len(r.Resources) > 0
		if !c.Resources {
			t, err := session.ListResourceTemplates(ctx, &sdk.ListResourceTemplatesParams{})
			c.Resources = err == nil && len(t.ResourceTemplates) > 0
		}
	}
	if has.Prompts != nil {
		p, err := session.ListPrompts(ctx, &sdk.ListPromptsParams{})
		c.Prompts = err == nil && len(p.Prompts) > 0
	}
	return c.sorted(), ctx.Err()
}

func (s *server) listTools(ctx context.Context, session *sdk.ClientSession, c *catalog) error {
	params := &sdk.ListToolsParams{}
	for range maxPages {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			return err
		}
		for _, t := range page.Tools {
			if !s.allows(t.Name) {
				continue
			}
			if len(c.Tools) == maxListed {
				c.More = true
				return nil
			}
			c.Tools = append(c.Tools, describe(t))
		}
		if page.NextCursor == "" || page.NextCursor == params.Cursor {
			return nil
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	c.More = true
	return nil
}

// describe returns of t what matters to us.
func describe(t *sdk.Tool) definition {
	d := definition{Name: t.Name, Description: tame(t.Description, maxDescription),
		Schema: t.InputSchema}
	if d.Description == "" {
		d.Description = tame(t.Title, maxDescription)
	}
	if a := t.Annotations; a != nil {
		d.ReadOnly, d.Idempotent = a.ReadOnlyHint, a.IdempotentHint
	}
	return d
}

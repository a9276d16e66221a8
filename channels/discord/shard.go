package discord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/gorilla/websocket"

	"gateway/bus"
	"gateway/channels"
)

// A shard is one connection to the gateway with its Session of the library. It is used for one run.
type shard struct {
	c       *Channel
	id      int // number of the shard, from 0
	in      channels.Intake
	backlog *backlog
	dg      *discordgo.Session
	wire    atomic.Pointer[wire] // the latest
	dropped bus.Signal           // when the library has noticed a lost connection

	// alive says that the session has begun or was resumed since it was last opened.
	alive atomic.Bool
}

// Discord keeps a session for a few minutes. Whoever resumes it in that time receives all missed
// events. After a longer outage the missed messages are read again, as far as that is possible.
const (
	resumeTime = 3 * time.Minute // without a connection, until a new session begins
	maxBroken  = 4               // connections that end before the session is resumed
)

// If more than maxShort connections in a row end within shortLife, something is wrong with the
// session, although it can be resumed. Then a new one begins after a pause.
const (
	maxShort  = 5
	shortLife = 10 * time.Second
)

// errShort reports that a session is useless although it can be resumed.
var errShort = errors.New("each connection ends as soon as the session is resumed")

// endTime is how long to wait for the library's goroutines. The library sleeps for a second when it
// closes.
const endTime = 1500 * time.Millisecond

// errStuck reports that the library has not opened or closed a session in time. Its Session is
// useless then.
var errStuck = errors.New("no answer from the gateway")

func newShard(c *Channel, in channels.Intake, b *backlog, id int) *shard {
	return &shard{c: c, id: id, in: in, backlog: b, dropped: bus.NewSignal()}
}

// run connects, and stays connected as long as the session can be resumed.
func (s *shard) run(ctx context.Context) error {
	s.dg = library(s.c.token)
	s.dg.ShardID, s.dg.ShardCount = s.id, s.c.opts.Shards
	s.dg.Dialer = s.dialer(ctx)
	s.dg.Client = &http.Client{
		Timeout:   s.c.opts.OpenTimeout,
		Transport: withContext(ctx, s.c.web), // the library requests an address without a context
	}
	s.dg.AddHandler(func(_ *discordgo.Session, e *discordgo.Event) { s.event(e) })
	s.dg.AddHandler(func(*discordgo.Session, *discordgo.Disconnect) { s.dropped.Ring() })
	// Whatever ends the run, the library's goroutines must notice it.
	defer s.kill()
	err := s.open(ctx)
	for short := 0; err == nil; {
		began := time.Now()
		if err = s.watch(ctx); err != nil {
			s.end()
			break
		}
		// Discord has closed the connection before it confirmed the session.
		if !s.alive.Load() {
			return errors.New("the session could not be resumed")
		}
		s.c.log.InfoContext(ctx, "connection lost", "account", s.c.name, "shard", s.id)
		s.in.Report(channels.Disconnected, "connection lost")
		if short++; time.Since(began) >= shortLife {
			short = 0
		}
		if short > maxShort {
			return errShort
		}
		err = s.resume(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// event handles an event of the library, on the goroutine that reads from the gateway. It must
// return quickly, because the goroutine also reads the answers to heartbeats.
func (s *shard) event(e *discordgo.Event) {
	if e.Type == "READY" || e.Type == "RESUMED" {
		s.alive.Store(true)
	}
	s.backlog.put(e.Type, e.RawData)
}

// resume opens the session again. It ends early only if an answer makes further attempts useless.
func (s *shard) resume(ctx context.Context) error {
	began, wait, broken := time.Now(), time.Duration(0), 0
	for channels.Sleep(ctx, wait) {
		err := s.open(ctx)
		_, final := errors.AsType[*channels.AccountError](err)
		closed, ok := errors.AsType[*websocket.CloseError](err)
		if ok {
			broken++
		}
		// A close code above 4000 means that the session is over or the bot is refused. 4000 is an
		// unknown error, and the library reports a broken connection as code 1006.
		over := ok && closed.Code > 4000 || broken >= maxBroken || time.Since(began) > resumeTime
		if err == nil || final || over || errors.Is(err, errStuck) || ctx.Err() != nil {
			return err
		}
		s.c.log.InfoContext(ctx, "session not resumed", "account", s.c.name, "shard", s.id, "err", err)
		s.in.Report(channels.Disconnected, err.Error())
		wait = min(max(2*wait, time.Second), s.c.opts.Postpone)
	}
	return ctx.Err()
}

// open makes the library connect and begin or resume the session. It gives up after a time limit:
// if Discord says "reconnect" within Open, the library waits for a lock that it holds itself. Its
// goroutine then remains, with a closed connection.
func (s *shard) open(ctx context.Context) error {
	s.alive.Store(false)
	select {
	case <-s.dropped: // reported twice
	default:
	}
	done := make(chan struct{}) // once it is closed, err belongs to this goroutine again
	var err error
	go func() {
		defer close(done)
		err = s.dg.Open()
	}()
	if !s.opened(ctx, done) {
		s.cut()
		switch {
		case !within(endTime, done):
			s.c.log.WarnContext(ctx, "session abandoned: the library is stuck", "account", s.c.name)
		case err == nil: // just in time
			s.await()
		default: // the network does not answer
			return cmp.Or(ctx.Err(), s.classify(err))
		}
		return cmp.Or(ctx.Err(), errStuck)
	}
	if errors.Is(err, discordgo.ErrWSAlreadyOpen) {
		err = nil // the report was about the earlier connection
	}
	if err != nil {
		return s.classify(err)
	}
	s.settle()
	if ctx.Err() != nil {
		s.end()
	}
	return ctx.Err()
}

// opened waits for Open to return. If ctx is done, it still waits a little, because a session can
// be ended faster after Open has returned.
func (s *shard) opened(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(s.c.opts.OpenTimeout):
		return false
	case <-ctx.Done():
		return within(endTime/20, done)
	}
}

// within reports whether done is closed within d.
func within(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// classify converts an error of the library's Open into one of the channel contract. The numbers
// are Discord's codes for closing a connection of the gateway.
func (s *shard) classify(err error) error {
	if err == nil {
		return nil
	}
	closed, ok := errors.AsType[*websocket.CloseError](err)
	if !ok {
		return fmt.Errorf("connect to the gateway: %w", s.c.classify(err))
	}
	const portal = "Discord developer portal"
	switch closed.Code {
	case 4004:
		return badToken
	case 4010, 4011:
		return &channels.AccountError{Reason: "Discord refuses the number of shards. " +
			"Configure more of them if the bot is in more than 2,500 servers for each."}
	case 4012:
		return &channels.AccountError{Reason: "Discord has switched off the version of its " +
			"interface that this gateway speaks. Update the gateway."}
	case 4013:
		return &channels.AccountError{Reason: "Discord does not know an event that the gateway " +
			"subscribes to. Update the gateway."}
	case 4014:
		return &channels.AccountError{Reason: "The bot may not read messages. In the " + portal +
			", under Bot, Privileged Gateway Intents, switch on the Message Content Intent."}
	}
	return fmt.Errorf("connect to the gateway: %w", err)
}

// watch waits until the connection drops. It cuts a silent connection, so that the session can be
// resumed, and returns an error if the library does not notice that.
func (s *shard) watch(ctx context.Context) error {
	tick := time.NewTicker(max(s.c.opts.Silence/10, time.Millisecond))
	defer tick.Stop()
	var stuck <-chan time.Time // nil until the connection is cut
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.dropped:
			return nil
		case <-stuck:
			return errStuck
		case <-tick.C:
			idle := s.wire.Load().idle()
			if idle <= s.c.opts.Silence || stuck != nil {
				continue
			}
			s.in.Report(channels.Disconnected, fmt.Sprintf("no sign of life from the gateway for %v",
				idle.Round(time.Millisecond)))
			s.cut()
			stuck = time.After(s.c.opts.OpenTimeout)
		}
	}
}

// Package supervisor keeps the channel of an account running and records its state.
//
// Tables: accounts, which channels/gate creates.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
)

// A Supervisor keeps the channel of one account running. If the channel ends, for example because
// of an outage of its platform, the Supervisor restarts it at increasing intervals.
type Supervisor struct {
	db       *store.DB
	name     string
	channel  channels.Channel
	intake   channels.Publisher
	commands []channels.Command
	log      *slog.Logger

	mu    sync.Mutex
	state channels.State
	text  string    // describes the state
	since time.Time // when the text was reported
	event time.Time // when the channel last published something
	up    time.Time // when it last became connected
	lost  time.Time // when it last lost a connection that had lasted settleTime; zero: never

	restarts int64
	entered  bus.Signal // when the state has changed

	closed     bool               // by Close
	stop       context.CancelFunc // ends the channel's receiving; nil before Run
	publishing sync.WaitGroup     // no Add after closed is true
}

// Intervals between restarts of a channel. After a run of steadyTime they begin anew. After an
// outage people wait lastRestart at most: a call to a platform that is down costs little, and
// WhatsApp's client reconnects every few seconds anyway. A refused channel waits longer, because
// Discord blocks clients that send a wrong token too often.
const (
	firstRestart   = time.Second
	lastRestart    = 30 * time.Second
	refusedRestart = 5 * time.Minute
	steadyTime     = time.Minute
)

// New returns a Supervisor. The platform's menu, if it has one, shows the commands.
func New(
	db *store.DB, name string, ch channels.Channel, in channels.Publisher,
	commands []channels.Command, log *slog.Logger,
) *Supervisor {
	return &Supervisor{db: db, name: name, channel: ch, intake: in, commands: commands,
		log: log.With("account", name), text: "not started", entered: bus.NewSignal()}
}

// Name returns the account's name.
func (s *Supervisor) Name() string { return s.name }

// State describes the channel in a few words, and returns when it was last connected or
// disconnected.
func (s *Supervisor) State() (text string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, s.since
}

// supervised is the Intake that a Supervisor passes to its channel.
type supervised struct {
	channels.Publisher
	s       *Supervisor
	flushed <-chan struct{}
}

// errClosed reports that the gateway is stopping and accepts no more messages. The context of the
// channel's Run is done by then. Otherwise the channel would take the error for a failure of the
// store, and might end a connection that is still needed for sending.
var errClosed = errors.New("supervisor: the gateway is stopping and accepts no more messages")

// Publish implements [channels.Publisher].
func (in supervised) Publish(ctx context.Context, b channels.Batch) error {
	in.s.mu.Lock()
	if in.s.closed {
		in.s.mu.Unlock()
		return errClosed
	}
	in.s.event = time.Now()
	in.s.publishing.Add(1)
	in.s.mu.Unlock()
	defer in.s.publishing.Done()
	return in.Publisher.Publish(ctx, b)
}

// Flushed implements [channels.Intake].
func (in supervised) Flushed() <-chan struct{} { return in.flushed }

// Report implements [channels.Intake].
func (in supervised) Report(state channels.State, text string) { in.s.enter(state, text) }

func (s *Supervisor) enter(state channels.State, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, was, is := time.Now(), s.state == channels.Connected, state == channels.Connected
	switch {
	case is && !was:
		s.up = now
	case was && !is && (s.lost.IsZero() || now.Sub(s.up) >= settleTime):
		s.lost = now
	}
	if was != is || s.since.IsZero() { // attempts to connect don't begin a new outage
		s.since = now
	}
	s.state, s.text = state, text
	s.entered.Ring()
}

// settleTime is how long a reconnected channel must stay connected before it counts as healthy
// again, because some channels connect only for a moment, again and again.
const settleTime = 3 * time.Second

// Up reports whether the channel is connected.
func (s *Supervisor) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == channels.Connected
}

// IsHealthy reports whether the channel is connected or was within the given time: most connections
// are restored quickly. A channel that was never connected is not well. Neither is one that waits
// for a person to act.
func (s *Supervisor) IsHealthy(within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == channels.Refused {
		return false
	}
	if s.state == channels.Connected && (s.lost.IsZero() || time.Since(s.up) >= settleTime) {
		return true
	}
	return !s.lost.IsZero() && time.Since(s.lost) < within
}

// Restarts returns how often the channel was restarted.
func (s *Supervisor) Restarts() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// Close ends receiving. When it has returned, nothing more is published, but messages can be sent
// until Run's context is done. It may be called before Run.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closed = true
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.publishing.Wait()
}

// Run runs the channel until ctx is done or, after [Supervisor.Close], until the channel needs no
// connection any more.
func (s *Supervisor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	flushed := ctx.Done()
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { s.noteStates(ended) })
	defer end()
	defer s.enter(channels.Disconnected, "stopped")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.stop = cancel
	if s.closed {
		cancel()
	}
	s.mu.Unlock()
	if c, ok := s.channel.(channels.Commander); ok {
		wg.Go(func() { s.setCommands(ctx, c) })
	}
	wait := firstRestart
	for {
		began := time.Now()
		s.enter(channels.Disconnected, "connecting")
		err := s.channel.Run(ctx, supervised{s.intake, s, flushed})
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > steadyTime {
			wait = firstRestart
		}
		pause := wait*3/4 + rand.N(wait/2)
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			pause = max(pause, limit.After)
		}
		if refused, ok := errors.AsType[*channels.AccountError](err); ok {
			// Only a person can help, so frequent attempts are useless.
			pause = refusedRestart*3/4 + rand.N(refusedRestart/2)
			s.log.ErrorContext(ctx, "channel refused", "reason", refused.Reason)
			s.enter(channels.Refused, refused.Reason)
			if refused.Final {
				<-ctx.Done()
				return nil
			}
		} else {
			s.log.WarnContext(ctx, "channel ended and will be restarted", "after", pause, "err", err)
			s.enter(channels.Disconnected,
				fmt.Sprintf("not connected: %s; the gateway reconnects by itself", cause(err)))
		}
		if !channels.Sleep(ctx, pause) {
			return nil
		}
		s.mu.Lock()
		s.restarts++
		s.mu.Unlock()
		wait = min(wait*2, lastRestart)
	}
}

// cause describes for people why a channel has ended. For network errors it omits the prefixes of
// the libraries.
func cause(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Name + " was not found (is this machine online?)"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && op.Addr != nil {
		if op.Timeout() {
			return op.Addr.String() + " does not answer"
		}
		return op.Addr.String() + " can't be reached"
	}
	return channels.Clean(err.Error(), maxCause)
}

// maxCause is the maximum length of a cause in runes.
const maxCause = 200

// setCommands sets the platform's command menu. A failure is harmless.
func (s *Supervisor) setCommands(ctx context.Context, c channels.Commander) {
	for wait := firstRestart; ; wait = min(wait*2, lastRestart) {
		err := c.SetCommands(ctx, s.commands)
		if err == nil || errors.Is(err, channels.ErrRefused) || ctx.Err() != nil {
			return
		}
		if _, ok := errors.AsType[*channels.AccountError](err); ok {
			return // Run reports the same error
		}
		s.log.DebugContext(ctx, "commands not set yet", "err", err)
		pause := wait
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			pause = max(pause, limit.After)
		}
		if !channels.Sleep(ctx, pause) {
			return
		}
	}
}

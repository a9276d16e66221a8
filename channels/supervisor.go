package channels

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"gateway/store"
)

// A Supervisor keeps the channel of one account running. An outage of a platform is not
// our crash: the channel is started again, at longer and longer intervals.
type Supervisor struct {
	db       *store.DB
	name     string
	channel  Channel
	intake   Publisher
	commands []Command
	log      *slog.Logger

	mu    sync.Mutex
	state string
	since time.Time
	event time.Time // when something was published
	up    time.Time // when messages last began to come in
	lost  time.Time // when they ceased to, after they had come for settleTime; zero if never

	restarts int64
}

// How soon a channel is started again. One that ran for steadyTime is taken to have been well.
const (
	firstRestart = time.Second
	lastRestart  = 5 * time.Minute
	steadyTime   = time.Minute
)

// NewSupervisor returns a Supervisor. The commands are shown in the platform's menu, if it has one.
func NewSupervisor(
	db *store.DB, name string, ch Channel, in Publisher, commands []Command, log *slog.Logger,
) *Supervisor {
	return &Supervisor{db: db, name: name, channel: ch, intake: in, commands: commands,
		log: log.With("account", name), state: "not started"}
}

// Name returns the account's name.
func (s *Supervisor) Name() string { return s.name }

// State says in a few words how the channel is, and since when.
func (s *Supervisor) State() (state string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.since
}

// supervised is the intake of a supervisor's channel.
type supervised struct {
	Publisher
	s *Supervisor
}

// Publish implements [Publisher].
func (in supervised) Publish(ctx context.Context, b Batch) error {
	in.s.mu.Lock()
	in.s.event = time.Now()
	in.s.mu.Unlock()
	return in.Publisher.Publish(ctx, b)
}

// Report implements [Intake].
func (in supervised) Report(state string) { in.s.setState(state) }

func (s *Supervisor) setState(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, was, is := time.Now(), isUp(s.state), isUp(state)
	switch {
	case is && !was:
		s.up = now
	case was && !is && (s.lost.IsZero() || now.Sub(s.up) >= settleTime):
		s.lost = now
	}
	s.state, s.since = state, now
}

// settleTime is how long messages must come in until a channel that was lost is well again: some
// are connected for a moment, again and again.
const settleTime = 3 * time.Second

// Up reports whether messages come in.
func (s *Supervisor) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isUp(s.state)
}

// Well reports whether messages come in, or did within a time: connections break, and most are
// there again at once. A channel that was never connected is not well.
func (s *Supervisor) Well(within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUp(s.state) && (s.lost.IsZero() || time.Since(s.up) >= settleTime) {
		return true
	}
	return !s.lost.IsZero() && time.Since(s.lost) < within
}

// Restarts returns how often the channel was started again.
func (s *Supervisor) Restarts() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// isUp reports whether a state says that messages come in: see [Intake].
func isUp(state string) bool {
	return strings.HasPrefix(state, "connected") || strings.HasPrefix(state, "listening")
}

// Run runs the channel until ctx ends.
func (s *Supervisor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { s.note(ended) })
	defer end()
	defer s.setState("stopped")
	if c, ok := s.channel.(Commander); ok {
		wg.Go(func() { s.setCommands(ctx, c) })
	}
	wait := firstRestart
	for {
		began := time.Now()
		s.setState("connecting")
		err := s.channel.Run(ctx, supervised{s.intake, s})
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > steadyTime {
			wait = firstRestart
		}
		if refused, ok := errors.AsType[*AccountError](err); ok {
			// Only a person can help, so that trying often would help nobody.
			wait = lastRestart
			s.log.ErrorContext(ctx, "channel refused", "reason", refused.Reason)
			s.setState(refused.Reason)
			if refused.Final {
				<-ctx.Done()
				return nil
			}
		} else {
			s.log.WarnContext(ctx, "channel ended; it is started again", "after", wait, "err", err)
			s.setState(fmt.Sprintf("not connected: %v", err))
		}
		if !sleep(ctx, wait*3/4+rand.N(wait/2)) {
			return nil
		}
		s.mu.Lock()
		s.restarts++
		s.mu.Unlock()
		wait = min(wait*2, lastRestart)
	}
}

// setCommands fills the platform's menu. Nothing depends on it.
func (s *Supervisor) setCommands(ctx context.Context, c Commander) {
	for wait := firstRestart; ; wait = min(wait*2, lastRestart) {
		err := c.SetCommands(ctx, s.commands)
		if err == nil || errors.Is(err, ErrRefused) || ctx.Err() != nil {
			return
		}
		if _, ok := errors.AsType[*AccountError](err); ok {
			return // Run says so
		}
		s.log.DebugContext(ctx, "commands not set yet", "err", err)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// sleep waits for d and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

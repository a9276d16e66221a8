package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/supervisor"
)

// A controlledChannel is a channel whose Run ends as a test decides.
type controlledChannel struct {
	channeltest.Memory
	run         func(ctx context.Context, n int) error // n counts from 1
	setCommands func(n int) error

	mu      sync.Mutex
	began   []time.Time // calls of Run
	menus   []time.Time // calls of SetCommands
	command []channels.Command
}

func (f *controlledChannel) Run(ctx context.Context, _ channels.Intake) error {
	f.mu.Lock()
	f.began = append(f.began, time.Now())
	n := len(f.began)
	f.mu.Unlock()
	return f.run(ctx, n)
}

func (f *controlledChannel) SetCommands(_ context.Context, commands []channels.Command) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.menus = append(f.menus, time.Now())
	f.command = commands
	if f.setCommands == nil {
		return nil
	}
	return f.setCommands(len(f.menus))
}

// supervise runs a supervisor for f for the given time. It returns the supervisor and a function
// that stops it.
func supervise(
	t *testing.T, f *controlledChannel, d time.Duration,
) (s *supervisor.Supervisor, stop func()) {
	t.Helper()
	menu := []channels.Command{{Name: "help", Description: "shows this"}}
	s = supervisor.New(openStore(t, t.TempDir()), "acc", f, new(channeltest.Inbox), menu,
		discard)
	if state, _ := s.State(); state != "not started" || s.Name() != "acc" {
		t.Errorf("at first %s is %q", s.Name(), state)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if state, _ := s.State(); state != "stopped" {
			t.Errorf("at last the channel is %q", state)
		}
	})
	t.Cleanup(stop)
	time.Sleep(d)
	synctest.Wait()
	return s, stop
}

// gaps returns the times between consecutive calls.
func gaps(times []time.Time) (list []time.Duration) {
	for i := 1; i < len(times); i++ {
		list = append(list, times[i].Sub(times[i-1]))
	}
	return list
}

// If a platform is down, the channel is started again after 1 s. The wait doubles up to 30 s.
func TestRestartBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &controlledChannel{run: func(context.Context, int) error { return errDown }}
		s, _ := supervise(t, f, time.Hour)
		want, even := time.Second, true
		list := gaps(f.began)
		for i, gap := range list {
			if gap < want*3/4 || gap > want*5/4 {
				t.Errorf("start %d came after %v, want %v ± a quarter", i+2, gap, want)
			}
			even = even && gap == want
			want = min(2*want, 30*time.Second)
		}
		if even || len(list) < 95 {
			t.Errorf("started after %v, want some 120 times with jitter", list)
		}
		state, since := s.State()
		if !strings.Contains(state, "connection refused") || !since.Equal(f.began[0]) {
			t.Errorf("state is %q since %v", state, since)
		}
	})
}

// If a platform says how long to wait, the channel is not started before that.
func TestRestartAfterRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &controlledChannel{run: func(context.Context, int) error {
			return fmt.Errorf("get own account: %w", &channels.RateError{After: 10 * time.Minute})
		}}
		supervise(t, f, time.Hour)
		for _, gap := range gaps(f.began) {
			if gap < 10*time.Minute {
				t.Errorf("started again after %v, want 10m", gap)
			}
		}
	})
}

// A channel that ran for more than a minute is started again after a short wait. A shorter run
// does not reset the wait.
func TestRestartAfterSteadyRun(t *testing.T) {
	for _, tt := range []struct {
		ran  time.Duration
		want time.Duration // longest wait
	}{{61 * time.Second, 1250 * time.Millisecond}, {59 * time.Second, 37500 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			f := &controlledChannel{run: func(_ context.Context, n int) error {
				if n > 6 { // after six starts, the wait has grown to 30 s
					time.Sleep(tt.ran)
				}
				return errDown
			}}
			supervise(t, f, 5*time.Minute)
			down := gaps(f.began)[6] - tt.ran
			if down < tt.want/2 || down > tt.want {
				t.Errorf("after %v of running it was down for %v, want up to %v", tt.ran, down, tt.want)
			}
		})
	}
}

// If only a person can help, the channel waits long and reports the reason.
func TestAccountRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &controlledChannel{run: func(ctx context.Context, n int) error {
			if n == 1 {
				return errors.Join(&channels.AccountError{Reason: "The token is wrong."})
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		s, _ := supervise(t, f, time.Minute)
		if state, _ := s.State(); state != "The token is wrong." {
			t.Errorf("state is %q", state)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if state, _ := s.State(); state != "connecting" {
			t.Errorf("state is %q", state)
		}
		if gap := gaps(f.began)[0]; gap < 225*time.Second || gap > 375*time.Second {
			t.Errorf("started again after %v, want 5m ± a quarter", gap)
		}
	})
}

// The supervisor ends with its context, also between two runs and while it can't set the menu.
func TestSuperviseEnds(t *testing.T) {
	for name, run := range map[string]func(context.Context, int) error{
		"running": func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
		"waiting": func(context.Context, int) error { return errDown },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &controlledChannel{run: run, setCommands: func(int) error { return errDown }}
				_, stop := supervise(t, f, time.Hour)
				began := time.Now()
				stop()
				if took := time.Since(began); took > 0 {
					t.Errorf("Run took %v to end", took)
				}
			})
		})
	}
}

// The menu is set once. A failed attempt is repeated if that can help.
func TestCommands(t *testing.T) {
	wait := func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
	for name, tt := range map[string]struct {
		err  error // result of the first three calls
		want int   // number of calls
	}{
		"at once":   {nil, 1},
		"later":     {errDown, 4},
		"limited":   {&channels.RateError{After: time.Second}, 4},
		"refused":   {channels.ErrRefused, 1},
		"bad token": {&channels.AccountError{Reason: "no such bot"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &controlledChannel{run: wait, setCommands: func(n int) error {
					if n > 3 {
						return nil
					}
					return tt.err
				}}
				supervise(t, f, time.Hour)
				if len(f.menus) != tt.want || len(f.command) != 1 || f.command[0].Name != "help" {
					t.Errorf("%d calls, the last with %v, want %d", len(f.menus), f.command, tt.want)
				}
				for i, gap := range gaps(f.menus) {
					if want := time.Second << i; gap != want {
						t.Errorf("try %d came after %v, want %v", i+2, gap, want)
					}
				}
				if len(f.began) != 1 {
					t.Errorf("the channel was started %d times", len(f.began))
				}
			})
		})
	}
}

// If a platform says how long to wait, the menu is not sent again before that: further attempts
// would make the wait longer.
func TestCommandsAfterRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &controlledChannel{
			run: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
			setCommands: func(n int) error {
				if n > 2 {
					return nil
				}
				return fmt.Errorf("set commands: %w", &channels.RateError{After: 490 * time.Second})
			},
		}
		supervise(t, f, time.Hour)
		if len(f.menus) != 3 {
			t.Errorf("%d calls, want 3", len(f.menus))
		}
		for _, gap := range gaps(f.menus) {
			if gap != 490*time.Second {
				t.Errorf("tried again after %v, want 490s", gap)
			}
		}
	})
}

// A channel without a menu works, too.
func TestNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(channeltest.Memory)
		s := supervisor.New(openStore(t, t.TempDir()), "acc", m, new(channeltest.Inbox), nil,
			discard)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		if state, _ := s.State(); state != "connected" {
			t.Errorf("state is %q", state)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// The state that the channel reports is stored for other processes, together with the time of
// its last event.
func TestStateIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t, t.TempDir())
		m := new(channeltest.Memory)
		s := supervisor.New(db, "acc", m, new(channeltest.Inbox), nil, discard)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		state := func() supervisor.AccountState {
			states, err := supervisor.States(db.Read(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			return states["acc"]
		}
		began := time.Now()
		time.Sleep(3 * time.Second)
		if got := state(); got.State != "connected" || !got.Since.Equal(began) || !got.Event.IsZero() {
			t.Errorf("state is %+v", got)
		}
		m.Deliver(message)
		time.Sleep(3 * time.Second)
		if got := state(); !got.Event.Equal(began.Add(3 * time.Second)) {
			t.Errorf("last event is %v", got.Event)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := state(); got.State != "stopped" {
			t.Errorf("state is %+v", got)
		}
	})
}

// Close ends receiving and waits for a running Publish. The channel continues until the context
// of Run ends.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		in := &channeltest.Inbox{OnPublish: func() error { <-release; return nil }}
		var intake channels.Intake
		f := &keeper{received: make(chan struct{}), run: func(in channels.Intake) { intake = in }}
		s := supervisor.New(openStore(t, t.TempDir()), "acc", f, in, nil, discard)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		published := make(chan error, 1)
		go func() { published <- intake.Publish(t.Context(), channels.Batch{}) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-f.received:
		default:
			t.Error("the channel does not know that nothing is to be received any more")
		}
		select {
		case <-closed:
			t.Error("Close does not wait for what is being published")
		case <-intake.Flushed():
			t.Error("everything is said to be sent")
		default:
		}
		close(release)
		<-closed
		if err := <-published; err != nil {
			t.Errorf("Publish that began before Close = %v", err)
		}
		if err := intake.Publish(t.Context(), channels.Batch{}); err == nil {
			t.Error("Publish after Close = nil")
		}
		synctest.Wait()
		select {
		case <-done:
			t.Error("Run has ended although the channel has not")
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// If a message is refused because the gateway stops, the channel sees that its context is done.
// It would take any other refusal for a failure of the store, and would then close the
// connection that it needs for the last answers.
func TestRefusedByClose(t *testing.T) {
	db := openStore(t, t.TempDir())
	for range 300 { // the time window of the race is small
		c := &floodingChannel{began: make(chan struct{}), done: make(chan bool, 1)}
		s := supervisor.New(db, "acc", c, new(channeltest.Inbox), nil, discard)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		<-c.began
		s.Close()
		if !<-c.done {
			t.Fatal("a message was refused before the context was done")
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// A floodingChannel publishes until its messages are refused.
type floodingChannel struct {
	channeltest.Memory
	began chan struct{}
	done  chan bool // receives whether the context was done when a message was refused
}

func (e *floodingChannel) Run(ctx context.Context, in channels.Intake) error {
	close(e.began)
	for in.Publish(context.WithoutCancel(ctx), channels.Batch{}) == nil {
	}
	e.done <- ctx.Err() != nil
	<-ctx.Done()
	return ctx.Err()
}

// A keeper is a channel that needs its connection for sending.
type keeper struct {
	channeltest.Memory
	run      func(channels.Intake)
	received chan struct{} // closed when the channel stops receiving
}

func (k *keeper) Run(ctx context.Context, in channels.Intake) error {
	k.run(in)
	<-ctx.Done()
	close(k.received)
	<-in.Flushed()
	return ctx.Err()
}

// Other processes see at once how a channel is, and when it last delivered something, also after
// a restart.
func TestNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t, t.TempDir())
		noted := func() supervisor.AccountState {
			t.Helper()
			states, err := supervisor.States(db.Read(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			return states["acc"]
		}
		var event time.Time
		for _, publishes := range []bool{true, false} {
			f := &keeper{received: make(chan struct{}), run: func(in channels.Intake) {
				in.Report(channels.Connected, "connected as @bot")
				if publishes {
					if err := in.Publish(t.Context(), channels.Batch{}); err != nil {
						t.Error(err)
					}
					event = time.Now()
				}
			}}
			s := supervisor.New(db, "acc", f, new(channeltest.Inbox), nil, discard)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if got := noted(); got.State != "connected as @bot" {
				t.Errorf("%q is noted after a moment", got.State)
			}
			time.Sleep(time.Minute)
			cancel()
			<-done
			if got := noted(); got.State != "stopped" || got.Event.UnixMilli() != event.UnixMilli() {
				t.Errorf("noted %+v, want stopped and the event of %v", got, event)
			}
		}
	})
}

// A channel whose error says that another attempt would do harm is not started again.
func TestFinalRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &controlledChannel{run: func(context.Context, int) error {
			return &channels.AccountError{Reason: "Another program has the account.", Final: true}
		}}
		s, _ := supervise(t, f, 24*time.Hour)
		if state, _ := s.State(); state != "Another program has the account." || len(f.began) != 1 {
			t.Errorf("state is %q after %d starts", state, len(f.began))
		}
	})
}

// The state of a channel in an outage is the error of the network, without names of functions.
func TestCause(t *testing.T) {
	dns := &net.DNSError{Err: "no such host", Name: "api.telegram.org", Server: "10.0.0.53:53",
		IsNotFound: true}
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	for _, test := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Err: dns},
			"not connected: api.telegram.org was not found (is this machine online?); the gateway"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: syscall.ECONNREFUSED},
			"not connected: 192.0.2.1:443 can't be reached; the gateway reconnects by itself"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: os.ErrDeadlineExceeded},
			"not connected: 192.0.2.1:443 does not answer; the gateway"},
		{errDown, "connection refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &controlledChannel{run: func(context.Context, int) error {
				return fmt.Errorf("telegram: get own account: %w", test.err)
			}}
			s, _ := supervise(t, f, time.Second/2)
			if state, _ := s.State(); !strings.Contains(state, test.want) {
				t.Errorf("the state is %q, want %q", state, test.want)
			}
		})
	}
}

package whatsapp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
)

// connectWait is how long sending waits for a connection while the platform works.
const connectWait = 10 * time.Second

// TestConformance runs the suite for channels.
func TestConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		w := startWith(t, whatsapp.Options{RateWait: 7 * time.Second, ConnectWait: connectWait})
		ch := &alwaysRunning{Channel: w.ch, t: t}
		t.Cleanup(ch.pause)
		group := w.server.AddGroup("Friends", false, w.ada)
		return channeltest.Fixture{
			Channel: ch, Platform: &platform{w, ch}, Chat: w.adas(), Log: w.log.String,
			Group: group, InGroup: func() bool { return w.server.InGroup(group) },
		}
	})
}

// alwaysRunning is a channel for tests that send without calling Run, which works for bots with
// an HTTP API. It runs by itself from the first call until Run is called.
type alwaysRunning struct {
	*whatsapp.Channel
	t testing.TB

	mu    sync.Mutex
	taken bool // Run was called
	since time.Time
	stop  context.CancelFunc
	done  chan struct{}
}

// refusingIntake is an intake that accepts no messages.
type refusingIntake struct{ channeltest.Inbox }

func (n *refusingIntake) Publish(_ context.Context, b channels.Batch) error {
	if len(b.Messages) == 0 {
		return nil
	}
	return context.Canceled
}

func (a *alwaysRunning) awake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken || a.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	a.stop, a.done = cancel, done
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = a.Channel.Run(ctx, new(refusingIntake)) // the platform may be down
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
}

// pause stops the run that awake began.
func (a *alwaysRunning) pause() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
		<-a.done
		a.stop = nil
	}
}

func (a *alwaysRunning) Run(ctx context.Context, in channels.Intake) error {
	a.mu.Lock()
	a.taken, a.since = true, time.Now()
	a.mu.Unlock()
	a.pause()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.taken = false
	}()
	return a.Channel.Run(ctx, in)
}

// Send tries again if it fails because Run takes over the channel at that moment. With the same
// key, nothing is sent twice.
func (a *alwaysRunning) Send(ctx context.Context, part bus.Part) (string, error) {
	a.awake()
	for {
		id, err := a.Channel.Send(ctx, part)
		a.mu.Lock()
		again := err != nil && a.taken && time.Since(a.since) < 5*time.Second &&
			(strings.Contains(err.Error(), "not connected to WhatsApp") ||
				strings.Contains(err.Error(), "websocket disconnected"))
		a.mu.Unlock()
		if !again {
			return id, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (a *alwaysRunning) Leave(ctx context.Context, id string) error {
	a.awake()
	return a.Channel.Leave(ctx, id)
}

func (a *alwaysRunning) Type(ctx context.Context, to bus.Address) error {
	a.awake()
	return a.Channel.Type(ctx, to)
}

// A platform gives the suite the fake WhatsApp.
type platform struct {
	*world
	ch *alwaysRunning
}

func (p *platform) Deliver(text string) {
	if _, err := p.ada.Say(p.t.Context(), text); err != nil {
		p.t.Error(err)
	}
}

func (p *platform) Pending() int { return p.server.Pending() }

func (p *platform) Texts() []string { return p.seen() }

// Delete deletes a message with the phone of the account's owner.
func (p *platform) Delete(id string) {
	owner, err := p.server.Owner(p.t.Context())
	if err != nil {
		p.t.Error(err)
		return
	}
	if err := owner.Revoke(p.t.Context(), p.ada.Chat(), id); err != nil {
		p.t.Error(err)
	}
	p.wait("the bot knows that it is deleted", func() bool { return p.server.Pending() == 0 })
}

func (p *platform) RateLimit(time.Duration) { p.server.RefuseSends(429) }

func (p *platform) Refuse() { p.server.RefuseAllSends(463) }

func (p *platform) Hang() { p.server.SetHang(true) }

// SetOutage waits until the channel is connected again, which may take long on a slow machine.
// During an outage, sending can't get a connection, so its wait is short then.
func (p *platform) SetOutage(on bool) {
	p.server.SetOutage(on)
	wait := connectWait
	if on {
		wait = 100 * time.Millisecond
	}
	p.ch.SetConnectWait(wait)
	if !on {
		p.ch.awake()
		p.wait("the channel is connected again", p.server.Connected)
	}
}

var _ channeltest.Platform = (*platform)(nil)

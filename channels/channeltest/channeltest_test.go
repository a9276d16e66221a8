package channeltest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
)

var chat = bus.Address{Account: "memory", Chat: "1"}

// A platform shows a Full from the side of its people.
type platform struct {
	*channeltest.Full
	mu sync.Mutex
	n  int
}

func (p *platform) Deliver(text string) {
	p.mu.Lock()
	p.n++
	id := fmt.Sprint(p.n)
	p.mu.Unlock()
	p.Full.Deliver(bus.InboundMessage{
		ID: id, From: chat, Sender: bus.Sender{ID: "1"},
		Text: text, Time: time.Now(), Addressed: true,
	})
}

func (p *platform) Texts() (texts []string) {
	for _, s := range p.Sent() {
		if !s.Deleted {
			texts = append(texts, s.Part.Text)
		}
	}
	return texts
}

func (p *platform) RateLimit(d time.Duration) { p.Fail(1, &channels.RateError{After: d}) }
func (p *platform) Refuse()                   { p.Fail(1, channels.ErrRefused) }
func (p *platform) Hang()                     { p.Block() }

func (p *platform) SetOutage(on bool) {
	if on {
		p.Fail(1, errors.New("connection refused"))
	}
}

func TestFull(t *testing.T) {
	channeltest.Run(t, func(*testing.T) channeltest.Fixture {
		f := new(channeltest.Full)
		return channeltest.Fixture{Channel: f, Platform: &platform{Full: f}, Chat: chat}
	})
}

func TestMemoryHasNoPowers(t *testing.T) {
	var c channels.Channel = new(channeltest.Memory)
	if _, ok := c.(channels.Editor); ok {
		t.Error("a Memory is an Editor")
	}
	if _, ok := c.(channels.Limiter); ok {
		t.Error("a Memory is a Limiter")
	}
}

func TestMemoryFails(t *testing.T) {
	m := new(channeltest.Memory)
	m.Fail(2, channels.ErrRefused)
	m.Lose(1)
	for _, want := range []error{
		channels.ErrRefused, channels.ErrRefused, channels.ErrUncertain, nil,
	} {
		if _, err := m.Send(t.Context(), bus.Part{To: chat}); !errors.Is(err, want) {
			t.Errorf("Send = %v, want %v", err, want)
		}
	}
	if n := len(m.Sent()); n != 2 {
		t.Errorf("%d messages were taken, want the lost one and the last", n)
	}
}

func TestMemoryBlocks(t *testing.T) {
	m := new(channeltest.Memory)
	release := m.Block()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Send(ctx, bus.Part{To: chat}); !errors.Is(err, context.Canceled) {
		t.Errorf("Send while blocked = %v, want context.Canceled", err)
	}
	release()
	if _, err := m.Send(t.Context(), bus.Part{To: chat}); err != nil {
		t.Errorf("Send after release = %v", err)
	}
}

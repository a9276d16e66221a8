// Package sessionlock keeps a WhatsApp client from using a key twice.
//
// A Signal session gives each message a key of its own. whatsmeow reads the session, takes the next
// key and writes it back, when it sends as well as when it receives, and nothing keeps the two
// apart. If both run at once, one of the steps is lost: the next message is encrypted with a key
// that was used already. WhatsApp accepts it, and the receiver's phone, which has seen that key,
// drops it without a word. A [Lock] sits between a device and its stores and lets one of the two
// happen at a time.
//
// The client also sends by itself, such as a message again that somebody could not read, and does
// not say when this is done. Such a send holds the lock until it has written the session, or for
// two seconds.
package sessionlock

import (
	"context"
	"sync"
	"time"

	"go.mau.fi/whatsmeow/store"
)

// A Lock orders what a client does with its sessions. Its methods may be called concurrently.
type Lock struct {
	free chan struct{} // has a token while nobody holds the lock

	mu    sync.Mutex
	alone *time.Timer // ends the hold of a step that the client makes by itself; nil if none does
}

// patience bounds a step of which the end is not seen.
const patience = 2 * time.Second

// Attach puts a new Lock between d and its stores. It must be called before a client uses d.
func Attach(d *store.Device) *Lock {
	g := &Lock{free: make(chan struct{}, 1)}
	g.free <- struct{}{}
	d.Sessions = &sessions{d.Sessions, g}
	d.EventBuffer = &buffer{d.EventBuffer, g}
	return g
}

// A step is one use of sessions: a message that is sent or received.
type step struct {
	g    *Lock
	mu   sync.Mutex
	held bool
	over bool // it has had its turn
}

// stepKey is the key of a step in a context.
type stepKey struct{}

func stepOf(ctx context.Context) *step {
	st, _ := ctx.Value(stepKey{}).(*step)
	return st
}

// take gets the lock, unless the step has it or had it.
func (st *step) take(ctx context.Context) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.held || st.over {
		return nil
	}
	select {
	case <-st.g.free:
		st.held = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give gives the lock back, if the step has it.
func (st *step) give() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	if st.held {
		st.held = false
		st.g.free <- struct{}{}
	}
}

// Send calls f, which sends one message with the context that it gets. Others wait from when the
// message is encrypted, not while f waits for the server.
func (g *Lock) Send(ctx context.Context, f func(context.Context) error) error {
	st := &step{g: g}
	defer st.give()
	return f(context.WithValue(ctx, stepKey{}, st))
}

// Alone calls f, which changes sessions behind the client's back, while the client uses none.
func (g *Lock) Alone(ctx context.Context, f func() error) error {
	select {
	case <-g.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { g.free <- struct{}{} }()
	return f()
}

// begin gets the lock for a step that the client makes by itself.
func (g *Lock) begin(ctx context.Context) error {
	select {
	case <-g.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.alone == timer {
			g.alone = nil
			g.free <- struct{}{}
		}
	})
	g.alone = timer
	return nil
}

// finish gives the lock back, if a step of the client's own has it.
func (g *Lock) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != nil {
		g.alone.Stop()
		g.alone = nil
		g.free <- struct{}{}
	}
}

// sessions is the store of sessions behind a lock.
type sessions struct {
	store.SessionStore
	g *Lock
}

// GetManySessions begins to encrypt a message.
func (s *sessions) GetManySessions(
	ctx context.Context, addresses []string,
) (map[string][]byte, error) {
	if st := stepOf(ctx); st != nil {
		if err := st.take(ctx); err != nil {
			return nil, err
		}
	}
	return s.SessionStore.GetManySessions(ctx, addresses)
}

// PutManySessions ends encrypting a message.
func (s *sessions) PutManySessions(ctx context.Context, all map[string][]byte) error {
	if st := stepOf(ctx); st != nil {
		defer st.give()
	}
	return s.SessionStore.PutManySessions(ctx, all)
}

// GetSession is part of decrypting a message, or begins to encrypt one for one device.
func (s *sessions) GetSession(ctx context.Context, address string) ([]byte, error) {
	if stepOf(ctx) == nil {
		if err := s.g.begin(ctx); err != nil {
			return nil, err
		}
	}
	return s.SessionStore.GetSession(ctx, address)
}

// PutSession is part of decrypting a message, or ends encrypting one for one device.
func (s *sessions) PutSession(ctx context.Context, address string, session []byte) error {
	if stepOf(ctx) == nil {
		defer s.g.finish()
	}
	return s.SessionStore.PutSession(ctx, address, session)
}

// buffer is the store in which a client decrypts, behind a lock.
type buffer struct {
	store.EventBuffer
	g *Lock
}

// DoDecryptionTxn decrypts a message.
func (b *buffer) DoDecryptionTxn(ctx context.Context, f func(context.Context) error) error {
	st := &step{g: b.g}
	if err := st.take(ctx); err != nil {
		return err
	}
	defer st.give()
	return b.EventBuffer.DoDecryptionTxn(context.WithValue(ctx, stepKey{}, st), f)
}

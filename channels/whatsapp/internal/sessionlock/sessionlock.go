// Package sessionlock keeps a WhatsApp client from using an encryption key twice.
//
// A Signal session has a key for each message. When it sends and when it receives, whatsmeow reads
// the session, takes the next key and writes the session back. Nothing separates these steps. If
// sending and receiving overlap, one update is lost, and the next message is encrypted with a used
// key. WhatsApp accepts it, but the receiver's phone silently drops it. A [Lock] between a device
// and its stores serialises the steps.
//
// The client also sends on its own, for example to repeat an unreadable message, and does not say
// when it has finished. Such a send holds the lock until the session is written, or for two
// seconds.
package sessionlock

import (
	"context"
	"sync"
	"time"

	"go.mau.fi/whatsmeow/store"
)

// A Lock serialises what a client does with its sessions. Its methods are safe for concurrent use.
type Lock struct {
	free chan struct{} // has a token while the lock is free

	mu    sync.Mutex
	alone *time.Timer // ends a step that the client makes on its own; nil if there is none
}

// maxStep is the time limit of a step whose end is not visible.
const maxStep = 2 * time.Second

// Attach puts a new Lock between d and its stores. Call it before a client uses d.
func Attach(d *store.Device) *Lock {
	g := &Lock{free: make(chan struct{}, 1)}
	g.free <- struct{}{}
	d.Sessions = &sessions{d.Sessions, g}
	d.EventBuffer = &buffer{d.EventBuffer, g}
	return g
}

// A step is one use of sessions: the sending or receiving of a message.
type step struct {
	g         *Lock
	encrypted func() // called when the message to send is encrypted, or nil

	mu   sync.Mutex
	held bool
	over bool // it has held the lock
}

// stepKey is the context key of a step.
type stepKey struct{}

// stepOf returns the step to which ctx belongs, or nil for what the client does on its own.
func stepOf(ctx context.Context) *step {
	st, _ := ctx.Value(stepKey{}).(*step)
	return st
}

// acquire acquires the lock unless the step holds it or has held it.
func (st *step) acquire(ctx context.Context) error {
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

// release releases the lock if the step holds it.
func (st *step) release() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	if st.held {
		st.held = false
		st.g.free <- struct{}{}
	}
}

// Send calls f, which must send one message with the given context. Others wait while the message
// is encrypted, but not while f waits for the server. Between the two it calls encrypted.
func (g *Lock) Send(
	ctx context.Context, encrypted func(), f func(context.Context) error,
) error {
	st := &step{g: g, encrypted: encrypted}
	defer st.release()
	return f(context.WithValue(ctx, stepKey{}, st))
}

// Alone calls f, which changes sessions, while the client uses none.
func (g *Lock) Alone(ctx context.Context, f func() error) error {
	select {
	case <-g.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { g.free <- struct{}{} }()
	return f()
}

// begin acquires the lock for a step that the client makes on its own.
func (g *Lock) begin(ctx context.Context) error {
	select {
	case <-g.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(maxStep, func() {
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

// finish releases the lock if such a step holds it.
func (g *Lock) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != nil {
		g.alone.Stop()
		g.alone = nil
		g.free <- struct{}{}
	}
}

// sessions is a store of sessions with a lock.
type sessions struct {
	store.SessionStore
	g *Lock
}

// GetManySessions begins to encrypt a message.
func (s *sessions) GetManySessions(
	ctx context.Context, addresses []string,
) (map[string][]byte, error) {
	if st := stepOf(ctx); st != nil {
		if err := st.acquire(ctx); err != nil {
			return nil, err
		}
	}
	return s.SessionStore.GetManySessions(ctx, addresses)
}

// PutManySessions ends encrypting a message.
func (s *sessions) PutManySessions(ctx context.Context, all map[string][]byte) error {
	if st := stepOf(ctx); st != nil {
		defer st.release()
		if st.encrypted != nil {
			defer st.encrypted()
		}
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

// buffer is the store in which a client decrypts, with a lock.
type buffer struct {
	store.EventBuffer
	g *Lock
}

// DoDecryptionTxn decrypts a message.
func (b *buffer) DoDecryptionTxn(ctx context.Context, f func(context.Context) error) error {
	st := &step{g: b.g}
	if err := st.acquire(ctx); err != nil {
		return err
	}
	defer st.release()
	return b.EventBuffer.DoDecryptionTxn(context.WithValue(ctx, stepKey{}, st), f)
}

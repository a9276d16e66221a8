package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	wastore "go.mau.fi/whatsmeow/store"

	"gateway/channels/whatsapp/internal/sessionlock"
)

// A sharedStore is the store of an account that Run has open most of the time, while others use it
// for a moment. Only one of them can open it. Its methods are safe for concurrent use.
type sharedStore struct {
	path    string
	log     *slog.Logger
	opening chan struct{} // held while the store is opened, or open only briefly

	mu   sync.Mutex
	open *openStorage // store that Run has open, or nil
}

// An openStorage is the store that Run has open, with the other users of it.
type openStorage struct {
	st          *storage
	device      *wastore.Device
	sessionLock *sessionlock.Lock
	users       sync.WaitGroup // no Add unless sharedStore.open is this one
}

// hold opens the store of a linked account for Run, and lets others use it. Messages are received
// until ctx is done.
func (s *sharedStore) hold(ctx context.Context) (*openStorage, error) {
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Until the store is in s.open, nobody else may try to open it: its lock would refuse them.
	defer func() { <-s.opening }()
	st, err := openStore(ctx, s.path, s.log)
	if err != nil {
		return nil, fmt.Errorf("whatsapp: open store: %w", err)
	}
	device, err := st.device(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("whatsapp: read store: %w", err), st.close())
	}
	if device == nil {
		reason, err := st.unlinked(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("whatsapp: read store: %w", err), st.close())
		}
		return nil, errors.Join(&unlinkedError{reason}, st.close())
	}
	h := &openStorage{st: st, device: device, sessionLock: sessionlock.Attach(device)}
	device.EventBuffer = &patientBuffer{device.EventBuffer, ctx.Done(), s.log}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = h
	return h, nil
}

// release closes the store from hold once nobody uses it.
func (s *sharedStore) release(h *openStorage) error {
	s.mu.Lock()
	s.open = nil
	s.mu.Unlock()
	// From here on use opens the store itself, for whose lock it waits up to lockPatience.
	h.users.Wait()
	return h.st.close()
}

// An exclusive calls a function while no client uses the sessions of a store.
type exclusive func(context.Context, func() error) error

// use calls f with Run's open store, or opens the store for it. It does nothing if there is no
// store.
func (s *sharedStore) use(
	ctx context.Context, f func(st *storage, alone exclusive) error,
) (err error) {
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	h := s.open
	// release waits for this user, because s.open is still h.
	if h != nil {
		h.users.Add(1)
	}
	s.mu.Unlock()
	if h != nil {
		<-s.opening // Run may end meanwhile; it waits for its users
		defer h.users.Done()
		return f(h.st, h.sessionLock.Alone)
	}
	defer func() { <-s.opening }()
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil // it was never linked
	}
	st, err := openStore(ctx, s.path, s.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	return f(st, func(_ context.Context, f func() error) error { return f() })
}

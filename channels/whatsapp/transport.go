package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// A wire is the transport of one session. It redirects everything to another base URL if there is
// one, and it can be cut.
//
// A session ends by cutting: a client that hangs up by itself stops receiving from its reader, and
// if a frame arrives at that moment, the reader blocks forever. When the connection below the
// reader breaks, the reader ends.
type wire struct {
	next http.RoundTripper
	base *url.URL // or nil

	once   sync.Once     // guards cutting
	writes atomic.Uint64 // number of writes to websockets

	mu       sync.Mutex
	stopped  bool
	calls    map[*context.CancelFunc]struct{} // cancels calls without an answer
	open     map[*upgraded]struct{}
	expected uint64 // number of writes with the one that is expected; 0: none
}

// newWire returns a wire that uses next. base may be "".
func newWire(next http.RoundTripper, base string) (*wire, error) {
	w := &wire{next: next, calls: make(map[*context.CancelFunc]struct{}),
		open: make(map[*upgraded]struct{})}
	if base == "" {
		return w, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, errors.New("whatsapp: api_url is not a valid address")
	}
	w.base = u
	return w, nil
}

// errCut is the error of calls after cut.
var errCut = errors.New("the session has ended")

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	w.mu.Lock()
	stopped := w.stopped
	// A function can't be the key of a map, so its address is.
	w.calls[&cancel] = struct{}{}
	w.mu.Unlock()
	ended := func() {
		w.mu.Lock()
		delete(w.calls, &cancel)
		w.mu.Unlock()
		cancel()
	}
	if stopped {
		ended()
		return nil, errCut
	}
	r = r.Clone(ctx)
	if w.base != nil {
		r.URL.Scheme, r.URL.Host, r.Host = w.base.Scheme, w.base.Host, w.base.Host
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		ended()
		return nil, err
	}
	// An ordinary answer ends when its body is closed.
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &body{resp.Body, ended}
		return resp, nil
	}
	socket, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		ended()
		return nil, errors.Join(fmt.Errorf("websocket body is a %T", resp.Body), resp.Body.Close())
	}
	u := &upgraded{ReadWriteCloser: socket, writes: &w.writes, over: make(chan struct{})}
	u.closed = func() {
		w.mu.Lock()
		delete(w.open, u)
		w.mu.Unlock()
		cancel()
	}
	resp.Body = u
	w.mu.Lock()
	delete(w.calls, &cancel) // a websocket needs the context of its request
	stopped = w.stopped
	if !stopped {
		w.open[u] = struct{}{}
	}
	w.mu.Unlock()
	// cut has not seen the websocket, because it came too late.
	if stopped {
		return nil, errors.Join(errCut, u.Close())
	}
	return resp, nil
}

// A body is the body of an answer with a function to call at its end.
type body struct {
	io.ReadCloser
	ended func()
}

// Close also takes the call from those that cut cancels.
func (b *body) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}

// An upgraded is the connection of a websocket. The client's reader reads from it on a goroutine of
// its own, while others write.
type upgraded struct {
	io.ReadWriteCloser
	writes *atomic.Uint64
	over   chan struct{} // closed after a failed read
	once   sync.Once
	closed func()
}

func (u *upgraded) Close() error {
	defer u.closed()
	return u.ReadWriteCloser.Close()
}

// Read reports the end of the connection to cut, which waits for it.
func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Read(p)
	if err != nil {
		u.once.Do(func() { close(u.over) })
	}
	return n, err
}

// Write counts, for awaitWrite.
func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Write(p)
	u.writes.Add(1)
	return n, err
}

// expectWrite records that a write to a websocket will follow. If another write comes first,
// awaitWrite returns too early, which is harmless.
func (w *wire) expectWrite() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = w.writes.Load() + 1
}

// awaitWrite waits for a short time for the last expected write.
func (w *wire) awaitWrite() {
	w.mu.Lock()
	expected := w.expected
	w.mu.Unlock()
	await(200*time.Millisecond, func() bool { return w.writes.Load() >= expected })
}

// await waits until done returns true, up to limit. It reports whether done has returned true.
func await(limit time.Duration, done func() bool) bool {
	timer, tick := time.NewTimer(limit), time.NewTicker(time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timer.C:
			return false
		}
	}
	return true
}

// cut closes all connections, refuses new ones, and waits until the readers have noticed.
func (w *wire) cut() { w.once.Do(w.cutAll) }

// cutAll does the work of cut. It waits a second at most for all readers together.
func (w *wire) cutAll() {
	w.mu.Lock()
	w.stopped = true
	for cancel := range w.calls {
		(*cancel)()
	}
	open := maps.Clone(w.open)
	w.mu.Unlock()
	over := time.After(time.Second)
	// Closing calls u.closed, which takes the lock. So the lock is not held here.
	for u := range open {
		_ = u.Close() // it may already be closed
		select {
		case <-u.over:
		case <-over: // it was closed before a read, or nobody reads
			return
		}
	}
}

// drop closes the current connections. The client opens a new one.
func (w *wire) drop() {
	w.mu.Lock()
	open := maps.Clone(w.open)
	w.mu.Unlock()
	for u := range open {
		_ = u.Close() // it may already be closed
	}
}

// isCut reports whether cut was called.
func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}

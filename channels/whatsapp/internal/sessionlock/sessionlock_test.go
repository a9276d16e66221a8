package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mau.fi/whatsmeow/store"
)

// memory is a store of one session. The session is a number.
type memory struct {
	store.SessionStore
	store.EventBuffer
	mu      sync.Mutex
	session []byte
}

func (m *memory) GetSession(context.Context, string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session, nil
}

func (m *memory) PutSession(_ context.Context, _ string, s []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = s
	return nil
}

func (m *memory) GetManySessions(context.Context, []string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string][]byte{"ada": m.session}, nil
}

func (m *memory) PutManySessions(ctx context.Context, all map[string][]byte) error {
	return m.PutSession(ctx, "ada", all["ada"])
}

func (m *memory) DoDecryptionTxn(ctx context.Context, f func(context.Context) error) error {
	return f(ctx)
}

// attach returns a device with a session of value 0, and its lock.
func attach() (*store.Device, *Lock) {
	m := &memory{session: []byte("0")}
	d := &store.Device{Sessions: m, EventBuffer: m}
	return d, Attach(d)
}

func next(s []byte) []byte {
	n, _ := strconv.Atoi(string(s)) // it is always a number
	time.Sleep(time.Millisecond)    // fake time
	return strconv.AppendInt(nil, int64(n)+1, 10)
}

// receive, send and resend use a session as a client does.
func receive(ctx context.Context, d *store.Device) error {
	return d.EventBuffer.DoDecryptionTxn(ctx, func(ctx context.Context) error {
		s, err := d.Sessions.GetSession(ctx, "ada")
		return errors.Join(err, d.Sessions.PutSession(ctx, "ada", next(s)))
	})
}

func send(ctx context.Context, d *store.Device, g *Lock) error {
	encrypted := 0
	return g.Send(ctx, func() { encrypted++ }, func(ctx context.Context) error {
		all, err := d.Sessions.GetManySessions(ctx, []string{"ada"})
		if err != nil {
			return err
		}
		all["ada"] = next(all["ada"])
		err = d.Sessions.PutManySessions(ctx, all)
		if encrypted != 1 {
			err = fmt.Errorf("told %d times that the message is encrypted, want once", encrypted)
		}
		time.Sleep(10 * time.Second) // until the server answers, for which nobody else waits
		return err
	})
}

func resend(ctx context.Context, d *store.Device) error {
	s, err := d.Sessions.GetSession(ctx, "ada")
	return errors.Join(err, d.Sessions.PutSession(ctx, "ada", next(s)))
}

func TestNoStepIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, g := attach()
		began := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			for _, f := range []func() error{
				func() error { return receive(t.Context(), d) },
				func() error { return send(t.Context(), d, g) },
				func() error { return resend(t.Context(), d) },
			} {
				wg.Go(func() {
					if err := f(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if s, _ := d.Sessions.GetSession(t.Context(), "ada"); string(s) != "300" {
			t.Errorf("the session stands at %s after 300 steps", s)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v: they wait for the server's answers", took)
		}
		time.Sleep(maxStep) // GetSession above began a step and did not end it
	})
}

// TestStepsThatFail checks that nobody waits for ever for a caller that has given up.
func TestStepsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, g := attach()
		broken := errors.New("broken")
		if _, err := d.Sessions.GetSession(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := receive(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("receive while another sends = %v", err)
		}
		if err := send(ctx, d, g); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send while another sends = %v", err)
		}
		if err := receive(t.Context(), d); err != nil { // succeeds after a while
			t.Error(err)
		}
		err := g.Send(t.Context(), nil, func(ctx context.Context) error {
			_, err := d.Sessions.GetManySessions(ctx, []string{"ada"})
			return errors.Join(err, broken)
		})
		if !errors.Is(err, broken) {
			t.Errorf("Send = %v", err)
		}
		err = d.EventBuffer.DoDecryptionTxn(t.Context(), func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("DoDecryptionTxn = %v", err)
		}
		if err := receive(t.Context(), d); err != nil {
			t.Error(err)
		}
	})
}

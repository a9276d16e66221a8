package bus

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A fixture is a database with the tables of this package.
type fixture struct {
	t   *testing.T
	db  *store.DB
	now time.Time
}

var chat = Address{Account: "test", Chat: "a"}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "b.db"),
		[]store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t: t, db: db, now: time.UnixMilli(1_000_000)}
}

// tx runs fn in a transaction that must succeed.
func (f *fixture) tx(fn func(tx *store.Tx) error) {
	f.t.Helper()
	f.must(f.db.Tx(f.t.Context(), fn))
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read() store.Queryer { return f.db.Read(f.t.Context()) }

// rings reports whether c holds a wake-up, and receives it.
func rings(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAddressString(t *testing.T) {
	for want, a := range map[string]Address{
		"tg/42":   {Account: "tg", Chat: "42"},
		"tg/42/7": {Account: "tg", Chat: "42", Thread: "7"},
	} {
		if got := a.String(); got != want {
			t.Errorf("%#v = %q, want %q", a, got, want)
		}
	}
}

// A wake-up is kept until the reader receives it. Several wake-ups become one, and waking never
// blocks.
func TestWake(t *testing.T) {
	in, out, live := NewInbox(), NewOutbox(), NewLive()
	for name, s := range map[string]struct {
		wake func()
		c    <-chan struct{}
	}{
		"inbox":  {in.Wake, in.C()},
		"outbox": {func() { newOutboxPut(t, out) }, out.C()},
		"live":   {func() { live.Publish(Progress{To: chat}) }, live.C()},
	} {
		if rings(s.c) {
			t.Errorf("%s: the reader is woken before anything came", name)
		}
		for range 3 {
			s.wake()
		}
		if !rings(s.c) || rings(s.c) {
			t.Errorf("%s: three wake-ups are not one", name)
		}
	}
}

// newOutboxPut puts a message into a new database's outbox.
func newOutboxPut(t *testing.T, out *Outbox) {
	f := &outboxFixture{newFixture(t), out}
	f.put("hello")
}

// A message that is not committed wakes nobody.
func TestNoWakeWithoutCommit(t *testing.T) {
	f := newOutboxFixture(t)
	mine := errors.New("mine")
	err := f.db.Tx(t.Context(), func(tx *store.Tx) error {
		return errors.Join(f.Put(tx, OutboundMessage{To: chat}, f.now), mine)
	})
	if !errors.Is(err, mine) || rings(f.C()) {
		t.Errorf("Tx = %v, and the reader is woken", err)
	}
}

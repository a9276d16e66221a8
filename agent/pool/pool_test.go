package pool

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/agent/modelcall"
	"gateway/agent/observe"
	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

// Pending also returns messages that a worker has claimed but not yet written in a transaction.
func TestPending(t *testing.T) {
	t.Parallel()
	d := New(&turn.Env{Now: time.Now}, nil, Snapshot{Settings: Settings{QueueMode: Followup}})
	w := &worker{waiting: make([]bus.Received, 3),
		wake: make(chan struct{}, 1), pool: d, key: bustest.Session("test/a")}
	for i := range w.waiting {
		w.waiting[i].Seq = int64(i + 1)
	}
	d.workers[w.key] = w
	w.claim()
	var got []int64
	for _, r := range d.Pending(w.key) {
		got = append(got, r.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("messages %v are pending, want all three", got)
	}
	w.Claimed(t.Context(), nil)
	if n := len(d.Pending(w.key)); n != 2 {
		t.Errorf("%d messages are pending after the first was written, want 2", n)
	}
}

// As soon as a turn no longer runs, its worker has no turn to resume. The worker must not change
// that later: the dispatching goroutine may read it meanwhile.
func TestResumedTurnEnds(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"),
		[]store.Migration{bus.Migration, session.Migration, question.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	env := &turn.Env{DB: db, Inbox: bus.NewInbox(), Calls: &modelcall.Calls{Observer: observe.Noop{}},
		Logger: slog.New(slog.DiscardHandler), Counters: new(turn.Counters), Now: time.Now}
	pl, st := New(env, nil, Snapshot{}), &session.Turn{ID: 1, Session: bustest.Session("test/a")}
	w := &worker{pool: pl, key: st.Session, resume: st}
	ended := false
	err = w.run(leaving{t.Context(), func() {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		if ended = true; w.resume != nil {
			t.Error("the turn has ended, but is still to be resumed")
		}
	}})
	if !ended {
		t.Errorf("the turn has not ended: %v", err)
	}
}

// A leaving is a context that calls left when a context that was made from it ends.
type leaving struct {
	context.Context
	left func()
}

// Done makes the context package use AfterFunc, not the context within.
func (leaving) Done() <-chan struct{} { return make(chan struct{}) }

func (l leaving) AfterFunc(func()) (stop func() bool) {
	return func() bool { l.left(); return true }
}

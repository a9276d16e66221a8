package pool

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A command may drop waiting messages while the answer to a question is being stored. The chosen
// answer stays, and the other messages keep waiting.
func TestDropDuringDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"),
			[]store.Migration{bus.Migration, question.Migration}, nil)
		must(err)
		t.Cleanup(func() { must(db.Close()) })
		env := &turn.Env{DB: db, Inbox: bus.NewInbox(), Now: time.Now}
		pl, key, chat := New(env, nil, Snapshot{}), bustest.Session("test/g"),
			bus.Address{Account: "test", Chat: "g"}
		q := &question.Question{Kind: question.Ask, Turn: 1, Address: chat, Sender: "asked",
			Expires: time.Now().Add(time.Hour)}
		must(db.Tx(t.Context(), func(tx *store.Tx) error {
			for _, sender := range []string{"leaving", "asked", "other"} {
				_, err := env.Inbox.Put(tx, bus.InboundMessage{ID: sender, From: chat, Group: true,
					Sender: bus.Sender{ID: sender}, Text: "yes"}, time.Now())
				if err != nil {
					return err
				}
			}
			return question.Put(tx, q)
		}))
		waiting, err := env.Inbox.Waiting(db.Read(t.Context()), 0)
		must(err)
		p := &suspendedTurn{question: *q, waiting: waiting}
		p.turn.ID = q.Turn
		pl.suspended[key] = p

		written := make(chan struct{})
		go func() {
			must(db.Tx(t.Context(), func(*store.Tx) error {
				<-written
				return nil
			}))
		}()
		synctest.Wait() // until the database is busy
		go func() {
			_, err := review{pl}.decide(t.Context(), p, q)
			must(err)
		}()
		synctest.Wait() // until the answer is chosen and waits for the database
		(&Stopper{Pool: pl}).cancelOwn(key, waiting[:1], false)
		close(written)
		synctest.Wait()

		claimed, err := env.Inbox.ClaimedBy(db.Read(t.Context()), q.Turn)
		must(err)
		if len(claimed) != 1 || claimed[0].Message.Sender.ID != "asked" {
			t.Errorf("the turn has claimed %+v, want the answer of who was asked", claimed)
		}
		left := pl.Pending(key)
		if len(left) != 1 || left[0].Message.Sender.ID != "other" {
			t.Errorf("waiting are %+v, want the message of the other", left)
		}
	})
}

// A message waits for a question of the session from before, but not for its sub-agent.
func TestDecidesBefore(t *testing.T) {
	t.Parallel()
	pl := New(&turn.Env{Now: time.Now}, nil, Snapshot{})
	r := bus.Received{Seq: 1, Message: bus.InboundMessage{
		From: bus.Address{Account: "test", Chat: "b"}, PreviousChat: "a", Group: true,
		Sender: bus.Sender{ID: "bob"}, Origin: bus.Origin{Kind: bus.Person}}}
	for kind, want := range map[question.Kind]bool{question.Ask: true, question.Await: false} {
		pl.suspended[session.Before(r.Message)] = &suspendedTurn{
			question: question.Question{Kind: kind, Sender: "bob",
				Address: bus.Address{Account: "test", Chat: "a"}}}
		if got := decidesBefore(pl, r); got != want {
			t.Errorf("%s: decidesBefore = %v, want %v", kind, got, want)
		}
	}
}

// A message that was held when a question was asked does not answer it.
func TestHeldDecidesNothing(t *testing.T) {
	t.Parallel()
	q := &question.Question{Kind: question.Ask, Sender: "ann", After: 5}
	r := bus.Received{Seq: 6, Message: bus.InboundMessage{Sender: bus.Sender{ID: "ann"}, Text: "1"}}
	if !decides(q, r) {
		t.Error("a later message does not answer the question")
	}
	if r.Message.Origin.Held = 4; decides(q, r) {
		t.Error("a message that was held before answers the question")
	}
}

package agent

import (
	"bytes"
	"context"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/bus"
	"gateway/store"
)

// No command takes the dispatcher's mutex within its transaction. The goroutine that holds the
// mutex may wait for another transaction, and then both would wait for ever.
func TestCommandsWithoutMutex(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hello"))
		w.deps.Notes = llmtest.Func("notes", func(llm.Request) llmtest.Step {
			return llmtest.Say("[SKIP]")
		})
		w.start()
		w.say("a", "hello")
		w.settle()
		db := &lockedDB{DB: w.deps.DB, t: t, d: w.d, stacks: make([]byte, 8<<20)} // for all tests
		w.d.commands = w.d.newCommands(db)
		var names []string
		for _, c := range command.List() {
			names = append(names, c.Name)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == "forget" })
		for _, text := range append(names, "queue collect", "queue no-such", "model default",
			"model no-such", "remind 20m tea", "timezone Europe/Berlin", "approve all", "forget",
			"forget me", "forget me now") {
			m := w.message("a", "/"+text)
			m.Role = bus.Owner
			db.text = m.Text
			w.put(m)
			w.settle()
		}
		guest := w.message("b", "/stop")
		guest.Role = bus.Guest
		w.put(guest)
		w.settle()
		if db.commits < len(names) {
			t.Errorf("%d commands were committed of %d", db.commits, len(names))
		}
	})
}

// A lockedDB reports an error if a command waits for the dispatcher's mutex in a transaction.
type lockedDB struct {
	*store.DB
	t       *testing.T
	d       *Dispatcher
	stacks  []byte
	text    string // of the command
	commits int
}

// Tx implements [command.DB].
func (db *lockedDB) Tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return db.DB.Tx(ctx, func(tx *store.Tx) (err error) {
		db.commits++
		if withMutexHeld(db.d, db.stacks, func() { err = fn(tx) }) {
			db.t.Errorf("%s waits for the mutex in its transaction", db.text)
		}
		return err
	})
}

// withMutexHeld runs fn while another goroutine holds the dispatcher's mutex. It reports whether
// fn has waited for the mutex.
func withMutexHeld(d *Dispatcher, stacks []byte, fn func()) (waited bool) {
	held, done, released := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		mu := poolMutex(d)
		mu.Lock()
		defer mu.Unlock()
		close(held)
		for !waited {
			select {
			case <-done:
				return
			default:
				waited = waitsInCommand(stacks[:runtime.Stack(stacks, true)])
			}
		}
	}()
	<-held
	fn()
	close(done)
	<-released
	return waited
}

// poolMutex returns the mutex of a dispatcher's sessions, which package pool does not export.
func poolMutex(d *Dispatcher) *sync.Mutex {
	mu := reflect.ValueOf(d.pool).Elem().FieldByName("mu")
	return (*sync.Mutex)(mu.Addr().UnsafePointer())
}

// waitsInCommand reports whether a goroutine waits for a mutex of package pool in a call below
// withMutexHeld.
func waitsInCommand(stacks []byte) bool {
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		_, above, locks := bytes.Cut(stack, []byte("sync.(*Mutex).lockSlow("))
		_, above, _ = bytes.Cut(above, []byte("\nsync.(*Mutex).Lock("))
		_, above, _ = bytes.Cut(above, []byte("\n\t")) // skips the line in package sync
		_, caller, _ := bytes.Cut(above, []byte("\n"))
		if locks && bytes.HasPrefix(caller, []byte("gateway/agent/pool.")) &&
			bytes.Contains(caller, []byte("gateway/agent.withMutexHeld(")) {
			return true
		}
	}
	return false
}

// Package pool manages the sessions with work under way. A session has a worker while its messages
// wait or its turn runs. A turn that waits for a person or a sub-agent is suspended: its session
// then has no worker, only an entry in memory, until the question is decided.
//
// The number of slots for model calls limits how many workers run at once; further workers wait to
// be admitted. A new process resumes the work of the earlier one. If some of that work may have
// crashed the earlier process, the pool first runs it alone. Commands stop sessions with a
// [Stopper].
package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Pool manages the sessions with work under way: each has a worker or a suspended turn. Its
// methods are safe for concurrent use.
type Pool struct {
	choices
	signals
	tables
	life *store.Life

	Lease store.Lease    // lease of the turns; set before Resume
	wg    sync.WaitGroup // of the workers
	tried map[int64]bool // messages that Resume handed out; used by the dispatching goroutine only

	// More says that messages are being handed out that have arrived together. The rest of a message
	// in several parts may be among them.
	More atomic.Bool

	mu         sync.Mutex                     // guards the fields below and all sessions
	workers    map[session.Key]*worker        // sessions whose worker runs or waits to be admitted
	unadmitted []*worker                      // workers that wait to be admitted, in order
	running    int                            // number of admitted workers
	suspended  map[session.Key]*suspendedTurn // sessions with a suspended turn
	dueKeys    []session.Key                  // suspended sessions to review
	tasks      map[session.Key]int            // working sub-agents, by parent
	queued     map[session.Key][]bus.Received // tasks that are held back, by parent
}

// New returns a Pool without sessions.
func New(env *turn.Env, life *store.Life, s Snapshot) *Pool {
	pl := &Pool{
		signals:   newSignals(),
		tables:    tables{env: env},
		life:      life,
		workers:   make(map[session.Key]*worker),
		suspended: make(map[session.Key]*suspendedTurn),
		tasks:     make(map[session.Key]int),
		queued:    make(map[session.Key][]bus.Received),
	}
	pl.chosen = make(map[session.Key]session.Choices)
	pl.Set(s)
	return pl
}

// Wait waits for the workers to return.
func (pl *Pool) Wait() { pl.wg.Wait() }

// WasResumed reports whether Resume has handed out a message.
func (pl *Pool) WasResumed(seq int64) bool { return pl.tried[seq] }

// Counts says how much is in memory.
type Counts struct {
	Workers   int // sessions with a worker
	Suspended int // sessions with a suspended turn
	Parents   int // sessions with working sub-agents
	HeldBack  int // sessions with tasks that are held back
}

// Counts returns how much is in memory.
func (pl *Pool) Counts() Counts {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return Counts{len(pl.workers), len(pl.suspended), len(pl.tasks), len(pl.queued)}
}

// MarkDue makes ReviewDue review a session.
func (pl *Pool) MarkDue(key session.Key) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.markDue(key)
}

// At most turn.SessionsPerSlot sessions work at a time per model call slot. The others wait in the
// order of their arrival. A waiting session needs memory only for its messages. The session of a
// group that has moved also waits for the session from before, so that the answers keep the order
// of the messages.

// start registers w as the worker of key and runs it once it is admitted. pl.mu is held.
func (pl *Pool) start(work context.Context, key session.Key, w *worker) {
	w.pool, w.key, w.wake = pl, key, make(chan struct{}, 1)
	pl.workers[key] = w
	if parent := key.Parent(); !parent.IsZero() {
		pl.tasks[parent]++
	}
	pl.unadmitted = append(pl.unadmitted, w)
	pl.admit(work)
}

// admit runs waiting workers as long as there is room. pl.mu is held.
func (pl *Pool) admit(work context.Context) {
	most := turn.SessionsPerSlot * cap(pl.env.Calls.Slots)
	for pl.running < most && !pl.env.IsDraining() {
		i := slices.IndexFunc(pl.unadmitted, func(w *worker) bool { return !w.isBehind() })
		if i < 0 {
			return
		}
		w := pl.unadmitted[i]
		copy(pl.unadmitted[1:], pl.unadmitted[:i]) // few are behind, so i is small
		pl.unadmitted[0] = nil
		pl.unadmitted = pl.unadmitted[1:]
		pl.running++
		pl.wg.Go(func() {
			defer pl.ended(work, w)
			store.GrowStack()
			if err := w.run(work); err != nil {
				pl.Fail(err)
			}
		})
	}
}

// ended records that w has ended, and admits others.
func (pl *Pool) ended(work context.Context, w *worker) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	w.endTrial(true)
	pl.running--
	pl.taskEnded(work, w.key)
	pl.admit(work)
}

// HandOverUnadmitted leaves the turns of workers that were never admitted to the next process. Call
// it when no worker runs any more.
func (pl *Pool) HandOverUnadmitted(ctx context.Context) error {
	return pl.env.DB.Tx(ctx, func(tx *store.Tx) error {
		for _, w := range pl.unadmitted {
			if w.resume == nil {
				continue
			}
			if err := session.HandOver(tx, w.resume); err != nil {
				return err
			}
		}
		return nil
	})
}

// mustWait reports whether the task r must wait because the maximum number of sub-agents of its
// session is working. pl.mu is held.
func (pl *Pool) mustWait(key session.Key, r bus.Received) bool {
	parent := key.Parent()
	if parent.IsZero() || pl.tasks[parent] < turn.MaxTasks {
		return false
	}
	pl.queued[parent] = append(pl.queued[parent], r)
	return true
}

// taskEnded records that a sub-agent has ended, and starts the next task. pl.mu is held.
func (pl *Pool) taskEnded(work context.Context, key session.Key) {
	parent := key.Parent()
	if parent.IsZero() {
		return
	}
	if pl.tasks[parent]--; pl.tasks[parent] <= 0 {
		delete(pl.tasks, parent)
	}
	queue := pl.queued[parent]
	if len(queue) == 0 || pl.env.IsDraining() {
		return
	}
	if pl.queued[parent] = queue[1:]; len(queue) == 1 {
		delete(pl.queued, parent)
	}
	next := queue[0]
	pl.start(work, session.Of(next.Message), &worker{waiting: []bus.Received{next}})
}

// suspendAgain suspends the turns that were suspended in the earlier process, and returns the
// others. The others include turns that waited in the middle of a call.
func (pl *Pool) suspendAgain(
	turns []session.Turn, waits map[int64]question.Question,
) []session.Turn {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return slices.DeleteFunc(turns, func(t session.Turn) bool {
		q, ok := waits[t.ID]
		if ok = ok && !q.Running; ok {
			pl.suspended[t.Session] = &suspendedTurn{turn: t, question: q}
		}
		return ok
	})
}

// suspend replaces the worker w by an entry for its turn, which is now suspended.
func (pl *Pool) suspend(w *worker, o *turn.Outcome) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	delete(pl.workers, w.key)
	pl.suspended[w.key] = &suspendedTurn{turn: o.Turn, question: o.Question, cancel: o.Cancel,
		waiting: w.waiting, fullNotified: w.fullNotified, deferred: w.deferred, answers: o.Answers}
	w.waiting, w.suspended = nil, true
	pl.markDue(w.key) // the question may already be decided, or a waiting message may decide it
}

// markDue makes the dispatching goroutine review a suspended turn soon. pl.mu is held.
func (pl *Pool) markDue(key session.Key) {
	pl.dueKeys = append(pl.dueKeys, key)
	pl.ring()
}

// Pending returns the messages of a session that no turn has claimed yet. Only the dispatching
// goroutine adds messages, so for that goroutine the list is complete.
func (pl *Pool) Pending(key session.Key) []bus.Received {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.pendingLocked(key)
}

// pendingLocked is Pending with pl.mu held.
func (pl *Pool) pendingLocked(key session.Key) []bus.Received {
	if p, ok := pl.suspended[key]; ok {
		return p.waiting
	}
	if w, ok := pl.workers[key]; ok {
		return slices.Concat(w.claiming, w.waiting)
	}
	return nil
}

// below returns the sessions that work for any of keys: those of sub-agents and, if jobs is set,
// those of jobs and hooks, also if only their tasks are held back. pl.mu is held.
func (pl *Pool) below(keys []session.Key, jobs bool) (list []session.Key) {
	wanted := func(k session.Key) bool {
		return slices.ContainsFunc(keys, func(key session.Key) bool {
			return k.IsDescendantOf(key) && (jobs || k.Background() == key.Background())
		})
	}
	for k := range pl.workers {
		if wanted(k) {
			list = append(list, k)
		}
	}
	for k := range pl.suspended {
		if wanted(k) {
			list = append(list, k)
		}
	}
	for k := range pl.queued {
		if wanted(k) && !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list
}

// InMemory returns the messages that are in memory, and the sessions with a worker or a suspended
// turn. From then on a session that was full accepts messages again.
func (pl *Pool) InMemory() (messages map[int64]bool, sessions map[session.Key]bool) {
	messages, sessions = make(map[int64]bool), make(map[session.Key]bool)
	add := func(list []bus.Received) {
		for _, r := range list {
			messages[r.Seq] = true
		}
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for key, w := range pl.workers {
		sessions[key], w.deferred = true, false
		add(w.claiming)
		add(w.waiting)
	}
	for key, p := range pl.suspended {
		sessions[key], p.deferred = true, false
		add(p.waiting)
	}
	for _, list := range pl.queued {
		add(list)
	}
	return messages, sessions
}

// Serves reports whether a session has a worker or a valid reason to have none: its turn is
// suspended, or its task is held back.
func (pl *Pool) Serves(key session.Key) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.has(key) || len(pl.queued[key.Parent()]) > 0
}

// has reports whether a session has a worker or a suspended turn. pl.mu is held.
func (pl *Pool) has(key session.Key) bool {
	_, works := pl.workers[key]
	_, waits := pl.suspended[key]
	return works || waits
}

// Resume starts a worker for each turn that an earlier process left running, and registers the
// suspended turns. It first runs the work that may have crashed that process, one session at a
// time. Lease must be set.
func (pl *Pool) Resume(ctx, work context.Context) error {
	if err := pl.ReloadChoices(pl.env.DB.Read(work)); err != nil {
		return err
	}
	waits, err := pl.waits(work)
	if err != nil {
		return err
	}
	turns, err := session.RepairRunning(work, pl.env.DB, pl.env.Logger)
	if err != nil {
		return err
	}
	started, err := pl.readable(work, pl.env.Inbox.Started)
	if err != nil {
		return err
	}
	turns = pl.suspendAgain(turns, waits)
	pr := &probation{Pool: pl}
	err = pl.env.DB.Tx(ctx, func(tx *store.Tx) error { return pr.blame(tx, turns, started) })
	if err == nil {
		turns, err = pr.tryAlone(ctx, work, turns)
	}
	if err != nil {
		return err
	}
	for i := range turns {
		pl.env.Logger.InfoContext(ctx, "turn resumed", "session", turns[i].Session,
			"turn", turns[i].ID, "attempt", turns[i].Attempts)
		pl.ResumeTurn(work, &turns[i])
	}
	return nil
}

// ResumeTurn starts a worker that first finishes the turn t.
func (pl *Pool) ResumeTurn(work context.Context, t *session.Turn) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	// Until the worker knows the turn's origin, assume that the turn is standalone.
	pl.start(work, t.Session, &worker{resume: t, standalone: true})
}

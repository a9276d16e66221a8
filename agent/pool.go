package agent

import (
	"context"
	"slices"
	"sync"

	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A pool has the sessions in which something is under way: a worker for each, or the place of a
// turn that waits. Its methods may be called concurrently.
type pool struct {
	choices
	env       *turn.Env
	lease     store.Lease
	sessions  session.Store
	questions question.Store

	fatal chan error     // the first error that ends Run
	dueC  chan struct{}  // rung when dueKeys grows
	wg    sync.WaitGroup // of the workers

	mu         sync.Mutex
	workers    map[session.Key]*worker        // a key is present while its worker runs, or waits to
	unadmitted []*worker                      // those that wait to be admitted, in their order
	running    int                            // workers that are admitted
	suspended  map[session.Key]*suspended     // of the sessions whose turn waits; they have no worker
	dueKeys    []session.Key                  // of suspended ones that are to be looked at
	tasks      map[session.Key]int            // sub-agents that work, by their parent
	queued     map[session.Key][]bus.Received // tasks that are held back, likewise
}

func newPool(env *turn.Env, s *settings) *pool {
	pl := &pool{
		env:       env,
		fatal:     make(chan error, 1),
		dueC:      make(chan struct{}, 1),
		workers:   make(map[session.Key]*worker),
		suspended: make(map[session.Key]*suspended),
		tasks:     make(map[session.Key]int),
		queued:    make(map[session.Key][]bus.Received),
	}
	pl.choices.modes, pl.choices.models = make(map[session.Key]Mode), make(map[session.Key]string)
	pl.current.Store(s)
	return pl
}

// tx runs fn in a transaction. A write that has begun to matter is finished also while the process
// ends.
func (pl *pool) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return pl.env.DB.Tx(context.WithoutCancel(ctx), fn)
}

// However many people write at once, so many sessions work at a time: see [turn.SessionsPerSlot].
// The others wait for their turn in the order in which they came, and take no more memory than
// their messages do.

// start adds w as the worker of key, and runs it once it is admitted. pl.mu is held.
func (pl *pool) start(work context.Context, key session.Key, w *worker) {
	w.pool, w.key, w.wake = pl, key, make(chan struct{}, 1)
	pl.workers[key] = w
	if parent := key.Parent(); parent != "" {
		pl.tasks[parent]++
	}
	pl.unadmitted = append(pl.unadmitted, w)
	pl.admit(work)
}

// admit runs the workers for which there is room. pl.mu is held.
func (pl *pool) admit(work context.Context) {
	most := turn.SessionsPerSlot * cap(pl.env.Calls.Slots)
	for len(pl.unadmitted) > 0 && pl.running < most && !pl.env.IsDraining() {
		w := pl.unadmitted[0]
		pl.unadmitted[0] = nil
		pl.unadmitted = pl.unadmitted[1:]
		pl.running++
		pl.wg.Go(func() {
			defer pl.ended(work, w)
			if err := w.run(work); err != nil {
				select {
				case pl.fatal <- err:
				default: // an earlier error ends Run already
				}
			}
		})
	}
}

// ended notes that w works no more, and admits others.
func (pl *pool) ended(work context.Context, w *worker) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	w.prove(true)
	pl.running--
	pl.taskEnded(work, w.key)
	pl.admit(work)
}

// handOverUnadmitted leaves the turns that were not even resumed to the next process. Nobody admits
// any more.
func (pl *pool) handOverUnadmitted(ctx context.Context) error {
	return pl.env.DB.Tx(ctx, func(tx *store.Tx) error {
		for _, w := range pl.unadmitted {
			if w.resume == nil {
				continue
			}
			if err := pl.sessions.HandOver(tx, w.resume); err != nil {
				return err
			}
		}
		return nil
	})
}

// holdBack reports whether the task r has to wait, because enough sub-agents of its session work.
// pl.mu is held.
func (pl *pool) holdBack(key session.Key, r bus.Received) bool {
	parent := key.Parent()
	if parent == "" || pl.tasks[parent] < turn.MaxTasks {
		return false
	}
	pl.queued[parent] = append(pl.queued[parent], r)
	return true
}

// taskEnded counts that a sub-agent works no more, and lets the next one begin. pl.mu is held.
func (pl *pool) taskEnded(work context.Context, key session.Key) {
	parent := key.Parent()
	if parent == "" {
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

// waits returns the open questions by their turn. A turn whose question can't be read does not wait
// any longer: it ends, and says so.
func (pl *pool) waits(ctx context.Context) (map[int64]question.Question, error) {
	list, err := pl.questions.ListOpen(pl.env.DB.Read(ctx))
	_, err = pl.env.DB.Mend(ctx, pl.env.Logger, err, pl.questions.SetAside)
	waits := make(map[int64]question.Question, len(list))
	for _, q := range list {
		waits[q.Turn] = q
	}
	return waits, err
}

// suspendAgain parks the turns that wait, and returns the others.
func (pl *pool) suspendAgain(
	turns []session.Turn, waits map[int64]question.Question,
) []session.Turn {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return slices.DeleteFunc(turns, func(t session.Turn) bool {
		q, ok := waits[t.ID]
		if ok {
			pl.suspended[t.Session] = &suspended{turn: t, question: q}
		}
		return ok
	})
}

// suspend takes the place of w, whose turn waits from now on.
func (pl *pool) suspend(w *worker, o *turn.Outcome) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	delete(pl.workers, w.key)
	pl.suspended[w.key] = &suspended{turn: o.Turn, question: o.Question, waiting: w.waiting,
		told: w.told, deferred: w.deferred, answers: o.Answers}
	w.waiting, w.suspended = nil, true
	pl.due(w.key) // its question may be decided by now, or by what waits
}

// due lets the dispatching goroutine look at a suspended turn soon. pl.mu is held.
func (pl *pool) due(key session.Key) {
	pl.dueKeys = append(pl.dueKeys, key)
	select {
	case pl.dueC <- struct{}{}:
	default:
	}
}

// pending returns the messages of a session that no turn has taken yet. Only the goroutine that
// hands messages out adds to them, so that for it they are all there are.
func (pl *pool) pending(key session.Key) []bus.Received {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.pendingLocked(key)
}

// pendingLocked is pending while pl.mu is held.
func (pl *pool) pendingLocked(key session.Key) []bus.Received {
	if p, ok := pl.suspended[key]; ok {
		return p.waiting
	}
	if w, ok := pl.workers[key]; ok {
		return slices.Concat(w.claiming, w.waiting)
	}
	return nil
}

// below returns the sessions that work for a session: those of its sub-agents and, if jobs is set,
// those of jobs and hooks. pl.mu is held.
func (pl *pool) below(key session.Key, jobs bool) (list []session.Key) {
	wanted := func(k session.Key) bool {
		return k.Below(key) && (jobs || k.Background() == key.Background())
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
	return list
}

// held returns the messages that somebody has, and the sessions in which somebody works or waits.
// From then on sessions take what they had no room for.
func (pl *pool) held() (messages map[int64]bool, sessions map[session.Key]bool) {
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

// Serves reports whether d works in a session, or knows why it does not: its turn waits for
// somebody, or other sub-agents come first.
func (pl *pool) Serves(key session.Key) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	_, works := pl.workers[key]
	_, waits := pl.suspended[key]
	return works || waits || len(pl.queued[key.Parent()]) > 0
}

// Package router delivers the messages of the outbox to the platforms: in order within a
// conversation, different conversations concurrently, and each message exactly once as far as the
// platform allows.
//
// A [Router] has a worker for each conversation with waiting messages. The worker splits long
// messages, sends files, respects the platform's limits, retries after failures, shows growing
// answers, and gives up messages that can't be delivered.
//
// Tables: notices, which channels/gate creates.
package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
	"gateway/store"
)

// An Account is a channel and its settings.
type Account struct {
	Name      string
	Channel   channels.Channel
	Streaming bool // show growing answers, if the channel is an Editor

	// EditInterval is the minimum time between two edits of a preview; 0: as the channel says.
	EditInterval time.Duration
	// Reaction is the emoji that messages have from their admission until their answer, if the
	// channel is a Reactor; "": none.
	Reaction string
	// Unlimited ignores the documented rates. Waits that the platform demands when it refuses a
	// call are always respected.
	Unlimited bool
}

// A Router delivers the messages of the outbox to the platforms: in order within a conversation,
// and different conversations concurrently. A conversation has a worker while messages wait for it,
// so a rate limit or an outage of one conversation delays no other.
//
// The Router holds only the first message of each conversation in memory, for at most 1,024
// conversations per account. The others stay in the table until they are next.
type Router struct {
	db       *store.DB
	outbox   *bus.Outbox
	live     *bus.Live
	files    Files
	notices  notices
	accounts map[string]*account
	now      func() time.Time
	log      *slog.Logger

	secrets atomic.Pointer[Secrets] // values that must not be sent

	listeners []Listener

	orderly bool // see [Options]

	position readPosition // used by Run only, except for began and first: workers read them
	stats    Stats
	lastRun  atomic.Int64 // when Run's loop last ran, in nanoseconds

	freed bus.Signal // when a waiting conversation may be loaded

	mu       sync.Mutex
	workers  map[bus.Address]*worker // those that run
	previews previews
	suspects suspects

	wg sync.WaitGroup // the workers and the goroutines that they start
}

// readPosition says how far the router has read the outbox, and how often it reads.
type readPosition struct {
	poll    time.Duration  // see [Options]
	began   time.Time      // when Run began
	first   int64          // id of the newest delivery that was there before Run
	newest  int64          // id of the newest dispatched delivery
	changes int64          // number of changes by people at the last rescan
	scanned time.Time      // when all waiting messages were last counted
	dropped map[int64]bool // dropped messages whose reactions were ended
}

// previews holds the previews that no worker uses. Router.mu guards it.
type previews struct {
	kept  map[string]messages           // messages of the previews, by stream
	ended *recent.Map[string, struct{}] // streams that have ended or whose message was dispatched
}

// Files opens the files that a [Router] sends.
type Files interface {
	// Open opens the file at the Path of an attachment. It reports [channels.ErrRefused] if the
	// file no longer exists.
	Open(path string) (*os.File, error)
}

// Owners finds the chats of the gateway's owners.
type Owners interface {
	// OwnersBeside returns a direct chat of each owner other than the given one, on an account for
	// which served holds.
	OwnersBeside(
		q store.Queryer, a bus.Address, served func(account string) bool,
	) ([]bus.Address, error)
}

// Groups stores which groups the accounts leave.
type Groups interface {
	// HasLeft reports whether an account leaves a chat or has left it.
	HasLeft(q store.Queryer, a bus.Address) (bool, error)

	// Leave stores the outcome of a delivery whose message leaves a group.
	Leave(tx *store.Tx, d *bus.Delivery) error
}

// Options are the dependencies of a [Router].
type Options struct {
	DB     *store.DB
	Outbox *bus.Outbox
	Live   *bus.Live
	Files  Files // nil if no message has files
	Owners Owners
	Groups Groups // nil if no message leaves a group
	Moves  Moves  // nil if no group moves

	// SentLog records the accepted messages until the outbox does. Without it, fewer messages are
	// sent at a time.
	SentLog *bus.SentLog

	Accounts []Account

	// Orderly says that the previous process ended in order, or crashed because of something that
	// it tried alone: see [store.Life.IsSuspect]. Its end then does not count as a crash for the
	// messages that it was sending.
	Orderly bool

	Poll   time.Duration // how often to look for changes by other processes; 0: every two seconds
	Logger *slog.Logger
}

// New returns a Router for the accounts of opts.
func New(opts Options) *Router {
	r := &Router{
		db: opts.DB, outbox: opts.Outbox, live: opts.Live, files: opts.Files,
		orderly: opts.Orderly, now: time.Now, log: opts.Logger,
		position: readPosition{poll: cmp.Or(opts.Poll, pollInterval)},
		accounts: make(map[string]*account),
		workers:  make(map[bus.Address]*worker),
		freed:    bus.NewSignal(),
		previews: previews{kept: make(map[string]messages),
			ended: recent.New[string, struct{}](maxEnded)},
	}
	r.notices = notices{db: r.db, outbox: r.outbox, owners: opts.Owners, groups: opts.Groups,
		accounts: r.accounts, now: r.now}
	r.secrets.Store(new(Secrets))
	for _, a := range opts.Accounts {
		r.accounts[a.Name] = newAccount(a, r.now())
		r.accounts[a.Name].window.sentLog = opts.SentLog
		r.accounts[a.Name].moves = opts.Moves
	}
	return r
}

// A Listener is told about delivered messages.
type Listener interface {
	// Delivered is called after the transaction that marked m as sent. It must not block.
	Delivered(m bus.OutboundMessage)
}

// Notify adds listeners. Call it before Run.
func (r *Router) Notify(listeners ...Listener) {
	r.listeners = append(r.listeners, listeners...)
}

// Pending returns how many messages of an account wait to be sent. Changes by other processes are
// counted with a delay of up to a minute.
func (r *Router) Pending(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.accounts[name]; ok {
		return max(a.pending, 0)
	}
	return 0
}

const (
	// pollInterval is the default of [Options].Poll.
	pollInterval = 2 * time.Second
	// flushTime is the time limit for sending the remaining messages when stopping.
	flushTime = 10 * time.Second
)

// Run delivers until ctx is done. Then it still sends the messages that need not wait, and leaves
// the others in the outbox. When Run returns, no worker is left. It must be called only once.
func (r *Router) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Marks end last, so that messages answered during the stop lose their reactions, too.
	marking, endMarks := context.WithCancel(work)
	defer endMarks()
	var markers sync.WaitGroup
	for _, a := range r.accounts {
		markers.Go(func() { r.runMarks(marking, work, a) })
	}
	err := r.route(ctx, work)
	if err != nil {
		cancel()
	}
	r.outbox.Idle.Store(nil)
	stop() // stops the workers, also if the store failed
	timer := time.AfterFunc(flushTime, cancel)
	defer timer.Stop()
	r.wg.Wait()
	endMarks()
	defer time.AfterFunc(markGrace, cancel).Stop()
	markers.Wait()
	return store.Wrap(err, "router: route")
}

func (r *Router) route(ctx, work context.Context) error {
	err := r.begin(work)
	if err == nil {
		err = r.readNew(ctx, work) // from now on the outbox hands over new messages
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(r.position.poll)
	defer tick.Stop()
	for {
		r.lastRun.Store(time.Now().UnixNano())
		err = r.loadConversations(ctx, work)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return r.readNew(ctx, work)
		case <-r.outbox.C():
			err = r.readNew(ctx, work)
		case <-r.live.C():
			r.readLive(ctx, work)
		case <-r.freed:
		case <-tick.C:
			err = errors.Join(r.readNew(ctx, work), r.rescan(work))
		}
		if err != nil {
			return err
		}
	}
}

// begin reads the state in which an earlier process left the outbox.
func (r *Router) begin(ctx context.Context) error {
	r.position.began = r.now()
	q := r.db.Read(ctx)
	previews, bad, err := r.outbox.Previews(q)
	if err != nil {
		return err
	}
	for _, stream := range bad {
		r.stats.Bad.Add(1)
		r.log.WarnContext(ctx, "preview can't be read; its messages stay as they are",
			"stream", stream)
	}
	for stream, p := range previews {
		r.previews.kept[stream] = restoredMessages(p, r.now())
	}
	crashes := suspectAfter
	if !r.orderly {
		crashes-- // the last crash is not counted yet
	}
	counts, err := r.outbox.UnderWay(q, crashes)
	if err != nil {
		return err
	}
	n := 0
	for name := range r.accounts { // nothing of an account that is not configured is tried
		n += counts[name]
	}
	r.suspects.start(n, r.now())
	if r.position.newest, err = r.outbox.Newest(q); err != nil {
		return err
	}
	r.position.first = r.position.newest
	idle := func(to bus.Address) bool {
		a, ok := r.accounts[to.Account]
		return ok && a.isIdle(r, to)
	}
	r.outbox.Idle.Store(&idle)
	if r.position.changes, err = r.outbox.Changes(q); err != nil {
		return err
	}
	return r.scanAll(q)
}

// readNew dispatches the deliveries added since the last call.
func (r *Router) readNew(ctx, work context.Context) error {
	for {
		list, newest, more, err := r.outbox.Next(r.db.Read(work), r.position.newest)
		aside, err := r.setAside(work, err)
		if err != nil {
			return err
		}
		for i := range list {
			r.dispatch(ctx, work, &list[i])
		}
		r.position.newest = newest
		if !more && aside == 0 {
			return nil
		}
	}
}

// dispatch gives d to the worker of its conversation, which it starts if necessary and if the
// account has room for it. Otherwise d stays in the table until it is next.
func (r *Router) dispatch(ctx, work context.Context, d *bus.Delivery) {
	to := d.Message.To
	a, ok := r.accounts[to.Account]
	if !ok {
		// The message waits, because an owner may configure the account again or drop the message.
		r.log.WarnContext(ctx, "message for an account that is not configured",
			"to", to.String(), "id", d.ID)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.pending++
	delete(a.announced, to)
	d.Fresh = d.Fresh && d.ID > a.read // otherwise a worker may have sent it already
	r.previews.end(d.Message.Stream)
	w, running := r.workers[to]
	switch {
	case running && w.isIdle():
		w.assign(d)
	case running:
		w.expectMore()
	case a.backlog.pending || a.loaded >= maxLoaded: // older messages may wait in the table
		a.backlog.add()
	default:
		r.worker(ctx, work, a, to).assign(d)
	}
}

// uncertain counts an attempt at d whose outcome is unknown.
func (r *Router) uncertain(ctx context.Context, d *bus.Delivery) {
	d.Uncertain++
	r.count(d.Message.To.Account, func(s *Stats) { s.Uncertain.Add(1) })
	r.log.WarnContext(ctx, "message may have been delivered; sending it again",
		"to", d.Message.To.String(), "id", d.ID, "part", len(d.IDs))
}

// readLive passes the newest progress of each answer to its conversation.
func (r *Router) readLive(ctx, work context.Context) {
	for _, p := range r.live.Drain() {
		to := p.To
		a, ok := r.accounts[to.Account]
		if !ok {
			continue
		}
		r.mu.Lock()
		w, ok := r.workers[to]
		matters := ok || !p.Ended || r.previews.stopsKept(&p)
		if matters && !r.previews.hasEnded(p.Stream) {
			if !ok {
				w = r.worker(ctx, work, a, to)
				if a.backlog.pending { // the table may have a message for this conversation
					w.expectMore()
				}
			}
			w.update(p)
		}
		if p.Ended && !p.Waits {
			r.previews.end(p.Stream)
		}
		r.mu.Unlock()
	}
}

// worker returns the worker of a conversation, which it starts if necessary. r.mu is held.
func (r *Router) worker(ctx, work context.Context, a *account, to bus.Address) *worker {
	if w, ok := r.workers[to]; ok {
		return w
	}
	w := &worker{r: r, a: a, to: to, wake: bus.NewSignal()}
	w.sender = sender{w: w, r: r, a: a, to: to}
	w.display = display{w: w, r: r, a: a, to: to}
	r.workers[to] = w
	a.backlog.invalidate(func(other bus.Address) bool { return other == to })
	r.wg.Go(func() {
		store.GrowStack()
		w.run(ctx, work)
	})
	return w
}

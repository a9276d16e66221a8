// Package router brings the messages of the outbox to the platforms: in order within a
// conversation, conversations side by side, each message exactly once as far as the platform
// allows.
//
// A [Router] has a worker for each conversation for which something waits. The worker splits long
// messages, sends files, keeps to the platform's limits, tries again after failures, shows answers
// while they grow, and gives up messages that can't be delivered.
//
// Tables: notices, which channels/gate makes.
package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
)

// An Account is a channel and how it is used.
type Account struct {
	Name      string
	Channel   channels.Channel
	Streaming bool // show answers while they grow, if the channel is an Editor

	// EditInterval is the shortest time between two edits of a preview; 0 is the channel's own.
	EditInterval time.Duration
	// Reaction is the emoji that messages have from their admission to their answer, if the channel
	// is a Reactor; "" for none.
	Reaction string
	// Unlimited sends without regard to the documented rates. The waits that the platform asks for
	// when it refuses are honoured in any case.
	Unlimited bool
}

// A Router sends the messages of the outbox to the platforms: in order within a conversation,
// conversations side by side. A conversation has a worker while something waits for it, so that a
// rate limit or an outage of one delays no other.
//
// It keeps in memory only the first message of each conversation, for at most 1,024 conversations
// of an account. The rest stays in the table until its turn comes.
type Router struct {
	db       *store.DB
	outbox   *bus.Outbox
	live     *bus.Live
	files    Files
	notices  notices
	accounts map[string]*account
	now      func() time.Time
	log      *slog.Logger

	secrets atomic.Pointer[Secrets] // that must not be sent

	listeners []Listener

	orderly bool // see [Options]

	seen    seen // used by Run only
	stats   Stats
	lastRun atomic.Int64 // when Run last went round, in nanoseconds

	freed chan struct{} // rung when a conversation may be loaded that had to wait

	mu            sync.Mutex
	conversations map[bus.Address]*conversation // a key is present while its worker runs
	previews      previews
	suspects      suspects

	wg sync.WaitGroup // of the workers and of what they start
}

// seen is how far the router has read the outbox.
type seen struct {
	newest  int64     // the newest delivery that was dispatched
	changes int64     // how many changes people had made to the outbox at the last rescan
	scanned time.Time // when everything that waits was last counted
}

// previews are those that no worker looks after. Router.mu guards them.
type previews struct {
	kept     map[string]messages // their messages, by stream
	finished recent              // streams that have ended or whose message was dispatched
}

// Files are the files that a [Router] sends.
type Files interface {
	// Open opens the file at the Path of an attachment. It reports [channels.ErrRefused] if the
	// file does not exist any more.
	Open(path string) (*os.File, error)
}

// Owners know where the owners of the gateway can be told something.
type Owners interface {
	// OwnersBeside returns a direct chat of each owner other than the given one.
	OwnersBeside(q store.Queryer, a bus.Address) ([]bus.Address, error)
}

// Options are what a [Router] works with.
type Options struct {
	DB       *store.DB
	Outbox   *bus.Outbox
	Live     *bus.Live
	Files    Files // may be nil if no message has a file
	Owners   Owners
	Accounts []Account

	// Orderly says that the process before this one ended in order, or because of something else
	// that it tried alone, as [store.Life.Blames] knows: its end is not counted as a crash for the
	// messages that it was sending.
	Orderly bool

	Logger *slog.Logger
}

// New returns a Router for the accounts of opts.
func New(opts Options) *Router {
	r := &Router{
		db: opts.DB, outbox: opts.Outbox, live: opts.Live, files: opts.Files,
		orderly: opts.Orderly, now: time.Now, log: opts.Logger,
		accounts:      make(map[string]*account),
		conversations: make(map[bus.Address]*conversation),
		freed:         make(chan struct{}, 1),
		previews: previews{kept: make(map[string]messages),
			finished: recent{set: make(map[string]bool)}},
	}
	r.notices = notices{db: r.db, inbox: bus.NewInbox(), outbox: r.outbox, owners: opts.Owners,
		accounts: r.accounts, now: r.now}
	r.secrets.Store(new(Secrets))
	for _, a := range opts.Accounts {
		r.accounts[a.Name] = newAccount(a, r.now())
	}
	return r
}

// A Listener learns which messages people have received.
type Listener interface {
	// Delivered is called after the transaction that marked m as sent. It must not wait for
	// anything.
	Delivered(m bus.OutboundMessage)
}

// Notify adds listeners. It is called before Run.
func (r *Router) Notify(listeners ...Listener) {
	r.listeners = append(r.listeners, listeners...)
}

// Pending returns how many messages of an account wait to be sent. It counts changes by another
// process with a delay of up to a minute.
func (r *Router) Pending(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.accounts[name]; ok {
		return max(a.pending, 0)
	}
	return 0
}

const (
	// rescanInterval is how often the router looks for what another process has changed.
	rescanInterval = 2 * time.Second
	// flushTime is how long sending may take at the end, for messages that need not wait.
	flushTime = 10 * time.Second
)

// Run delivers until ctx ends. Then it still sends the messages that need not wait for anything,
// and leaves the rest in the outbox. When Run returns, no worker is left. It is called once.
func (r *Router) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Marks end last, so that messages which are answered at the end lose their reaction, too.
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
	stop() // the workers, also if the store failed
	timer := time.AfterFunc(flushTime, cancel)
	defer timer.Stop()
	r.wg.Wait()
	endMarks()
	defer time.AfterFunc(markGrace, cancel).Stop()
	markers.Wait()
	if err != nil {
		return fmt.Errorf("router: route: %w", err)
	}
	return nil
}

func (r *Router) route(ctx, work context.Context) error {
	if err := r.begin(work); err != nil {
		return err
	}
	tick := time.NewTicker(rescanInterval)
	defer tick.Stop()
	for {
		r.lastRun.Store(time.Now().UnixNano())
		err := r.loadConversations(ctx, work)
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
	n, err := r.outbox.CrashedTwice(q)
	if err != nil {
		return err
	}
	r.suspects.start(n, r.now())
	if r.seen.newest, err = r.outbox.Newest(q); err != nil {
		return err
	}
	if r.seen.changes, err = r.outbox.Changes(q); err != nil {
		return err
	}
	return r.scanAll(q)
}

// readNew dispatches the deliveries that came since the last call.
func (r *Router) readNew(ctx, work context.Context) error {
	for {
		list, newest, more, err := r.outbox.Next(r.db.Read(work), r.seen.newest)
		aside, err := r.setAside(work, err)
		if err != nil {
			return err
		}
		for i := range list {
			r.dispatch(ctx, work, &list[i])
		}
		r.seen.newest = newest
		if !more && aside == 0 {
			return nil
		}
	}
}

// dispatch gives d to the worker of its conversation. If there is none it starts one, as long as
// the account has room for another. Otherwise d stays in the table until its turn comes.
func (r *Router) dispatch(ctx, work context.Context, d *bus.Delivery) {
	to := d.Message.To
	a, ok := r.accounts[to.Account]
	if !ok {
		// The message waits: the owner may configure the account again, or drop the message.
		r.log.WarnContext(ctx, "message for an account that is not configured",
			"to", to.String(), "id", d.ID)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.pending++
	r.previews.finished.add(d.Message.Stream)
	c, running := r.conversations[to]
	switch {
	case running && c.first == nil && !c.more && !c.loading:
		c.assign(d)
	case running:
		c.expectMore()
	case a.backlog.pending || a.loaded >= maxLoaded: // older messages may wait in the table
		a.backlog.add()
	default:
		r.conversation(ctx, work, a, to).assign(d)
	}
}

// uncertain counts a try of d whose outcome is unknown.
func (r *Router) uncertain(ctx context.Context, d *bus.Delivery) {
	d.Uncertain++
	r.count(d.Message.To.Account, func(s *Stats) { s.Uncertain.Add(1) })
	r.log.WarnContext(ctx, "message may have been delivered; sending it again",
		"to", d.Message.To.String(), "id", d.ID, "part", len(d.IDs))
}

// readLive gives the newest progress of each answer to its conversation.
func (r *Router) readLive(ctx, work context.Context) {
	for _, p := range r.live.Drain() {
		to := p.To
		a, ok := r.accounts[to.Account]
		if !ok {
			continue
		}
		r.mu.Lock()
		if c, ok := r.conversations[to]; !r.previews.finished.has(p.Stream) && (ok || !p.Ended) {
			if !ok {
				c = r.conversation(ctx, work, a, to)
				if a.backlog.pending { // a message for this conversation may be in the table
					c.expectMore()
				}
			}
			c.update(p)
		}
		if p.Ended {
			r.previews.finished.add(p.Stream)
		}
		r.mu.Unlock()
	}
}

// conversation returns the worker of a conversation, and starts it if there is none. r.mu is held.
func (r *Router) conversation(ctx, work context.Context, a *account, to bus.Address) *conversation {
	if c, ok := r.conversations[to]; ok {
		return c
	}
	c := &conversation{r: r, a: a, to: to, wake: make(chan struct{}, 1)}
	c.sender = sender{c: c, r: r, a: a, to: to}
	c.display = display{c: c, r: r, a: a, to: to}
	r.conversations[to] = c
	r.wg.Go(func() { c.run(ctx, work) })
	return c
}

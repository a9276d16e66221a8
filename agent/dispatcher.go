package agent

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/pool"
	"gateway/agent/schedule"
	"gateway/agent/turn"
	"gateway/agent/voice"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A Dispatcher answers the messages in the inbox: in order within a session, and sessions
// concurrently. Its methods are safe for concurrent use.
type Dispatcher struct {
	Deps
	opts        Options // the current settings are those of the Pool
	pool        *pool.Pool
	env         *turn.Env
	lanes       command.Lanes
	stops       pool.Stopper
	commands    *command.Commands
	transcriber *voice.Transcriber
	backgroundTasks

	last     int64         // Seq of the newest message that was handed out; used by Run only
	overflow pool.Overflow // messages to drop

	started  time.Time
	draining chan struct{} // closed when turns must stop at their next step
}

// NewDispatcher returns a Dispatcher. A nil opts means the defaults.
func NewDispatcher(deps Deps, opts *Options) *Dispatcher {
	o := *cmp.Or(opts, new(Options))
	o.setDefaults()
	deps.setDefaults()
	o.Model = deps.Model
	d := &Dispatcher{Deps: deps, opts: o, started: o.Now(), draining: make(chan struct{})}
	d.env = newEnv(d)
	d.pool = pool.New(d.env, deps.Life, pool.Snapshot{Settings: o.Settings, Notes: deps.Notes})
	d.backgroundTasks = newBackground(d, d.env.Calls.Estimates)
	d.env.Background, d.env.Summarizer, d.env.Merger = d.background, d.summarizer, d.merger
	d.env.Speaker = d.speaker
	d.stops = pool.Stopper{Pool: d.pool, Tools: deps.Toolset, Accounts: d.Accounts}
	d.commands = d.newCommands(d.DB)
	d.transcriber = &voice.Transcriber{DB: d.DB, Loader: d.env.Attachments, Commands: d.commands,
		Accounts: d.Accounts, Now: o.Now, Logger: o.Logger}
	d.lanes = command.NewLanes()
	return d
}

// The lease is renewed three times within its term.
const (
	leaseName = "dispatcher"
	leaseTerm = 30 * time.Second
)

// pollInterval is the maximum delay of a message whose wake-up was lost.
const pollInterval = 2 * time.Second

// Run resumes the turns that an earlier process left, and then answers messages until ctx is done.
// Then it gives the running turns Options.Grace to reach their next step; the next Run resumes the
// others. When Run returns, no worker is left. Run must be called only once.
func (d *Dispatcher) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if ready := d.Toolset.Ready(); ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	err := d.begin(ctx, work)
	if err == nil {
		stopTasks := d.goBackground(ctx)
		err = d.dispatch(ctx, work)
		stopTasks()
	}
	close(d.draining)
	stop := time.AfterFunc(d.opts.Grace, cancel)
	defer stop.Stop()
	if err != nil {
		cancel()
	}
	d.pool.Wait()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("agent: dispatch: %w", err)
	}
	if d.pool.Lease.Epoch == 0 {
		return nil // ctx was done before there was a lease
	}
	if err := d.pool.HandOverUnadmitted(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("agent: dispatch: %w", err)
	}
	// After the release another process need not wait for the lease to expire.
	return store.Wrap(d.DB.Tx(context.WithoutCancel(ctx), d.pool.Lease.Release), "agent: dispatch")
}

// goBackground starts the background tasks. The returned function stops them and waits for those
// under way.
func (d *Dispatcher) goBackground(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.background.Run(ctx); err != nil {
			d.pool.Fail(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// begin takes the lease and starts a worker for each turn to resume.
func (d *Dispatcher) begin(ctx, work context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // the name is only informative
	}
	owner := host + "/" + strconv.Itoa(os.Getpid())
	err = d.DB.Tx(ctx, func(tx *store.Tx) (err error) {
		d.pool.Lease, err = store.Acquire(tx, leaseName, owner, d.opts.Now(), leaseTerm)
		return err
	})
	if err == nil {
		err = d.commands.TellRestarted(ctx)
	}
	if err != nil {
		return err
	}
	ratios, err := budget.Ratios(d.DB.Read(work))
	if err != nil {
		return err
	}
	d.env.Calls.Estimates.Load(ratios)
	return d.pool.Resume(ctx, work)
}

func (d *Dispatcher) dispatch(ctx, work context.Context) error {
	defer d.lanes.Wait()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	renew := time.NewTicker(leaseTerm / 3)
	defer renew.Stop()
	recovery := time.NewTicker(recoveryInterval)
	defer recovery.Stop()
	bound := math.MaxInt // never drop a message that an earlier process has accepted
	for {
		d.pool.Beat(d.opts.Now())
		fault.Hold(ctx, "dispatch")
		if err := d.ingest(ctx, work, bound); err != nil {
			return err
		}
		if err := d.pool.ReviewDue(ctx, work); err != nil {
			return err
		}
		bound = d.pool.Config().Waiting
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.pool.Fatal():
			return err
		case <-d.Inbox.C():
		case done := <-d.lanes.Done():
			if err := d.leaveLane(ctx, work, done); err != nil {
				return err
			}
		case <-d.pool.DueC():
		case <-poll.C:
		case <-recovery.C:
			if err := d.recoverPending(ctx, work); err != nil {
				return err
			}
		case <-d.pool.AgainC():
			if err := d.recoverPending(ctx, work); err != nil {
				return err
			}
		case <-renew.C:
			err := d.DB.Tx(work, func(tx *store.Tx) error {
				return d.pool.Lease.Renew(tx, d.opts.Now(), leaseTerm)
			})
			if err != nil {
				return err
			}
		}
	}
}

// ingest hands out new messages from the inbox. bound is the maximum number of waiting messages in
// a session.
func (d *Dispatcher) ingest(ctx, work context.Context, bound int) error {
	defer d.pool.More.Store(false)
	for {
		list, upTo, more, err := d.Inbox.Next(d.DB.Read(work), d.last)
		aside, err := d.DB.RepairRows(work, d.opts.Logger, err, d.Inbox.SetAside)
		if err != nil {
			return err
		}
		d.pool.More.Store(more || len(list) > 1)
		for _, r := range list {
			if d.pool.WasResumed(r.Seq) {
				d.last = r.Seq
				continue
			}
			d.opts.Logger.InfoContext(ctx, "message received",
				"from", r.Message.From.String(), "id", r.Message.ID, "seq", r.Seq)
			if err := d.route(ctx, work, r, bound); err != nil {
				return err
			}
			d.last = r.Seq
		}
		if err := store.LogUnlessLost(ctx, d.opts.Logger, "messages not dropped",
			d.drop(ctx)); err != nil {
			return err
		}
		if d.last = max(d.last, upTo); !more && aside == 0 {
			return nil // a page with bad rows is short although more rows may follow
		}
	}
}

// route hands r out. A failure is reported to the sender and does not block others. An error means
// that the store is lost.
func (d *Dispatcher) route(ctx, work context.Context, r bus.Received, bound int) error {
	err := d.handOut(ctx, work, r, bound)
	if err == nil || store.IsLost(err) {
		return err
	}
	return d.reportFailure(ctx, r, turn.SayBroken, err)
}

// handOut starts r if it is a command, or gives it to its session. A short voice message may be a
// spoken command, so it is transcribed first.
func (d *Dispatcher) handOut(ctx, work context.Context, r bus.Received, bound int) error {
	r, ok, err := senders{&d.Deps, d.opts.Logger}.update(ctx, r)
	if err != nil || !ok {
		return err
	}
	key := session.Of(r.Message).Root() // the lane also covers sub-agents and jobs
	q := command.Queued{Message: r, Bound: bound}
	before := session.Before(r.Message)
	if d.lanes.Join(key, q) || !before.IsZero() && d.lanes.Join(before.Root(), q) {
		return nil
	}
	if d.transcriber.NeedsTranscript(r.Message) {
		d.lanes.Hear(ctx, key, q, func(reading context.Context) (*bus.Received, error) {
			return d.transcribe(ctx, reading, r)
		})
		return nil
	}
	if err := d.moveGroup(ctx, r.Message); err != nil {
		return err
	}
	if name, _ := command.Parse(r.Message); name != "" {
		d.lanes.Enter(key, r, func() error { return d.runCommand(ctx, r) })
		return nil
	}
	full, tell, err := d.pool.Enqueue(ctx, work, r, bound)
	if full {
		d.opts.Logger.WarnContext(ctx, "message dropped: too many are waiting",
			"from", r.Message.From.String(), "id", r.Message.ID,
			"dropped", d.overflow.Add(r, tell))
	}
	return err
}

// drop drops the messages for which there was no room.
func (d *Dispatcher) drop(ctx context.Context) error {
	untold, err := d.overflow.Drop(ctx, d.env, d.pool.Config().Waiting)
	if err == nil && len(untold) > 0 {
		d.Accounts.Dropped(untold)
	}
	return err
}

// moveGroup follows a group that has a new id on its platform: it moves the group's choices, memory
// and jobs to the new id, before any message from there is handled.
func (d *Dispatcher) moveGroup(ctx context.Context, m bus.InboundMessage) error {
	if m.PreviousChat == "" {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	key := session.Of(m).Root()
	key.Conversation.Thread = ""
	before := key
	before.Conversation.Chat = m.PreviousChat
	if moved, err := d.hasMoved(d.DB.Read(ctx), before, key); err != nil || moved {
		return err
	}
	err := d.DB.Tx(ctx, func(tx *store.Tx) error {
		if err := session.MoveChoices(tx, before, key, d.opts.Now()); err != nil {
			return err
		}
		if err := schedule.MoveChat(tx, before.Conversation, key.Conversation); err != nil {
			return err
		}
		return d.merger.Move(tx, key, memory.OfChat(before.Conversation),
			memory.OfChat(key.Conversation))
	})
	if err == nil {
		d.pool.Move(before, key)
		d.background.Wake()
	}
	return err
}

// hasMoved reports whether the group has data under its id now, and none under its id before.
func (d *Dispatcher) hasMoved(q store.Queryer, before, now session.Key) (bool, error) {
	if d.pool.Has(before) {
		return false, nil
	}
	left, err := background.Owns(q, memory.OfChat(before.Conversation))
	if err != nil || left {
		return false, err
	}
	return background.Owns(q, memory.OfChat(now.Conversation))
}

// StopTask ends the sub-agent that works in the session key. It reports whether there was one.
func (d *Dispatcher) StopTask(ctx context.Context, key session.Key) (stopped bool, err error) {
	return d.stops.StopTask(ctx, key)
}

// Configure replaces the models and settings. Running turns keep the settings with which they
// began. If notes is nil, model writes the notes.
func (d *Dispatcher) Configure(model, notes llm.Model, s pool.Settings) {
	s.SetDefaults()
	s.Model = model
	if notes == nil {
		notes = model
	}
	d.pool.Set(pool.Snapshot{Settings: s, Notes: notes})
	d.background.Wake() // other tasks may be due now
}

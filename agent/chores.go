package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"gateway/agent/background"
	"gateway/memory"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// Chores are done in the background, one at once for so many slots of models, and of one scope one
// after another. They are rows: a chore that a process leaves half done goes on in the next.
const (
	leastChores   = 2
	slotsPerChore = 16

	chorePoll  = time.Minute // for what other processes have put
	choreRetry = time.Minute // after the first failure; twice as long after each
	maxRetry   = time.Hour

	// notesRetries is after how many failures the messages themselves stand in for notes of them.
	notesRetries = 3
)

// keptMessages is how many messages stay when a conversation is compacted because nobody writes,
// or because somebody has asked for it.
const keptMessages = 8

// maxChores returns how many chores are done at once, at most.
func (d *Dispatcher) maxChores() int { return max(leastChores, cap(d.slots)/slotsPerChore) }

func (d *Dispatcher) ringChores() {
	select {
	case d.choreC <- struct{}{}:
	default:
	}
}

// goChores begins to do what is due, until the function that it returns is called: that waits for
// what is under way.
func (d *Dispatcher) goChores(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.runChores(ctx); err != nil {
			select {
			case d.fatal <- err:
			default: // an earlier error ends Run already
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// runChores does what is due until ctx ends. When it returns nothing of it runs any more.
func (d *Dispatcher) runChores(ctx context.Context) error {
	if err := d.settleErased(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if err := d.Memory.SyncAll(ctx); err != nil && ctx.Err() == nil {
		d.opts.Logger.WarnContext(ctx, "history not written to its files", "err", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	poll, due := time.NewTicker(chorePoll), time.NewTimer(chorePoll)
	defer poll.Stop()
	defer due.Stop()
	ended := make(chan choreEnd)
	busy := make(map[memory.Scope]bool)
	running := 0
	defer func() {
		cancel()
		for range running {
			<-ended
		}
	}()
	for {
		if err := d.startChores(ctx, &running, busy, ended); err != nil {
			return err
		}
		wait, err := d.untilDue(ctx)
		if err != nil {
			return err
		}
		due.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case e := <-ended:
			running--
			for _, scope := range e.scopes {
				delete(busy, scope)
			}
			if err := d.survive(ctx, "chore not ended", e.err); err != nil {
				return err
			}
		case <-d.choreC:
		case <-due.C:
		case <-poll.C:
			err := d.survive(ctx, "idle conversations not compacted", d.compactIdle(ctx))
			if err != nil {
				return err
			}
		}
	}
}

// A choreEnd tells that a chore is over, and its scopes are free. An error is one of the store.
type choreEnd struct {
	scopes []memory.Scope
	err    error
}

// untilDue returns how long to wait for the next chore. One that is due, and was not begun, waits
// for the end of another.
func (d *Dispatcher) untilDue(ctx context.Context) (time.Duration, error) {
	next, ok, err := d.chores.Next(d.DB.Read(context.WithoutCancel(ctx)))
	if wait := next.Sub(d.opts.Now()); ok && wait > 0 && wait < chorePoll {
		return wait, err
	}
	return chorePoll, err
}

// startChores begins what is due and has room.
func (d *Dispatcher) startChores(
	ctx context.Context, running *int, busy map[memory.Scope]bool, ended chan<- choreEnd,
) error {
	if *running >= d.maxChores() || ctx.Err() != nil {
		return nil
	}
	read := d.DB.Read(context.WithoutCancel(ctx))
	list, err := d.chores.Due(read, d.opts.Now())
	n, err := d.mend(context.WithoutCancel(ctx), err, d.chores.Mend)
	if err == nil && n > 0 {
		list, err = d.chores.Due(read, d.opts.Now())
	}
	if err != nil {
		return err
	}
	for _, c := range list {
		scopes := scopesOf(&c)
		isBusy := func(s memory.Scope) bool { return busy[s] }
		if *running >= d.maxChores() || slices.ContainsFunc(scopes, isBusy) {
			continue
		}
		for _, s := range scopes {
			busy[s] = true
		}
		*running++
		go func() { ended <- choreEnd{scopes, d.doChore(ctx, &c)} }()
	}
	return nil
}

// scopesOf returns the scopes whose files a chore works with, without another chore beside it.
func scopesOf(c *background.Task) []memory.Scope {
	list := []memory.Scope{c.Scope}
	var left erased
	switch c.Kind {
	case background.Merge:
		list = append(list, memory.Scope(c.Session))
	case background.Erase:
		if json.Unmarshal(c.State, &left) == nil { // else the chore says what is wrong
			list = left.Scopes
		}
	}
	return list
}

// An outcome is what has come of a chore.
type outcome struct {
	said  string    // to who waits for it; "": nothing
	again time.Time // when it goes on; zero: it is done
	state []byte    // from where
}

// doChore does one chore, or puts it off. An error is one of the store.
func (d *Dispatcher) doChore(ctx context.Context, c *background.Task) error {
	r, err := d.guarded(ctx, c)
	switch {
	case ctx.Err() != nil, errors.Is(err, background.ErrGone):
		return nil // up to the next process, or to nobody
	case err != nil:
		return d.putOff(ctx, c, err)
	}
	fault.Point("chored")
	return d.tx(ctx, func(tx *store.Tx) error { return d.endChore(tx, c, r) })
}

// guarded is work whose panic is a failure like any other: the chore is put off. Else it would come
// again at each start, and the gateway would never be up for long.
func (d *Dispatcher) guarded(ctx context.Context, c *background.Task) (r outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.opts.Logger.ErrorContext(ctx, "chore panicked", "kind", c.Kind, "scope", c.Scope,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()), "panics", d.panics.Add(1))
			err = errors.New("agent: it panicked")
		}
	}()
	return d.work(ctx, c)
}

// work does what c is about.
func (d *Dispatcher) work(ctx context.Context, c *background.Task) (r outcome, err error) {
	switch c.Kind {
	case background.Archive:
		r, err = d.archive(ctx, c)
	case background.Compact, background.Idle:
		r, err = d.compactSession(ctx, c)
	case background.Dream:
		r, err = d.dream(ctx, c)
	case background.Version:
		_, err = d.tree(c.Scope).Commit(ctx,
			version.Change{Author: "the agent", Reason: "Written in a conversation."})
	case background.Log: // of an earlier gateway
		r.said, err = d.changes(ctx, c.Scope, string(c.State))
	case background.Undo:
		r.said, err = d.undo(ctx, c)
	case background.Merge:
		r, err = d.mergeScope(ctx, c)
	case background.Erase:
		r, err = d.eraseRest(ctx, c)
	default:
		d.opts.Logger.ErrorContext(ctx, "chore of an unknown kind", "kind", c.Kind)
	}
	return r, err
}

func (d *Dispatcher) endChore(tx *store.Tx, c *background.Task, r outcome) error {
	err := d.chores.Exists(tx, c)
	if errors.Is(err, background.ErrGone) {
		return nil
	}
	if err == nil && c.Tell != nil && r.said != "" {
		out := *c.Tell
		out.Text = r.said
		if err = d.Outbox.Put(tx, out, d.opts.Now()); err == nil {
			err = d.chores.Told(tx, c)
		}
	}
	switch {
	case err != nil:
		return err
	case !r.again.IsZero():
		return d.chores.Again(tx, c, r.state, r.again)
	}
	again := d.opts.Now()
	if c.Kind == background.Dream {
		again = again.Add(d.config().DreamEvery)
	}
	return d.chores.Done(tx, c, again)
}

// putOff lets c be tried again later. Who waits for it is told once.
func (d *Dispatcher) putOff(ctx context.Context, c *background.Task, cause error) error {
	wait := min(choreRetry<<min(c.Attempts, 10), maxRetry)
	d.opts.Logger.WarnContext(ctx, "chore put off", "kind", c.Kind, "scope", c.Scope,
		"session", c.Session, "attempt", c.Attempts+1, "wait", wait, "err", cause)
	return d.tx(ctx, func(tx *store.Tx) error {
		if c.Tell != nil && c.Attempts == 0 {
			out := *c.Tell
			out.Text = "That has not worked yet, and I try again later. " + sayError(cause)
			if err := d.Outbox.Put(tx, out, d.opts.Now()); err != nil {
				return err
			}
		}
		return d.chores.Later(tx, c, d.opts.Now().Add(wait))
	})
}

// compactIdle has the conversations compacted in which nobody has written for a while.
func (d *Dispatcher) compactIdle(ctx context.Context) error {
	if d.config().IdleAfter <= 0 {
		return nil
	}
	const most = 100
	read := d.DB.Read(context.WithoutCancel(ctx))
	keys, err := d.sessions.Idle(read, d.opts.Now().Add(-d.config().IdleAfter), most)
	if err != nil || len(keys) == 0 {
		return err
	}
	err = d.tx(ctx, func(tx *store.Tx) error {
		for _, key := range keys {
			if err := d.sessions.Tidy(tx, key); err != nil {
				return err
			}
			s, err := d.sessions.Summary(tx, key)
			if err != nil {
				return err
			}
			_, peoples, err := d.sessions.Address(tx, key)
			if err != nil {
				return err
			}
			if s.Scope == "" || !peoples {
				continue // of a sub-agent or a job, whose work is over
			}
			work := background.Work{Kind: background.Idle, Scope: s.Scope, Session: string(key)}
			if err := d.chores.Put(tx, background.Task{Work: work}, d.opts.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	d.ringChores()
	return err
}

// leave writes what is to be done after the turn, when nobody waits any more: a version of what it
// has written, and notes, if its prompt has become too large, so that the next one need not wait
// for them. It reports whether there is something.
func (t *turn) leave(tx *store.Tx) (later bool, err error) {
	put := func(w background.Work, state []byte) {
		if err == nil {
			c := background.Task{Work: w, State: state}
			later, err = true, t.d.chores.Put(tx, c, t.d.opts.Now())
		}
	}
	if t.wrote && t.d.Documents != nil {
		put(background.Work{Kind: background.Version, Scope: t.Scope}, nil)
	}
	if state, tooLarge := t.excess(); !t.isTask() && t.Scope != "" && tooLarge {
		put(background.Work{Kind: background.Compact, Scope: t.Scope, Session: string(t.Session)}, state)
	}
	return later, err
}

// excess reports whether the next prompt of the conversation is too large, and, unless the
// transcript tells that best, from what state its compaction begins.
func (t *turn) excess() (state []byte, tooLarge bool) {
	if t.truncated {
		return nil, true
	}
	size := max(t.prompt, t.size())
	most, aim := t.room()
	need := t.d.estimates.Bytes(t.config().ModelID, size-aim)
	return jsonOf(compacted{Need: need}), size > most
}

// compacted is how far a compaction has come.
type compacted struct {
	Noted int `json:"noted"` // messages
	Need  int `json:"need"`  // bytes that are still to become notes
}

// compactSession makes notes of the older part of a conversation: until it has half the budget, or,
// if somebody has asked for it or nobody writes, until a few messages are left. After some parts it
// lets other chores have their turn.
func (d *Dispatcher) compactSession(
	ctx context.Context, c *background.Task,
) (r outcome, err error) {
	little := c.Kind == background.Compact && c.Tell == nil
	done := compacted{Need: math.MaxInt}
	switch {
	case c.State != nil:
		if err := json.Unmarshal(c.State, &done); err != nil {
			return r, fmt.Errorf("agent: compact %s: %w", c.Session, err)
		}
	case little:
		if done.Need, err = d.excess(ctx, session.Key(c.Session)); err != nil {
			return r, err
		}
	}
	for range maxCompactions {
		if done.Need <= 0 {
			return outcome{said: sayCompacted(done.Noted)}, nil
		}
		entries, err := d.compactPart(ctx, c, little, done.Need)
		if err != nil {
			return r, err
		}
		if len(entries) == 0 {
			done.Need = 0
		}
		done.Noted += len(entries)
		for _, e := range entries {
			done.Need -= e.Size
		}
	}
	return outcome{again: d.opts.Now(), state: jsonOf(done)}, nil
}

func sayCompacted(noted int) string {
	if noted == 0 {
		return "There is nothing to compact: this conversation is short."
	}
	return fmt.Sprintf("I have made notes of %s, which take their place. I can still search what "+
		"was said.", count(noted, "older message"))
}

// excess returns how many bytes of a conversation are to become notes so that its transcript takes
// half the budget.
func (d *Dispatcher) excess(ctx context.Context, key session.Key) (int, error) {
	size, err := d.sessions.Size(d.DB.Read(context.WithoutCancel(ctx)), key)
	s := d.configOf(key)
	return size - d.estimates.Bytes(s.ModelID, s.contextBudget()/2), err
}

// compactPart makes notes of about need bytes of a conversation and returns what became notes.
func (d *Dispatcher) compactPart(
	ctx context.Context, c *background.Task, little bool, need int,
) ([]session.Entry, error) {
	key := session.Key(c.Session)
	read := d.DB.Read(context.WithoutCancel(ctx))
	before, err := d.sessions.Summary(read, key)
	if err != nil || before.Scope == "" {
		return nil, err
	}
	to, err := d.keepTo(read, key, little)
	if err != nil {
		return nil, err
	}
	entries, err := d.part(read, key, before.Start, to, need)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	who := spenderOf(before.Scope, key)
	_, err = d.compact(ctx, key, before, entries, who, c.Attempts >= notesRetries)
	return entries, err
}

// keepTo returns the id of the newest message of a session that may become notes. One turn stays at
// least, and the whole of one that runs; unless little is to be kept, more.
func (d *Dispatcher) keepTo(q store.Queryer, key session.Key, little bool) (int64, error) {
	keep := keptMessages
	if little {
		keep = 2
	}
	first, err := d.sessions.KeepFrom(q, key, keep)
	if err != nil || first == 0 {
		return 0, err
	}
	t, err := d.sessions.RunningTurn(q, key)
	if err != nil || t == nil {
		return first - 1, err
	}
	start, err := d.sessions.TurnStart(q, t)
	if err != nil || start == 0 {
		return 0, err
	}
	return min(first, start) - 1, nil
}

// archived is how far notes of the end of a conversation have come.
type archived struct {
	From int64 `json:"from"` // id of the message before the first that is left
	To   int64 `json:"to"`   // of the last
}

// archiveLater has notes made of what a session has after its start, before that moves on.
func (d *Dispatcher) archiveLater(tx *store.Tx, key session.Key) error {
	s, err := d.sessions.Summary(tx, key)
	if err != nil || s.Scope == "" {
		return err
	}
	last, err := d.sessions.Newest(tx, key)
	if err != nil || last <= s.Start {
		return err
	}
	work := background.Work{Kind: background.Archive, Scope: s.Scope, Session: string(key),
		Ref: s.Start}
	return d.chores.Put(tx, background.Task{Work: work, State: jsonOf(archived{s.Start, last})},
		d.opts.Now())
}

// archive makes notes of the end of a conversation that was left. Each part is noted in the
// transaction that says so. After some parts other chores have their turn.
func (d *Dispatcher) archive(ctx context.Context, c *background.Task) (r outcome, err error) {
	var a archived
	if err := json.Unmarshal(c.State, &a); err != nil {
		return r, fmt.Errorf("agent: archive %s: %w", c.Session, err)
	}
	key := session.Key(c.Session)
	for range maxCompactions {
		read := d.DB.Read(context.WithoutCancel(ctx))
		entries, err := d.part(read, key, a.From, a.To, math.MaxInt)
		if err != nil || len(entries) == 0 {
			return r, err
		}
		notes, err := d.notes(ctx, spenderOf(c.Scope, key), entries, c.Attempts >= notesRetries)
		if err != nil {
			return r, err
		}
		a.From = entries[len(entries)-1].ID
		fault.Point("noted")
		err = d.tx(ctx, func(tx *store.Tx) error {
			if err := d.chores.Save(tx, c, jsonOf(a)); err != nil {
				return err
			}
			_, err := d.keepNotes(tx, c.Scope, key, notes, entries)
			return err
		})
		if err != nil {
			return r, err
		}
		fault.Point("archived")
		d.syncHistory(ctx, c.Scope)
	}
	return outcome{again: d.opts.Now(), state: jsonOf(a)}, nil
}

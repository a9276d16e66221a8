package pool

import (
	"context"
	"slices"
	"time"

	"gateway/agent/command"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// The work that was under way when a process crashed may be the cause. The pool runs work that was
// under way in several crashes alone, one session at a time, before all other work. If the process
// crashes again, the pool gives up only that work.

const (
	// trialTime is the longest trial of a session. Work that crashes a process usually does so at
	// once.
	trialTime = 10 * time.Second

	// CountedTime is the time after a crash in which each message is recorded before its turn
	// begins. Messages with files are always recorded, because decoding a file is the likeliest
	// cause of a crash.
	CountedTime = time.Hour
)

// IsSuspect reports whether r must be tried alone.
func IsSuspect(r bus.Received) bool { return r.Crashes >= turn.MaxCrashes-1 }

// TrialOf returns the name under which a session is tried alone, for [store.Life].
func TrialOf(key session.Key) string { return "session " + key.String() }

// A probation runs work that may have crashed processes, one session at a time.
type probation struct{ *Pool }

// blame makes this process the owner of turns. If the previous process crashed, blame counts the
// crash against the work that was under way: against the session on trial if there was one,
// otherwise against all of it. The turns of the messages in started were about to begin.
func (pr *probation) blame(
	tx *store.Tx, turns []session.Turn, started []bus.Received,
) error {
	blamed := func(key session.Key) bool {
		return pr.life.Suspect == "" || pr.life.Suspect == TrialOf(key)
	}
	for _, r := range started {
		crashed := pr.life.Crashed && blamed(session.Of(r.Message))
		if err := pr.env.Inbox.UnmarkStarted(tx, r.Seq, crashed); err != nil {
			return err
		}
	}
	for i := range turns {
		t := &turns[i]
		attempts := t.Attempts
		var err error
		if blamed(t.Session) {
			err = session.TakeOver(tx, t, pr.Lease, pr.env.Now())
			attempts++
		} else {
			err = session.WakeTurn(tx, t, pr.Lease, pr.env.Now())
		}
		if err != nil {
			return err
		}
		// Not before the commit: if the transaction is repeated, t must still be as it is stored.
		tx.After(func() { t.Attempts, t.Epoch = attempts, pr.Lease.Epoch })
	}
	return nil
}

// tryAlone runs the suspects one by one and returns the other turns. Before it returns, it waits
// until the other components have run their suspects.
func (pr *probation) tryAlone(
	ctx, work context.Context, turns []session.Turn,
) ([]session.Turn, error) {
	trials, err := pr.trials(work, turns)
	if err != nil {
		return nil, err
	}
	for _, w := range trials {
		pr.Beat(pr.env.Now())
		pr.env.Logger.WarnContext(ctx, "tried alone: it was under way in several crashes",
			"session", w.key)
		err := pr.life.Try(ctx, TrialOf(w.key), func() { pr.try(ctx, work, w) })
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		turns = slices.DeleteFunc(turns, func(t session.Turn) bool { return t.Session == w.key })
	}
	pr.life.EndTrials()
	select {
	case <-pr.life.TrialsDone():
	case <-ctx.Done():
	}
	return turns, nil
}

// trials returns a worker for each session that must be tried alone.
func (pr *probation) trials(work context.Context, turns []session.Turn) ([]*worker, error) {
	var list []*worker
	for _, t := range turns {
		if t.Attempts-t.Handed >= turn.MaxAttempts {
			list = append(list, &worker{key: t.Session, resume: &t, standalone: true})
		}
	}
	suspects, err := pr.readable(work, func(q store.Queryer) ([]bus.Received, error) {
		return pr.env.Inbox.Suspects(q, turn.MaxCrashes-1)
	})
	if err != nil || len(list)+len(suspects) == 0 {
		return list, err
	}
	for _, r := range suspects {
		key := session.Of(r.Message)
		_, waits := pr.suspended[key]
		waits = waits || pr.has(session.Before(r.Message))
		if !waits && !slices.ContainsFunc(list, func(w *worker) bool { return w.key == key }) {
			list = append(list, &worker{key: key})
		}
	}
	for _, t := range turns { // a turn comes before the messages that wait for its end
		for _, w := range list {
			if w.key == t.Session && w.resume == nil {
				w.resume, w.standalone = &t, true
			}
		}
	}
	return list, pr.fill(work, list)
}

// fill gives each worker the waiting messages of its session, up to the first command.
func (pr *probation) fill(work context.Context, list []*worker) error {
	pr.tried = make(map[int64]bool)
	closed := make(map[session.Key]bool)
	for after := int64(0); ; {
		page, err := pr.Waiting(work, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			after = r.Seq
			key := session.Of(r.Message)
			i := slices.IndexFunc(list, func(w *worker) bool { return w.key == key })
			// An overheard voice message must be transcribed first: it may not be for the session.
			if name, _ := command.Parse(r.Message); i < 0 || name != "" || closed[key] ||
				r.Message.VoiceState == bus.Overheard {
				closed[key] = true
				continue
			}
			list[i].waiting = append(list[i].waiting, r)
			list[i].arrived = pr.env.Now()
			pr.tried[r.Seq] = true
		}
	}
}

// try runs w until it is clear that its work does not crash the process.
func (pr *probation) try(ctx, work context.Context, w *worker) {
	proof := make(chan struct{})
	w.trialEnded = proof
	pr.mu.Lock()
	pr.start(work, w.key, w)
	pr.mu.Unlock()
	timer := time.NewTimer(trialTime)
	defer timer.Stop()
	select {
	case <-proof:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// endTrial ends the trial of w: its turn has written something, or ended says that w has ended. The
// trial continues if another suspect waits. The pool's mu is held.
func (w *worker) endTrial(ended bool) {
	if w.trialEnded == nil || !ended && slices.ContainsFunc(w.waiting, IsSuspect) {
		return
	}
	close(w.trialEnded)
	w.trialEnded = nil
}

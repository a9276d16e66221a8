package pool

import (
	"context"
	"slices"

	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/schedule"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// Tools ends processes that tools have left running.
type Tools interface {
	// Stop ends the processes that the tools of a session have left running, except those that the
	// author of by may not end. by is nil if no person has ended the session.
	Stop(key session.Key, by *bus.InboundMessage)
}

// Accounts takes back what people see on their messages until the answer. It must not block.
type Accounts interface {
	Dropped(messages []bus.InboundMessage)
}

// A Stopper ends the work for conversations.
type Stopper struct {
	*Pool
	Tools    Tools
	Accounts Accounts
}

// A Stopping ends the work for one conversation. It implements [command.Stop].
//
// While a command runs, the dispatcher hands out no messages of its conversation. Messages that a
// turn claims before the transaction are not dropped.
type Stopping struct {
	d      *Stopper
	key    session.Key
	by     bus.InboundMessage
	extent command.Extent

	jobs     []session.Key  // sessions of the jobs and hooks of keys(); they may have sub-agents
	theirs   []bus.Received // messages that wait in those sessions
	waiting  []bus.Received // messages that wait in the session itself
	starting []bus.Received // the batch that is becoming a turn

	// unanswered are messages that the running or the next turn was to answer beside its own,
	// because a newer message had interrupted the turn before.
	unanswered []bus.InboundMessage

	dropped []bus.Received // messages dropped by endOwn
	ended   bool           // endOwn ended the running turn

	elsewhere []bus.InboundMessage // messages of other chats that End left without an answer

	before *Stopping // of the session before its group moved, or nil
}

// New finds the work under way for the conversation of m.
func (st *Stopper) New(m bus.InboundMessage, e command.Extent) *Stopping {
	s := st.find(m, e)
	if earlier, moved := session.Earlier(m); moved {
		s.before = st.find(earlier, e)
	}
	return s
}

func (st *Stopper) find(m bus.InboundMessage, e command.Extent) *Stopping {
	s := &Stopping{d: st, key: session.Of(m), by: m, extent: e}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, k := range append(st.below(s.keys(), true), s.keys()[1:]...) {
		if k.Proactive() || k.IsConversation() {
			s.jobs = append(s.jobs, k)
			for _, r := range st.pendingLocked(k) {
				if k.Proactive() || !isKept(r) {
					s.theirs = append(s.theirs, r)
				}
			}
		}
	}
	if p, ok := st.suspended[s.key]; ok {
		s.waiting = slices.Clone(p.waiting)
		s.addUnanswered(p.turn.Address, p.answers)
	} else if w, ok := st.workers[s.key]; ok {
		s.waiting, s.starting = slices.Clone(w.waiting), slices.Clone(w.claiming)
		if e != command.Own || w.asker.id == m.Sender.ID {
			s.addUnanswered(w.asker.from, w.unanswered)
		}
	}
	return s
}

func (s *Stopping) addUnanswered(from bus.Address, ids []string) {
	for _, id := range ids {
		s.unanswered = append(s.unanswered, bus.InboundMessage{ID: id, From: from})
	}
}

// End implements [command.Stop].
func (s *Stopping) End(tx *store.Tx) (e command.Stopped, err error) {
	if s.extent == command.Own {
		e, err = s.endOwn(tx)
	} else {
		e, err = s.end(tx)
	}
	for _, m := range s.unanswered {
		known := slices.ContainsFunc(e.Messages, func(o bus.InboundMessage) bool {
			return o.ID == m.ID && o.From == m.From
		})
		if !known && !e.Running { // otherwise the running turn still answers it
			e.Messages = append(e.Messages, m)
		}
	}
	if err == nil && s.before != nil {
		err = s.before.addTo(tx, &e)
	}
	s.elsewhere = e.Elsewhere(s.by.From)
	return e, err
}

// addTo is like End, for the session before its group moved. It adds to e what it has ended, except
// for the previews: the reply in the chat with the present id can't change those.
func (s *Stopping) addTo(tx *store.Tx, e *command.Stopped) error {
	own, err := s.End(tx)
	e.Turn, e.Running = e.Turn || own.Turn, e.Running || own.Running
	e.Tasks, e.Jobs, e.Discarded = e.Tasks+own.Tasks, e.Jobs+own.Jobs, e.Discarded+own.Discarded
	e.Messages = append(e.Messages, own.Messages...)
	return err
}

// Cancel implements [command.Stop].
func (s *Stopping) Cancel() {
	if s.before != nil {
		s.before.Cancel()
	}
	if len(s.elsewhere) > 0 {
		s.d.Accounts.Dropped(s.elsewhere)
	}
	if s.extent == command.Own {
		s.d.cancelOwn(s.key, s.dropped, s.ended)
		return
	}
	s.d.cancelStopped(s.keys(), s.background(), &s.by)
}

// keys returns the session of the conversation and, if background() is true, the one that all
// people in the chat of the command share: jobs and hooks belong to the chat.
func (s *Stopping) keys() []session.Key {
	if chat := session.KeyOf(s.by.From); s.background() && chat != s.key {
		return []session.Key{s.key, chat}
	}
	return []session.Key{s.key}
}

// background reports whether background work ends, too.
func (s *Stopping) background() bool { return s.extent == command.Everything }

// end ends the running turns of the session and its sub-agents, and drops their waiting messages.
// If background() is true, it does the same for jobs and hooks.
func (s *Stopping) end(tx *store.Tx) (e command.Stopped, err error) {
	if err := s.discard(tx, &e); err != nil {
		return e, err
	}
	turns, err := session.RunningTasks(tx, s.keys()...)
	if err != nil {
		return e, err
	}
	turns = slices.DeleteFunc(turns, func(t session.Turn) bool {
		return !s.background() && t.Session.Background()
	})
	for _, t := range turns {
		if t.Session.Proactive() {
			e.Jobs++
		} else {
			e.Tasks++
		}
	}
	for _, key := range s.keys() {
		t, err := session.RunningTurn(tx, key)
		switch {
		case err != nil:
			return e, err
		case t == nil:
			continue
		case key == s.key:
			e.Turn = true
		default: // of a job or a hook of the chat
			e.Jobs++
		}
		turns = append(turns, *t)
	}
	for i := range turns {
		if err := s.d.endStopped(tx, &turns[i], &e, !s.background()); err != nil {
			return e, err
		}
	}
	return e, nil
}

// discard drops the messages that people sent before the command, and all tasks and outcomes,
// including those not handed out yet. A reminder that waits for the ended turn is kept and follows
// it.
func (s *Stopping) discard(tx *store.Tx, e *command.Stopped) error {
	parents := []session.Key{s.key}
	list := slices.DeleteFunc(slices.Concat(s.starting, s.waiting), isKept)
	if s.background() {
		parents = append(parents, s.jobs...)
		list = append(list, s.theirs...)
	}
	for _, parent := range parents {
		outcomes, err := s.d.env.Inbox.Outcomes(tx, parent)
		if err != nil {
			return err
		}
		list = append(list, outcomes...)
		tasks, err := s.d.env.Inbox.Tasks(tx, parent)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if task.Waiting {
				list = append(list, task.Received)
			}
		}
	}
	for _, r := range list {
		ok, err := s.d.env.Inbox.Drop(tx, r.Seq)
		if err != nil {
			return err
		}
		switch origin := r.Message.Origin; {
		case !ok: // a turn has claimed it, or it is listed twice
		case origin.Kind == bus.Person:
			e.Discarded++
			e.Messages = append(e.Messages, r.Message)
		case origin.Kind == bus.Task:
			e.Tasks++
		case origin.Standalone():
			e.Jobs++
			if err := s.d.stopRuns(tx, !s.background(), r); err != nil {
				return err
			}
		default:
			e.Discarded++
		}
	}
	return nil
}

// isKept reports whether r, which waits for the ended turn, is kept because it begins a turn of its
// own.
func isKept(r bus.Received) bool { return r.Message.Origin.Standalone() }

// cancelStopped ends the workers of the sessions keys, and those of the sessions that work for any
// of keys. It leaves out jobs and hooks unless jobs is set. by is the message that ended their
// turns, or nil if no person did.
func (st *Stopper) cancelStopped(keys []session.Key, jobs bool, by *bus.InboundMessage) {
	st.mu.Lock()
	for _, k := range append(st.below(keys, jobs), keys...) {
		gone := func(r bus.Received) bool { return !slices.Contains(keys, k) || !isKept(r) }
		delete(st.queued, k)
		if p, ok := st.suspended[k]; ok {
			p.waiting = slices.DeleteFunc(slices.Clone(p.waiting), gone)
			st.markDue(k) // to end its call in progress, and so that kept messages get a worker
		}
		if w, ok := st.workers[k]; ok {
			w.forget(gone)
			if w.cancel != nil {
				w.cancel(turn.ErrStopped)
			}
		}
	}
	st.mu.Unlock()
	for _, k := range keys {
		st.Tools.Stop(k, by)
	}
}

// StopTask ends the sub-agent that works in the session key, and reports whether there was one.
func (st *Stopper) StopTask(ctx context.Context, task session.Key) (stopped bool, err error) {
	err = st.tx(ctx, func(tx *store.Tx) error {
		stopped = false
		list, err := st.env.Inbox.Tasks(tx, task.Parent())
		for i := 0; i < len(list) && err == nil; i++ {
			if session.Of(list[i].Message) == task && list[i].Waiting {
				stopped, err = st.env.Inbox.Drop(tx, list[i].Seq)
			}
		}
		if err != nil {
			return err
		}
		t, err := session.RunningTurn(tx, task)
		if err != nil || t == nil {
			return err
		}
		stopped = true
		return st.endStopped(tx, t, new(command.Stopped), false)
	})
	if err == nil && stopped {
		st.cancelStopped([]session.Key{task}, true, nil)
	}
	return stopped, err
}

// endStopped ends t with a result for each open tool call, and adds to e the messages that get no
// other answer. Later writes of the turn fail. If again is set, a run that endStopped ends begins
// anew.
func (st *Stopper) endStopped(tx *store.Tx, t *session.Turn, e *command.Stopped, again bool) error {
	taken, err := st.env.Inbox.ClaimedBy(tx, t.ID)
	if err != nil {
		return err
	}
	for _, r := range taken {
		if r.Message.Origin.Kind == bus.Person {
			e.Messages = append(e.Messages, r.Message)
		}
	}
	e.Streams = append(e.Streams, turn.StreamOf(t))
	if err := st.stopRuns(tx, again, taken...); err != nil {
		return err
	}
	return background.CloseTurn(tx, st.env.Inbox, t, st.env.Now(), turn.ResultStopped,
		turn.MarkStopped)
}

// stopRuns records that the runs among messages were stopped. If again is set, they begin anew.
func (st *Stopper) stopRuns(tx *store.Tx, again bool, messages ...bus.Received) (err error) {
	for i := 0; i < len(messages) && err == nil; i++ {
		switch run := messages[i].Message.Origin.Run; {
		case run == 0:
		case again:
			err = schedule.RetryRun(tx, run, st.env.Now())
		default:
			err = schedule.StopRun(tx, run, st.env.Now())
		}
	}
	return err
}

// forget ends the work for erased sessions and removes their state from memory.
func (st *Stopper) forget(keys []session.Key) {
	for _, key := range keys {
		st.cancelStopped([]session.Key{key}, true, nil)
		st.env.Transcripts.Drop(key)
		st.Forget(key)
	}
}

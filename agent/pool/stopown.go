package pool

import (
	"slices"

	"gateway/agent/command"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// endOwn ends the running turn only if nobody but the sender has written to it, and drops only
// messages of the sender.
func (s *Stopping) endOwn(tx *store.Tx) (e command.Stopped, err error) {
	own := func(r bus.Received) bool {
		m := r.Message
		return m.Origin.Kind == bus.Person && m.Sender.ID == s.by.Sender.ID
	}
	all := func(list []bus.Received) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(r bus.Received) bool { return !own(r) })
	}
	t, err := session.RunningTurn(tx, s.key)
	if err != nil {
		return e, err
	}
	s.dropped, s.ended = nil, false
	for _, r := range s.waitingOwn(t == nil, own, all) {
		ok, err := s.d.env.Inbox.Drop(tx, r.Seq)
		if err != nil {
			return e, err
		}
		if ok { // otherwise a turn has claimed it
			s.dropped = append(s.dropped, r)
			e.Messages = append(e.Messages, r.Message)
		}
	}
	e.Discarded, e.Running = len(s.dropped), t != nil
	if t == nil {
		return e, nil
	}
	claimed, err := s.d.env.Inbox.ClaimedBy(tx, t.ID)
	if err != nil || !all(claimed) {
		return e, err
	}
	s.ended, e.Turn, e.Running = true, true, false
	return e, s.d.endStopped(tx, t, &e, false)
}

// waitingOwn returns the sender's waiting messages. A batch that is being claimed becomes a turn as
// a whole: it counts only if all of it is the sender's and it does not steer a running turn.
func (s *Stopping) waitingOwn(
	idle bool, own func(bus.Received) bool, all func([]bus.Received) bool,
) (list []bus.Received) {
	if idle && all(s.starting) {
		list = append(list, s.starting...)
	}
	for _, r := range s.waiting {
		if own(r) {
			list = append(list, r)
		}
	}
	return list
}

// cancelOwn removes the dropped messages from memory. It ends the worker's turn if ends is set, or
// if the turn was about to begin with dropped messages.
func (st *Stopper) cancelOwn(key session.Key, dropped []bus.Received, ends bool) {
	gone := func(r bus.Received) bool {
		return slices.ContainsFunc(dropped, func(x bus.Received) bool { return x.Seq == r.Seq })
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if p, ok := st.suspended[key]; ok {
		p.waiting = slices.DeleteFunc(slices.Clone(p.waiting), gone)
		if ends {
			st.markDue(key)
		}
	}
	if w, ok := st.workers[key]; ok {
		ends = ends || slices.ContainsFunc(w.claiming, gone)
		w.forget(gone)
		if ends && w.cancel != nil {
			w.cancel(turn.ErrStopped)
		}
	}
}

package agent

import (
	"gateway/agent/background"
	"gateway/agent/pool"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// An erasure erases all that is known of the sender of a command: it implements
// [command.Erasure].
type erasure struct {
	d       *Dispatcher
	command bus.Received
	stop    *pool.Stopping
	keys    []session.Key // that were erased
}

// Erase implements [command.Erasure].
func (e *erasure) Erase(tx *store.Tx, answer bus.OutboundMessage) error {
	d, m := e.d, e.command.Message
	stopped, err := e.stop.End(tx)
	if err != nil {
		return err
	}
	s := memory.ScopeOf(m)
	left := background.Erasure{Scopes: []memory.Scope{s},
		Chats: []bus.Address{background.ChatOf(m.From)},
		Inbox: e.command.Seq, Person: m.Person}
	if e.keys, err = d.eraser.Rows(tx, &left); err != nil {
		return err
	}
	answer.Answers, answer.Stops = append(answer.Answers, stopped.Answers...), stopped.Streams
	if left.Outbox, err = d.Outbox.Add(tx, answer, d.opts.Now()); err != nil {
		return err
	}
	return d.eraser.Add(tx, &left)
}

// Cancel implements [command.Erasure].
func (e *erasure) Cancel() {
	e.stop.Cancel()
	e.d.stops.LetGo(e.keys)
}

package agent

import (
	"cmp"
	"errors"

	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/bus"
	"gateway/session"
)

// beginning describes t, which is to answer batch, or to go on if that is nil.
func (t *turn) beginning(batch []bus.Received) observe.TurnBegin {
	b := observe.TurnBegin{Session: t.Session, Turn: t.ID, Account: t.Address.Account,
		Attempt: t.Attempts}
	if len(batch) > 0 {
		b.Waited = t.began.Sub(batch[0].At)
		b.Kind = batch[0].Message.Origin.Kind
	}
	return b
}

// ending describes what has come of t.
func (t *turn) ending(err error) observe.TurnEnd {
	e := observe.TurnEnd{Turn: t.ID, State: t.ended, Rounds: t.rounds}
	switch {
	case errors.Is(err, errParked), errors.Is(err, errDraining), errors.Is(err, errGone):
	case errors.Is(err, session.ErrEnded):
		e.State = session.Stopped
	default:
		e.Err = err
	}
	e.State = cmp.Or(e.State, session.Running)
	return e
}

// toolEnd describes what has come of the call c.
func (t *turn) toolEnd(c llm.ToolCall, d done, err error) observe.ToolEnd {
	_, unknown := t.tools.Lookup(c.Name)
	return observe.ToolEnd{Known: unknown == nil, Waits: d.asks != nil || d.result.Wait != nil,
		Err: err}
}

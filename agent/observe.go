package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// An Observer sees what the agent does, for metrics. Each method is told that something
// begins; what it returns is called once, when that has ended. The context that it returns is that
// of what happens within. It is used concurrently, and holds nobody up.
type Observer interface {
	// Turn tells of a turn that begins or goes on.
	Turn(ctx context.Context, t TurnBegin) (context.Context, func(TurnEnd))

	// Model tells of the call of a model, for a turn or beside one.
	Model(ctx context.Context, m ModelBegin) (context.Context, func(ModelEnd))

	// Tool tells of the call of a tool.
	Tool(ctx context.Context, c ToolBegin) (context.Context, func(ToolEnd))
}

// A TurnBegin is a turn that begins or goes on.
type TurnBegin struct {
	Session session.Key
	Turn    int64          // 0 if it has only now begun
	Account string         // of the conversation
	Kind    bus.OriginKind // of its first message; unknown if it goes on
	Attempt int            // 0 if it has only now begun
	Waited  time.Duration  // since its first message was accepted; 0 if it goes on
}

// A TurnEnd is what has come of it.
type TurnEnd struct {
	Turn   int64
	State  session.State // [session.Running] if it waits, or is left to the next process
	Rounds int           // model calls that used tools
	Err    error         // of the store
}

// A ModelBegin is the call of a model.
type ModelBegin struct {
	Model string // the one that is asked first, as prices know it
	Notes bool   // for no turn, but for notes of what was said
}

// A ModelEnd is what has come of it.
type ModelEnd struct {
	Model string        // which has answered, as prices know it; "": none
	Usage llm.Usage     // as it says
	Cost  float64       // of that, dollars
	First time.Duration // until the first text or the answer came; 0: nothing came
	Err   error
}

// A ToolBegin is the call of a tool.
type ToolBegin struct{ Name, ID string }

// A ToolEnd is what has come of it.
type ToolEnd struct {
	Known bool // there is such a tool
	Waits bool // somebody is asked first, or the call waits for something else
	Err   error
}

// unobserved is the Observer that looks away.
type unobserved struct{}

func (unobserved) Turn(ctx context.Context, _ TurnBegin) (context.Context, func(TurnEnd)) {
	return ctx, func(TurnEnd) {}
}

func (unobserved) Model(ctx context.Context, _ ModelBegin) (context.Context, func(ModelEnd)) {
	return ctx, func(ModelEnd) {}
}

func (unobserved) Tool(ctx context.Context, _ ToolBegin) (context.Context, func(ToolEnd)) {
	return ctx, func(ToolEnd) {}
}

// beginning describes t, which is to answer batch, or to go on if that is nil.
func (t *turn) beginning(batch []bus.Received) TurnBegin {
	b := TurnBegin{Session: t.Session, Turn: t.ID, Account: t.Address.Account, Attempt: t.Attempts}
	if len(batch) > 0 {
		b.Waited = t.began.Sub(batch[0].At)
		b.Kind = batch[0].Message.Origin.Kind
	}
	return b
}

// ending describes what has come of t.
func (t *turn) ending(err error) TurnEnd {
	e := TurnEnd{Turn: t.ID, State: t.ended, Rounds: t.rounds}
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
func (t *turn) toolEnd(c llm.ToolCall, d done, err error) ToolEnd {
	_, unknown := t.tools.Lookup(c.Name)
	return ToolEnd{Known: unknown == nil, Waits: d.asks != nil || d.result.Wait != nil, Err: err}
}

// A modelWatch follows the call of a model for the Observer.
type modelWatch struct {
	d     *Dispatcher
	began time.Time
	first time.Duration
	ended func(ModelEnd)
}

func (d *Dispatcher) watchModel(
	ctx context.Context, b ModelBegin,
) (context.Context, *modelWatch) {
	w := &modelWatch{d: d, began: d.opts.Now()}
	ctx, w.ended = d.opts.Observer.Model(ctx, b)
	return ctx, w
}

// event notes that something has come.
func (w *modelWatch) event() {
	if w.first == 0 {
		w.first = max(w.d.opts.Now().Sub(w.began), 1)
	}
}

func (w *modelWatch) end(resp *llm.Response, err error) {
	e := ModelEnd{First: w.first, Err: err}
	if resp != nil {
		e.Model, e.Usage = resp.Model, resp.Usage
		e.Cost = w.d.opts.Usage.Price(resp.Model, resp.Usage)
	}
	w.ended(e)
}

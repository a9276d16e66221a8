// Package observe has the interface for measuring turns, model calls and tool calls.
package observe

import (
	"context"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// An Observer measures what the agent does. Each method learns that something begins, and returns a
// function that is called once, when that has ended. The context that it returns is the context of
// everything that happens in between. An Observer is used concurrently and returns at once.
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

// Nothing is an Observer that measures nothing.
type Nothing struct{}

// Turn implements [Observer].
func (Nothing) Turn(ctx context.Context, _ TurnBegin) (context.Context, func(TurnEnd)) {
	return ctx, func(TurnEnd) {}
}

// Model implements [Observer].
func (Nothing) Model(ctx context.Context, _ ModelBegin) (context.Context, func(ModelEnd)) {
	return ctx, func(ModelEnd) {}
}

// Tool implements [Observer].
func (Nothing) Tool(ctx context.Context, _ ToolBegin) (context.Context, func(ToolEnd)) {
	return ctx, func(ToolEnd) {}
}

// Package observe defines the interface that measures turns, model calls and tool calls.
package observe

import (
	"context"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// An Observer measures the work of the agent. Each method is called when a turn or call begins.
// It returns a function that is called once, when the turn or call ends, and the context for
// everything in between. An Observer is safe for concurrent use and never blocks.
type Observer interface {
	// Turn is called when a turn begins or resumes.
	Turn(ctx context.Context, t TurnBegin) (context.Context, func(TurnEnd))

	// Model is called when a model call begins, in a turn or in background work. model is the model
	// that is called first, by its name in the price list.
	Model(ctx context.Context, model string) (context.Context, func(ModelEnd))

	// Tool is called when a call of the tool with the given name begins.
	Tool(ctx context.Context, name string) (context.Context, func(ToolEnd))
}

// A TurnBegin describes a turn that begins or resumes.
type TurnBegin struct {
	Kind   bus.OriginKind // of the first message; unknown for a resumed turn
	Waited time.Duration  // time since the first message was accepted; 0 for a resumed turn
}

// A TurnEnd describes how a turn ended.
type TurnEnd struct {
	State session.State // [session.Running] if the turn is suspended or left to the next process
	Err   error         // error of the store
}

// A ModelEnd describes how a model call ended.
type ModelEnd struct {
	Model string        // the model that answered, by its name in the price list; "": none
	Usage llm.Usage     // as the model reported it
	Cost  float64       // dollars
	First time.Duration // time until the first event; 0: no event
	Err   error
}

// A ToolEnd describes how a tool call ended.
type ToolEnd struct {
	Known bool // a tool with this name exists
	Waits bool // the call waits for an approval or for another event
	Err   error
}

// Noop is an Observer that does nothing.
type Noop struct{}

// Turn implements [Observer].
func (Noop) Turn(ctx context.Context, _ TurnBegin) (context.Context, func(TurnEnd)) {
	return ctx, func(TurnEnd) {}
}

// Model implements [Observer].
func (Noop) Model(ctx context.Context, _ string) (context.Context, func(ModelEnd)) {
	return ctx, func(ModelEnd) {}
}

// Tool implements [Observer].
func (Noop) Tool(ctx context.Context, _ string) (context.Context, func(ToolEnd)) {
	return ctx, func(ToolEnd) {}
}

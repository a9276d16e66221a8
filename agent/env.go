package agent

import (
	"log/slog"
	"sync/atomic"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/modelcall"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// An Env is what the turns of a process work with. They don't change it.
type Env struct {
	Profile

	DB     *store.DB
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live

	Tools       *tool.Registry
	Attachments *attachment.Loader
	Calls       *modelcall.Calls
	Jobs        *schedule.Scheduler // nil: there are no jobs
	Memory      *memory.Memory
	Documents   *document.Documents // nil: there are none
	Skills      *skills.Library     // nil: there are none
	Transcripts *Transcripts

	Background *background.Runner
	Summarizer *background.Summarizer
	Merger     *background.Merger

	Draining <-chan struct{} // closed when turns should end at their next step
	Counters *Counters
	Now      func() time.Time
	Logger   *slog.Logger

	tables
}

// tables are read and written by stateless functions.
type tables struct {
	sessions  session.Store
	questions question.Store
}

// A Profile is how the agent presents itself and works, for the whole life of the process.
type Profile struct {
	Name        string         // what the agent calls itself
	Workspace   string         // how the model knows the folder that the agent works in; or ""
	Location    *time.Location // of people who have set no zone
	ToolTimeout time.Duration  // longest call of a tool that has no limit of its own

	// FormatHint tells the model what its answers look like on an account.
	FormatHint func(account string) string

	// CountUntil is until when each message is counted before its turn begins: an earlier process has
	// ended without a word. Of messages with files that holds always.
	CountUntil time.Time
}

// Counters count what should not happen.
type Counters struct {
	Panics    atomic.Int64 // turns that a bug has ended
	Abandoned atomic.Int64 // tool calls that go on though they were told to end
}

// isDraining reports whether turns should end at their next step.
func (e *Env) isDraining() bool {
	select {
	case <-e.Draining:
		return true
	default:
		return false
	}
}

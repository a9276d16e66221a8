package turn

import (
	"cmp"
	"log/slog"
	"sync/atomic"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/policy"
	"gateway/agent/prompt"
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

// An Env is what the turns of a process work with. Turns don't change it.
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
	Knowledge
	Transcripts *Transcripts
	Prompts     *prompt.Cache // of system prompts

	Background *background.Runner
	Summarizer *background.Summarizer
	Merger     *background.Merger

	Draining <-chan struct{} // closed when turns should end at their next step
	Counters *Counters
	Now      func() time.Time
	Logger   *slog.Logger

	tables
}

// Knowledge is what the agent knows.
type Knowledge struct {
	Memory    *memory.Memory
	Documents *document.Documents // nil: there are none
	Skills    *skills.Library     // nil: there are none
}

// tables are read and written by stateless functions.
type tables struct {
	sessions  session.Store
	questions question.Store
}

// A Profile says how the agent presents itself and works. It stays the same while the process runs.
type Profile struct {
	Name        string         // what the agent calls itself
	Workspace   string         // how the model knows the folder that the agent works in; or ""
	Location    *time.Location // of people who have set no zone
	ToolTimeout time.Duration  // longest call of a tool that has no limit of its own

	// FormatHints tell the model what its answers look like, by account.
	FormatHints map[string]string

	// Until CountUntil each message is counted before its turn begins, because an earlier process has
	// crashed. Messages with files are always counted.
	CountUntil time.Time
}

// Counters count events that should not happen.
type Counters struct {
	Panics    atomic.Int64 // turns that a bug has ended
	Abandoned atomic.Int64 // tool calls that go on though they were told to end
}

// IsDraining reports whether turns should end at their next step.
func (e *Env) IsDraining() bool {
	select {
	case <-e.Draining:
		return true
	default:
		return false
	}
}

// Settings are what a turn keeps from its beginning to its end.
type Settings struct {
	Model         llm.Model // that answers
	ModelName     string    // shown by /status
	ModelID       string    // as prices know it
	ContextWindow int       // tokens; default 65,536
	MaxOutput     int       // of an answer, in tokens; default the provider's
	NoImages      bool      // the model does not understand images
	Effort        llm.Effort

	// Models are those for what people have not written, by who did; default the one that answers.
	Models        map[bus.OriginKind]*Choice
	MaxRounds     int           // model calls that may use tools; default 40
	MaxTaskRounds int           // likewise, of a sub-agent; default 15
	Timeout       time.Duration // longest turn; default 15 min
	SpeechCost    float64       // of a second of transcribed sound, dollars

	// Rules say which tool calls need approval; default none. Somebody who is an Approver or more can
	// give it, by default an admin, within ApprovalTime, by default 10 minutes.
	Rules        policy.Rules
	Approver     bus.Role
	ApprovalTime time.Duration
}

// A Choice is a model, with what must be known of it.
type Choice struct {
	Model         llm.Model
	Name          string // shown by /status
	ID            string // as prices know it
	ContextWindow int    // tokens
	MaxOutput     int    // tokens; 0: the provider decides
	NoImages      bool   // it does not understand images
}

// With returns s with another model for answers.
func (s Settings) With(c *Choice) *Settings {
	s.Model, s.ModelName, s.ModelID = c.Model, c.Name, c.ID
	s.ContextWindow = cmp.Or(c.ContextWindow, s.ContextWindow)
	s.MaxOutput, s.NoImages = c.MaxOutput, c.NoImages
	return &s
}

// ContextBudget is how many tokens a prompt may have. It leaves room for the answer and for the
// error of the estimate.
func (s *Settings) ContextBudget() int {
	const (
		answer  = 8192 // where only the provider knows
		reserve = 1024
	)
	window := s.ContextWindow
	return max(window-cmp.Or(s.MaxOutput, min(answer, window/4))-min(reserve, window/8), 1)
}

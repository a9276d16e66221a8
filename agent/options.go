package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/skills"
	"gateway/store"
)

// A Mode says what happens to a message that comes while a turn of its session runs.
type Mode string

// The queue modes.
const (
	// Steer shows the message to the running turn at its next step.
	Steer Mode = "steer"
	// Followup answers it in a turn of its own afterwards.
	Followup Mode = "followup"
	// Collect answers all that came, in one turn afterwards.
	Collect Mode = "collect"
	// Interrupt ends the running turn and begins one with the new message.
	Interrupt Mode = "interrupt"
)

// ParseMode returns the mode with the given name in any case.
func ParseMode(name string) (Mode, error) {
	switch m := Mode(strings.ToLower(name)); m {
	case Steer, Followup, Collect, Interrupt:
		return m, nil
	}
	return "", fmt.Errorf("unknown queue mode %q: use steer, followup, collect or interrupt", name)
}

// collectQuiet is how long nothing must come before a collecting session begins its turn.
const collectQuiet = 500 * time.Millisecond

// Migrations make the tables that the agent needs besides those of package session.
func Migrations() []store.Migration {
	return []store.Migration{question.Migration, policy.Migration, budget.Migration,
		background.Migration, schedule.Migration, command.Migration}
}

// Deps are what a [Dispatcher] works with. All are required but Media, without which files that
// people send are only mentioned, Extract, which only Media needs, Jobs, and Documents, Versions
// and Skills, without which there are none.
type Deps struct {
	DB     *store.DB
	Life   *store.Life // of this process
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live
	Model  llm.Model
	Notes  llm.Model // asked for notes and by Dream; default Model
	Tools  *tool.Registry
	Media  attachment.Media
	Memory *memory.Memory

	Extract *extract.Extractor // of what is in files

	Jobs *schedule.Scheduler // what is done at set times; required if there are any

	Documents *document.Documents
	Versions  *version.Store // with Documents
	Skills    *skills.Library
}

// Options are the optional settings of a [Dispatcher]. The zero value is ready for use.
type Options struct {
	turn.Settings // of turns

	Name    string // what the agent calls itself; default "gateway"
	Version string // shown by /status
	NotesID string // of Deps.Notes, as prices know it; default ModelID

	// WorkspacePath is how the model knows the folder that the agent works in; default none.
	// MemoryPath is the folder with a folder for each scope, in which the documents lie.
	WorkspacePath string
	MemoryPath    string

	Location    *time.Location // of the times in prompts; default UTC
	Slots       int            // model calls at once; default 64
	ToolTimeout time.Duration  // longest tool call; default 2 min
	Grace       time.Duration  // time for turns to reach a step at the end; default 20 s
	QueueMode   Mode           // default Steer
	Waiting     int            // messages that may wait in a session; default 20

	// IdleAfter is after which time without messages the older part of a conversation becomes
	// notes, and DreamEvery how often Dream looks at what is new; 0 is never, for each.
	IdleAfter  time.Duration
	DreamEvery time.Duration

	// Debounce is how long an account waits for more of a message; default not at all.
	Debounce func(account string) time.Duration
	// FormatHint tells the model what its answers look like on an account; default nothing.
	FormatHint func(account string) string
	// Commands are what people may send besides the dispatcher's own commands.
	Commands []command.Command
	// Transcriber turns voice messages into text; default nobody does.
	Transcriber attachment.Transcriber

	// Channels describes the state of the accounts, a line each, for /status, and Hands that of
	// what tools need, likewise.
	Channels func(store.Queryer) ([]string, error)
	Hands    func() []string
	// Restart begins the gateway anew; default that is not possible.
	Restart *command.Restart
	// Choices are the models that a conversation may have instead of the one that answers; default
	// none.
	Choices []turn.Choice
	// Observer sees what is done; default nobody does.
	Observer observe.Observer
	// Ready is closed when all tools are known; no turn begins before. Default they are.
	Ready <-chan struct{}
	// Usage counts what models are used for, and bounds it; default counts and bounds nothing.
	Usage *budget.Ledger

	// Forget makes a person a stranger again, and forgets chats, in the transaction in which all that
	// is known of them goes; default nothing is to do.
	Forget func(tx *store.Tx, person int64, chats []bus.Address) error
	// Keeper returns what keeps something of its own of the people on an account; nil, which is the
	// default, if nothing does.
	Keeper func(account string) background.Keeper

	// Served reports whether messages to an account can be sent: it is configured. Default all are.
	Served func(account string) bool

	// Known reports whether a person is known still; default nobody is. Of who is not, as they were
	// linked to somebody else, that one gets the memory.
	Known func(q store.Queryer, person int64) (bool, error)

	// Owners returns the direct chats of the owners; default none are known.
	Owners func(q store.Queryer) ([]bus.Address, error)
	// Stopped is told of each session that has been ended, so that what its tools have left running
	// can end, too, as far as the writer of the message may end it; nil if no person has ended the
	// session.
	Stopped func(session string, by *bus.InboundMessage)

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default discards
}

func (o *Options) setDefaults() {
	o.Name = cmp.Or(o.Name, "gateway")
	o.NotesID = cmp.Or(o.NotesID, o.ModelID)
	o.Location = cmp.Or(o.Location, time.UTC)
	o.Slots = cmp.Or(o.Slots, 64)
	o.MaxRounds = cmp.Or(o.MaxRounds, 40)
	o.MaxTaskRounds = cmp.Or(o.MaxTaskRounds, 15)
	o.Approver = cmp.Or(o.Approver, bus.Admin)
	o.ApprovalTime = cmp.Or(o.ApprovalTime, 10*time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Minute)
	o.ToolTimeout = cmp.Or(o.ToolTimeout, 2*time.Minute)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.QueueMode = cmp.Or(o.QueueMode, Steer)
	o.Waiting = cmp.Or(o.Waiting, 20)
	o.ContextWindow = cmp.Or(o.ContextWindow, 65536)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Debounce == nil {
		o.Debounce = func(string) time.Duration { return 0 }
	}
	if o.FormatHint == nil {
		o.FormatHint = func(string) string { return "" }
	}
	if o.Channels == nil {
		o.Channels = func(store.Queryer) ([]string, error) { return nil, nil }
	}
	if o.Observer == nil {
		o.Observer = observe.Nothing{}
	}
	if o.Hands == nil {
		o.Hands = func() []string { return nil }
	}
	if o.Owners == nil {
		o.Owners = func(store.Queryer) ([]bus.Address, error) { return nil, nil }
	}
	if o.Forget == nil {
		o.Forget = func(*store.Tx, int64, []bus.Address) error { return nil }
	}
	if o.Keeper == nil {
		o.Keeper = func(string) background.Keeper { return nil }
	}
	if o.Served == nil {
		o.Served = func(string) bool { return true }
	}
	if o.Known == nil {
		o.Known = func(store.Queryer, int64) (bool, error) { return false, nil }
	}
	if o.Stopped == nil {
		o.Stopped = func(string, *bus.InboundMessage) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Usage == nil {
		o.Usage = budget.New(&budget.Options{Location: o.Location, Now: o.Now})
	}
}

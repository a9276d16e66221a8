package agent

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/audit"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/speech"
	"gateway/agent/tool"
	"gateway/agent/voice"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/skills"
	"gateway/store"
)

// Migrations create the tables that the agent needs besides those of package session.
func Migrations() []store.Migration {
	return []store.Migration{question.Migration, policy.Migration, budget.Migration,
		background.Migration, schedule.Migration, command.Migration, audit.Migration}
}

// Deps are the dependencies of a [Dispatcher]. A field is required unless its comment says what nil
// means.
type Deps struct {
	DB     *store.DB
	Life   *store.Life // of this process
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live
	Model  llm.Model
	Notes  llm.Model // model for notes and Dream; default Model
	Tools  *tool.Registry
	Memory *memory.Memory

	Media       attachment.Media       // nil: files are only mentioned
	Extract     *extract.Extractor     // text of files; required with Media
	Transcriber attachment.Transcriber // nil: voice messages are not transcribed
	Voice       *speech.Voice          // nil: answers are only written

	Jobs      *schedule.Scheduler // nil: no jobs
	Documents *document.Documents // nil: no documents
	Versions  *version.Store      // required with Documents
	Skills    *skills.Library     // nil: no skills

	People   People   // nil: no known people
	Accounts Accounts // nil: every account is served
	Toolset  Toolset  // nil: tools need no preparation
}

// People knows the registered people. Its methods must be safe for concurrent use.
type People interface {
	background.People
	modelcall.Owners

	// MayWrite reports whether the sender of m may write to its conversation now, and updates the
	// Person and the Role of m.
	MayWrite(q store.Queryer, m *bus.InboundMessage) (bool, error)
}

// Accounts knows the bots and devices on the platforms. Its methods must be safe for concurrent
// use.
type Accounts interface {
	background.Accounts
	voice.Accounts

	// TakesFiles reports whether files can be sent to a conversation.
	TakesFiles(to bus.Address) bool

	// States describes the accounts for /status, one line each.
	States(q store.Queryer) ([]string, error)
}

// A Toolset manages the servers and processes behind tools. Its methods must be safe for concurrent
// use.
type Toolset interface {
	// Ready returns a channel that is closed when all tools are known. No turn begins before.
	Ready() <-chan struct{}

	// States describes these servers and processes for /status, one line each.
	States() []string

	pool.Tools
}

// Options are the optional settings of a [Dispatcher]. The zero value is ready for use.
type Options struct {
	pool.Settings

	Name    string // the agent's name; default "gateway"
	Version string // shown by /status

	// WorkspacePath is the name of the agent's working folder for the model; default none.
	// MemoryPath is the folder that holds the documents, in one folder per scope. SharedPath is the
	// folder of the shared documents; default none.
	WorkspacePath string
	MemoryPath    string
	SharedPath    string

	Location    *time.Location // time zone in prompts; default UTC
	Slots       int            // maximum number of concurrent model calls; default 64
	ToolTimeout time.Duration  // maximum duration of a tool call; default 2 min
	Grace       time.Duration  // time for turns to reach a step when stopping; default 20 s

	// FormatHints tells the model, by account, how its answers are displayed.
	FormatHints map[string]string
	// Commands are additional commands.
	Commands []command.Command
	// Restart restarts the gateway; default: not possible.
	Restart *command.Restart
	// Export handles the background tasks that send people their data. Without it, /export is not
	// answered.
	Export background.Handler
	// Observer receives measurements; default none.
	Observer observe.Observer
	// Usage counts and limits the usage of models; default: it does neither.
	Usage *budget.Ledger

	// TrustsClock reports whether data may be removed because of its age. By default it may.
	TrustsClock func(context.Context) bool

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default discards
}

func (o *Options) setDefaults() {
	o.Settings.SetDefaults()
	o.Name = cmp.Or(o.Name, "gateway")
	o.Location = cmp.Or(o.Location, time.UTC)
	o.Slots = cmp.Or(o.Slots, 64)
	o.ToolTimeout = cmp.Or(o.ToolTimeout, 2*time.Minute)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.TrustsClock == nil {
		o.TrustsClock = func(context.Context) bool { return true }
	}
	if o.Observer == nil {
		o.Observer = observe.Noop{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Usage == nil {
		o.Usage = budget.New(&budget.Options{Location: o.Location, Now: o.Now})
	}
}

func (d *Deps) setDefaults() {
	if d.Notes == nil {
		d.Notes = d.Model
	}
	if d.People == nil {
		d.People = noPeople{}
	}
	if d.Accounts == nil {
		d.Accounts = allAccounts{}
	}
	if d.Toolset == nil {
		d.Toolset = noTools{}
	}
}

// noPeople is a People that knows no people.
type noPeople struct{}

func (noPeople) Known(store.Queryer, int64) (bool, error)        { return false, nil }
func (noPeople) Holders(store.Queryer, int64) ([]int64, error)   { return nil, nil }
func (noPeople) FormerIDs(store.Queryer, int64) ([]int64, error) { return nil, nil }
func (noPeople) MayWrite(store.Queryer, *bus.InboundMessage) (bool, error) {
	return true, nil
}
func (noPeople) Forget(*store.Tx, int64, []bus.Address) error    { return nil }
func (noPeople) OwnerChats(store.Queryer) ([]bus.Address, error) { return nil, nil }

// allAccounts is an Accounts that serves every account.
type allAccounts struct{}

func (allAccounts) Served(string) bool                            { return true }
func (allAccounts) TakesFiles(bus.Address) bool                   { return true }
func (allAccounts) ExternalStore(string) background.ExternalStore { return nil }
func (allAccounts) States(store.Queryer) ([]string, error)        { return nil, nil }
func (allAccounts) Admitted([]bus.InboundMessage)                 {}
func (allAccounts) Dropped([]bus.InboundMessage)                  {}

// noTools is a Toolset for tools that need no servers or processes.
type noTools struct{}

func (noTools) Ready() <-chan struct{}                { return nil }
func (noTools) States() []string                      { return nil }
func (noTools) Stop(bus.Session, *bus.InboundMessage) {}

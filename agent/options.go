package agent

import (
	"cmp"
	"log/slog"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/audit"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/skills"
	"gateway/store"
)

// Migrations make the tables that the agent needs besides those of package session.
func Migrations() []store.Migration {
	return []store.Migration{question.Migration, policy.Migration, budget.Migration,
		background.Migration, schedule.Migration, command.Migration, audit.Migration}
}

// Deps are what a [Dispatcher] works with. All are required except those with a comment that says
// what their absence means.
type Deps struct {
	DB     *store.DB
	Life   *store.Life // of this process
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live
	Model  llm.Model
	Notes  llm.Model // writes notes and does Dream; default Model
	Tools  *tool.Registry
	Memory *memory.Memory

	Media       attachment.Media       // nil: files are only mentioned
	Extract     *extract.Extractor     // of what is in files; required with Media
	Transcriber attachment.Transcriber // nil: voice messages stay unread

	Jobs      *schedule.Scheduler // nil: there are no jobs
	Documents *document.Documents // nil: there are none
	Versions  *version.Store      // required with Documents
	Skills    *skills.Library     // nil: there are none

	People   People   // nil: nobody is known
	Accounts Accounts // nil: every account is served
	Toolset  Toolset  // nil: tools need no looking after
}

// People know who is who. They are asked concurrently.
type People interface {
	// Known reports whether a person is still known. If somebody is not, because they were linked with
	// another person, that one gets their memory.
	Known(q store.Queryer, person int64) (bool, error)

	// Forget makes a person a stranger, and forgets chats, in the transaction in which all that is
	// known of them goes.
	Forget(tx *store.Tx, person int64, chats []bus.Address) error

	// OwnerChats returns the direct chats of the owners.
	OwnerChats(q store.Queryer) ([]bus.Address, error)
}

// Accounts are the bots and devices on the platforms. They are asked concurrently.
type Accounts interface {
	// Served reports whether messages to an account can be sent: it is configured.
	Served(account string) bool

	// Keeper returns what keeps data of its own about the people on an account, or nil.
	Keeper(account string) background.Keeper

	// States describes the accounts for /status, in a line each.
	States(q store.Queryer) ([]string, error)
}

// A Toolset looks after what tools need. It is used concurrently.
type Toolset interface {
	// Ready is closed when all tools are known. No turn begins before.
	Ready() <-chan struct{}

	// States describes what tools need for /status, in a line each.
	States() []string

	pool.Tools
}

// Options are the optional settings of a [Dispatcher]. The zero value is ready for use.
type Options struct {
	pool.Settings

	Name    string // what the agent calls itself; default "gateway"
	Version string // shown by /status

	// WorkspacePath is how the model knows the folder that the agent works in; default none.
	// MemoryPath is the folder with a folder for each scope, in which the documents lie.
	WorkspacePath string
	MemoryPath    string

	Location    *time.Location // of the times in prompts; default UTC
	Slots       int            // model calls at once; default 64
	ToolTimeout time.Duration  // longest tool call; default 2 min
	Grace       time.Duration  // time for turns to reach a step at the end; default 20 s

	// FormatHints tell the model what its answers look like, by account.
	FormatHints map[string]string
	// Commands are what people may send besides the dispatcher's own commands.
	Commands []command.Command
	// Restart begins the gateway anew; default that is not possible.
	Restart *command.Restart
	// Observer measures what is done; default nothing does.
	Observer observe.Observer
	// Usage counts what models are used for, and bounds it; default it counts and bounds nothing.
	Usage *budget.Ledger

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
	if o.Observer == nil {
		o.Observer = observe.Nothing{}
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
		d.People = nobody{}
	}
	if d.Accounts == nil {
		d.Accounts = unwatched{}
	}
	if d.Toolset == nil {
		d.Toolset = untended{}
	}
}

// nobody are People of whom none is known.
type nobody struct{}

func (nobody) Known(store.Queryer, int64) (bool, error)        { return false, nil }
func (nobody) Forget(*store.Tx, int64, []bus.Address) error    { return nil }
func (nobody) OwnerChats(store.Queryer) ([]bus.Address, error) { return nil, nil }

// unwatched are Accounts that are all served.
type unwatched struct{}

func (unwatched) Served(string) bool                     { return true }
func (unwatched) Keeper(string) background.Keeper        { return nil }
func (unwatched) States(store.Queryer) ([]string, error) { return nil, nil }

// untended is a Toolset that needs no looking after.
type untended struct{}

func (untended) Ready() <-chan struct{}           { return nil }
func (untended) States() []string                 { return nil }
func (untended) Stop(string, *bus.InboundMessage) {}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
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

// ErrBudget is wrapped by the refusals of a [Budget]; its text after it is told to the person.
var ErrBudget = errors.New("budget spent")

// A Budget may refuse model calls. It is used concurrently.
type Budget interface {
	// Allow is asked before each model call of a session. An error ends the turn;
	// if it wraps ErrBudget the person is told that the budget is spent.
	Allow(key session.Key) error

	// Spent is told what each model call has used, also of one that was not finished.
	Spent(key session.Key, model string, usage llm.Usage)
}

// Deps are what a [Dispatcher] works with. All are required but Media, without which files that
// people send are only mentioned.
type Deps struct {
	DB     *store.DB
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live
	Model  llm.Model
	Tools  *tool.Registry
	Media  Media
}

// Media are the files that people send. It is used concurrently.
type Media interface {
	// Fetch makes sure that the files of m and of the message that it quotes are there: each
	// attachment has a Path then, or a Problem.
	Fetch(ctx context.Context, m *bus.InboundMessage)

	// Open opens the file at an attachment's Path.
	Open(path string) (*os.File, error)
}

// A Transcriber writes down what is said in a sound file. It is used concurrently.
type Transcriber interface {
	Transcribe(ctx context.Context, name string, r io.Reader) (string, error)
}

// Options are the optional settings of a [Dispatcher]. The zero value is ready for use.
type Options struct {
	Name      string // what the agent calls itself; default "gateway"
	Version   string // shown by /status
	ModelName string // shown by /status

	// Workspace is the folder that the agent works in: its documents are part of the prompt, and
	// long tool results are stored in it. Default none. WorkspacePath is how the model knows it.
	Workspace     *os.Root
	WorkspacePath string

	Location      *time.Location // of the times in prompts; default UTC
	Slots         int            // model calls at once; default 64
	MaxRounds     int            // model calls of a turn that may use tools; default 40
	TurnTimeout   time.Duration  // longest turn; default 15 min
	ToolTimeout   time.Duration  // longest tool call; default 2 min
	Grace         time.Duration  // time for turns to reach a step at the end; default 20 s
	QueueMode     Mode           // default Steer
	Waiting       int            // messages that may wait in a session; default 20
	ContextWindow int            // of the model, in tokens; default 65,536
	MaxOutput     int            // of an answer, in tokens; default the provider's

	// Debounce is how long an account waits for more of a message; default not at all.
	Debounce func(account string) time.Duration
	// FormatHint tells the model what its answers look like on an account; default nothing.
	FormatHint func(account string) string
	// Commands are what people may send besides the dispatcher's own commands.
	Commands []Command
	// Transcriber turns voice messages into text; default nobody does.
	Transcriber Transcriber
	// NoImages says that the model does not understand images.
	NoImages bool

	// Channels describes the state of the accounts, a line each, for /status.
	Channels func() []string
	// Cost returns what a usage cost, in dollars; default nothing.
	Cost   func(model string, u llm.Usage) float64
	Budget Budget // default allows everything

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default discards
}

func (o *Options) setDefaults() {
	o.Name = cmp.Or(o.Name, "gateway")
	o.Location = cmp.Or(o.Location, time.UTC)
	o.Slots = cmp.Or(o.Slots, 64)
	o.MaxRounds = cmp.Or(o.MaxRounds, 40)
	o.TurnTimeout = cmp.Or(o.TurnTimeout, 15*time.Minute)
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
		o.Channels = func() []string { return nil }
	}
	if o.Cost == nil {
		o.Cost = func(string, llm.Usage) float64 { return 0 }
	}
	if o.Budget == nil {
		o.Budget = noBudget{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

type noBudget struct{}

func (noBudget) Allow(session.Key) error              { return nil }
func (noBudget) Spent(session.Key, string, llm.Usage) {}

// platform names the machine for the prompt; it never changes while the process runs.
var platform = runtime.GOOS + "/" + runtime.GOARCH

package turn

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"gateway/agent/activity"
	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/persona"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/schedule"
	"gateway/agent/speech"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/skills"
	"gateway/store"
)

// An Env holds what all turns of a process work with. Turns don't change it.
type Env struct {
	Profile

	DB     *store.DB
	Inbox  *bus.Inbox
	Outbox *bus.Outbox
	Live   *bus.Live

	Senders Senders // nil: they never change

	Tools       *tool.Registry
	Attachments *attachment.Loader
	Calls       *modelcall.Calls
	Jobs        *schedule.Scheduler // nil: no jobs
	Knowledge
	Transcripts *Transcripts
	Prompts     *prompt.Cache // caches system prompts

	Background *background.Runner
	Summarizer *background.Summarizer
	Merger     *background.Merger

	Draining <-chan struct{} // closed when turns must stop at their next step
	Counters *Counters
	Now      func() time.Time
	Logger   *slog.Logger
}

// Senders finds the present senders of waiting messages.
type Senders interface {
	// IsCurrent reports whether a message still belongs to the person whose number it has.
	IsCurrent(q store.Queryer, m *bus.InboundMessage) (bool, error)

	// Renew returns a message that could not be claimed, with its present sender. ok is false if the
	// message no longer waits, or has the same sender as before.
	Renew(ctx context.Context, r bus.Received) (now bus.Received, ok bool, err error)
}

// Claim binds the waiting message r to a turn. It reports false if r is no longer waiting. It also
// reports false if the sender of r was forgotten or unlinked after r was handed out. Then r keeps
// waiting as a message of its present sender: see [Senders].
func (e *Env) Claim(tx *store.Tx, r *bus.Received, turn int64) (bool, error) {
	if e.Senders != nil {
		if ok, err := e.Senders.IsCurrent(tx, &r.Message); !ok || err != nil {
			return false, err
		}
	}
	return e.Inbox.Claim(tx, r.Seq, turn)
}

// Knowledge holds the stores of what the agent knows.
type Knowledge struct {
	Memory    *memory.Memory
	Documents *document.Documents // nil: no documents
	Skills    *skills.Library     // nil: no skills
}

// A Profile describes the agent and its surroundings. It is constant while the process runs.
type Profile struct {
	Name        string          // the agent's name
	Workspace   string          // name of the working folder for the model, or ""
	Location    *time.Location  // time zone of people who have set none
	Speaker     *speech.Speaker // nil: answers are only written
	ToolTimeout time.Duration   // longest call of a tool without a limit of its own

	// FormatHints tells the model, by account, how its answers are displayed.
	FormatHints map[string]string

	// CountUntil is set after a crash: until then each message is recorded before its turn begins.
	// Messages with files are always recorded.
	CountUntil time.Time
}

// Counters count events that should not occur.
type Counters struct {
	Panics    atomic.Int64 // turns that panicked
	Abandoned atomic.Int64 // tool calls that ignored the end of their context
}

// IsDraining reports whether turns must stop at their next step.
func (e *Env) IsDraining() bool {
	select {
	case <-e.Draining:
		return true
	default:
		return false
	}
}

// Settings are the settings with which a turn begins and ends.
type Settings struct {
	Model         llm.Model // model that answers
	ModelName     string    // shown by /status
	ModelID       string    // name in the price list
	ContextWindow int       // in tokens; default 65,536
	MaxOutput     int       // of an answer, in tokens; default: the provider's
	NoImages      bool      // the model does not understand images
	Effort        llm.Effort

	// Models holds the models for turns of other origins than a person; default Model.
	Models        map[bus.OriginKind]*Choice
	MaxRounds     int           // maximum number of model calls that may use tools; default 40
	MaxTaskRounds int           // the same for a sub-agent; default 15
	Timeout       time.Duration // maximum duration of a turn; default 15 min
	SpeechCost    float64       // of a second of transcribed sound, in dollars
	Voice         string        // when answers are spoken, too; see package speech

	Activity activity.Mode // how much of the work is shown; default activity.Compact

	// Rules say which tool calls need approval; default none. People with the role Approver or a
	// higher one, by default admins, can approve within ApprovalTime, by default 10 minutes.
	Rules        policy.Rules
	Approver     bus.Role
	ApprovalTime time.Duration

	Places *Places        // personas and policies; nil: none
	Here   persona.Choice // persona and limits of the place of the turn: see [Settings.ForPlace]
	Chosen Chosen         // choices for the conversation, which take precedence over Here
}

// Chosen holds the settings that people have chosen for a conversation.
type Chosen struct {
	Model    bool          // Model was chosen
	Voice    string        // "": as configured
	Activity activity.Mode // "": as configured
}

// Places holds the personas and policies, with the models and documents that they need.
type Places struct {
	Table  *persona.Table
	Models map[string]*Choice // models that the table names, by their names there

	// Documents holds those of personas, with names such as PersonasFolder/ID/SOUL.md; nil: none.
	Documents *document.Documents
}

// PersonasFolder is the folder with a folder of documents for each persona.
const PersonasFolder = "personas"

// A Choice is a model and its properties.
type Choice struct {
	Model         llm.Model
	Name          string // shown by /status
	ID            string // name in the price list
	ContextWindow int    // in tokens
	MaxOutput     int    // in tokens; 0: the provider's
	NoImages      bool   // the model does not understand images
}

// With returns a copy of s with another model.
func (s Settings) With(c *Choice) *Settings {
	s.Model, s.ModelName, s.ModelID = c.Model, c.Name, c.ID
	s.ContextWindow = cmp.Or(c.ContextWindow, s.ContextWindow)
	s.MaxOutput, s.NoImages = c.MaxOutput, c.NoImages
	return &s
}

// ContextBudget returns the maximum size of a prompt in tokens. It leaves room for the answer and
// for the error of the estimate.
func (s *Settings) ContextBudget() int {
	const (
		answer  = 8192 // if only the provider knows its limit
		reserve = 1024
	)
	window := s.ContextWindow
	return max(window-cmp.Or(s.MaxOutput, min(answer, window/4))-min(reserve, window/8), 1)
}

// ForPlace returns the settings for a place. Settings that people have chosen for the conversation
// take precedence over policies, and those over personas.
func (s *Settings) ForPlace(at persona.Place) *Settings {
	if s.Places == nil {
		return s
	}
	return s.with(s.Places.Table.At(at))
}

// resumed is like [Settings.ForPlace], for a turn that began with the persona id; "": with none.
func (s *Settings) resumed(at persona.Place, id string) *Settings {
	if s.Places == nil {
		return s
	}
	return s.with(s.Places.Table.Resumed(at, id))
}

// with returns a copy of s with the persona, the settings and the limits of a place.
func (s *Settings) with(here persona.Choice) *Settings {
	own := *s
	if c := s.Places.Models[here.Model]; c != nil && !s.Chosen.Model && c.ID != s.ModelID {
		own = *s.With(c)
	}
	own.Activity = cmp.Or(s.Chosen.Activity, activity.Mode(here.Activity), own.Activity)
	own.Voice = cmp.Or(s.Chosen.Voice, here.Voice, own.Voice)
	own.Here = persona.Choice{Persona: here.Persona, Model: here.Model, Policies: here.Policies}
	own.limit(here.Layers)
	return &own
}

// limit adds layers of limits that s does not have yet, and reports whether there were any.
func (s *Settings) limit(layers []*persona.Limits) (added bool) {
	for _, l := range layers {
		if slices.Contains(s.Here.Layers, l) {
			continue
		}
		added = true
		s.Here.Layers = append(slices.Clip(s.Here.Layers), l)
		for _, name := range l.Ask {
			s.Rules = append(slices.Clip(s.Rules), policy.Rule{Tool: name, Roles: askEverybody})
		}
	}
	return added
}

// askEverybody is the decision of a policy that wants approval.
var askEverybody = map[bus.Role]policy.Decision{bus.Owner: policy.Ask, bus.Admin: policy.Ask,
	bus.User: policy.Ask, bus.Guest: policy.Ask}

// hidesTool reports whether a policy or the persona withholds a tool.
func (s *Settings) hidesTool(x tool.Tool) bool {
	return slices.ContainsFunc(s.Here.Layers, func(l *persona.Limits) bool {
		return l.Hides(x.Name, x.Like)
	})
}

// restrict adds the limits of the policies that apply to the authors of batch, who join the turn.
func (t *turn) restrict(batch []bus.Received) {
	if t.settings.Places == nil {
		return
	}
	own, added := *t.settings, false
	for i := range batch {
		m := &batch[i].Message
		ids, layers := own.Places.Table.Policies(persona.PlaceOf(m), m.Origin.Policies)
		for _, id := range ids {
			if !slices.Contains(own.Here.Policies, id) {
				own.Here.Policies = append(slices.Clip(own.Here.Policies), id)
			}
		}
		added = own.limit(layers) || added
	}
	t.settings = &own
	if added && t.tools != nil {
		t.tools = t.toolsFor(t.role)
	}
	if added && t.loaded != nil {
		t.loaded.hideSkills(t)
	}
}

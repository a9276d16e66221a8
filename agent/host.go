package agent

import (
	"context"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/persona"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/speech"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// A host gives background tasks access to the dispatcher.
type host struct{ d *Dispatcher }

// Ask implements [background.Model].
func (h host) Ask(
	ctx context.Context, who budget.Spender, req llm.Request,
) (*llm.Response, error) {
	s := h.d.pool.Config()
	return h.d.env.Calls.Ask(ctx, who,
		modelcall.Model{Model: s.Notes, ID: s.NotesID, Name: s.ModelName}, req)
}

// Background implements [background.Settings].
func (h host) Background() background.Config {
	s := h.d.pool.Config()
	return background.Config{Model: s.NotesID, ModelName: s.ModelName, Tokens: s.ContextBudget(),
		IdleAfter: s.IdleAfter, Dream: s.DreamEvery, History: s.History}
}

// Prompt implements [background.Settings].
func (h host) Prompt(key session.Key) (model string, tokens int) {
	s := h.d.pool.ConfigOf(key).ForPlace(persona.Place{Address: key.Conversation})
	return s.ModelID, s.ContextBudget()
}

// TellOwners implements [background.Owners].
func (h host) TellOwners(tx *store.Tx, text string) error {
	return h.d.env.Calls.TellOwners(tx, bus.Address{}, func(to bus.Address) bus.OutboundMessage {
		return bus.OutboundMessage{To: to, Text: text}
	})
}

// Explain implements [background.Texts].
func (h host) Explain(err error) string { return turn.ErrorText(err) }

// skillNames lists the names of skills for Dream. A nil library has none.
type skillNames struct{ library *skills.Library }

// Names implements [background.Skills].
func (n skillNames) Names(s memory.Scope) (names []string) {
	if n.library == nil {
		return nil
	}
	for _, skill := range n.library.List(string(s)) {
		names = append(names, skill.Name)
	}
	return names
}

// backgroundTasks holds the parts that do background tasks.
type backgroundTasks struct {
	background *background.Runner
	summarizer *background.Summarizer
	archiver   background.Archiver
	versions   *background.Versions
	merger     *background.Merger
	speaker    *speech.Speaker
	eraser     *background.Eraser
}

// The number of concurrent background tasks follows from the number of model slots.
const (
	leastTasks   = 2
	slotsPerTask = 16
)

// newBackground returns the parts that do background tasks for d.
func newBackground(d *Dispatcher, estimates *prompt.Estimator) backgroundTasks {
	h, o := host{d}, &d.opts
	versions := &background.Versions{Documents: d.Documents, Store: d.Versions, Path: o.MemoryPath,
		Shared: o.SharedPath, Zone: o.Location}
	summarizer := &background.Summarizer{DB: d.DB, Memory: d.Memory, Model: h, Estimates: estimates,
		Settings: h, Dreams: d.Documents != nil, Zone: o.Location, Now: o.Now, Logger: o.Logger}
	b := backgroundTasks{
		summarizer: summarizer,
		archiver:   background.Archiver{Summarizer: summarizer},
		versions:   versions,
		merger: &background.Merger{DB: d.DB, Memory: d.Memory, Versions: versions, People: d.People,
			Now: o.Now, Logger: o.Logger},
		eraser: &background.Eraser{DB: d.DB, Inbox: d.Inbox, Outbox: d.Outbox, Memory: d.Memory,
			Ledger: o.Usage, Versions: versions, People: d.People, Accounts: d.Accounts, Now: o.Now,
			ReloadChoices: d.pool.ReloadChoices},
	}
	if d.Media != nil {
		b.eraser.Media = d.Media
	}
	if d.Voice != nil && d.Media != nil {
		b.speaker = &speech.Speaker{Voice: *d.Voice, Calls: d.env.Calls, Media: d.Media, Now: o.Now,
			Logger: o.Logger}
	}
	compactor := background.Compactor{Summarizer: summarizer}
	b.background = background.NewRunner(&background.Runner{
		DB: d.DB, Outbox: d.Outbox, Memory: d.Memory, Texts: h, Now: o.Now, Logger: o.Logger,
		Parallel: max(leastTasks, o.Slots/slotsPerTask), CountUntil: d.env.CountUntil,
		Eraser: b.eraser,
		Idle:   &background.IdleSweep{DB: d.DB, Settings: h, Now: o.Now},
		Handlers: map[background.Kind]background.Handler{
			background.Archive: b.archiver,
			background.Compact: compactor,
			background.Idle:    compactor,
			background.Dream: &background.Dreamer{DB: d.DB, Memory: d.Memory, Versions: versions,
				Skills: skillNames{d.Skills}, Model: h, Owners: h, Settings: h, Zone: o.Location,
				Now: o.Now, TrustsClock: o.TrustsClock, Logger: o.Logger},
			background.Version: background.Recorder{Versions: versions},
			background.Log:     background.Lister{Versions: versions},
			background.Undo:    background.Undoer{Versions: versions},
			background.Merge:   b.merger,
			background.Erase:   b.eraser,
		},
	})
	if o.Export != nil {
		b.background.Handlers[background.Export] = o.Export
	}
	if b.speaker != nil {
		b.background.Handlers[background.Speak] = b.speaker
	}
	return b
}

// newEnv returns the environment of d's turns, without the background tasks.
func newEnv(d *Dispatcher) *turn.Env {
	o := &d.opts
	who := senders{&d.Deps, o.Logger}
	calls := &modelcall.Calls{DB: d.DB, Outbox: d.Outbox, Ledger: o.Usage,
		Owners: d.People, Observer: o.Observer, Estimates: new(prompt.Estimator),
		Slots: make(chan struct{}, o.Slots), Now: o.Now, Payer: who.payer}
	e := &turn.Env{
		Profile: turn.Profile{Name: o.Name, Workspace: o.WorkspacePath, Location: o.Location,
			ToolTimeout: o.ToolTimeout, FormatHints: o.FormatHints},
		DB: d.DB, Inbox: d.Inbox, Outbox: d.Outbox, Live: d.Live, Tools: d.Tools,
		Senders: who,
		Attachments: &attachment.Loader{Media: d.Media, Extract: d.Extract,
			Transcriber: d.Transcriber, Calls: calls, Logger: o.Logger},
		Calls: calls, Jobs: d.Jobs,
		Knowledge:   turn.Knowledge{Memory: d.Memory, Documents: d.Documents, Skills: d.Skills},
		Transcripts: new(turn.Transcripts), Prompts: new(prompt.Cache), Draining: d.draining,
		Counters: new(turn.Counters),
		Now:      o.Now, Logger: o.Logger,
	}
	if d.Life != nil && d.Life.Crashed {
		e.CountUntil = d.started.Add(pool.CountedTime)
	}
	return e
}

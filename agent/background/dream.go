package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gateway/agent/dream"
	"gateway/agent/llm"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// A Dreamer turns the notes of a scope into lasting memory, for the kind [Dream]. All its fields
// are required.
type Dreamer struct {
	DB       *store.DB
	Memory   *memory.Memory
	Versions *Versions
	Skills   Skills
	Model    Model
	Owners   Owners
	Settings Settings
	Zone     *time.Location
	Now      func() time.Time
	Logger   *slog.Logger

	// TrustsClock reports whether notes may be removed because of their age.
	TrustsClock func(context.Context) bool

	tasks Store
}

// Skills lists the skills of the agent.
type Skills interface {
	// Names returns the names of the skills that a scope can use.
	Names(s memory.Scope) []string
}

// dreamPause is the time between two runs of Dream in one scope while more notes are waiting.
const dreamPause = time.Minute

// Do processes the new part of a scope's history.
func (d *Dreamer) Do(ctx context.Context, t *Task) (Outcome, error) {
	o, err := d.run(ctx, t)
	o.Pause = d.Settings.Background().Dream
	return o, err
}

func (d *Dreamer) run(ctx context.Context, t *Task) (Outcome, error) {
	if d.Versions.Documents == nil {
		return Outcome{Text: "There are no documents that I could write to."}, nil
	}
	save := func(ctx context.Context, state []byte) error {
		t.State = state
		return commit(ctx, d.DB, func(tx *store.Tx) error {
			return d.tasks.Save(tx, t, state)
		})
	}
	report, err := d.dreamer(t.Scope).Run(ctx, t.Scope, t.State, save)
	if gaveUp, ok := errors.AsType[*dream.GiveUpError](err); ok {
		return d.giveUp(ctx, t, gaveUp)
	}
	if err != nil {
		return Outcome{}, err
	}
	d.Logger.InfoContext(ctx, "dreamt", "scope", t.Scope, "from", report.From, "to", report.To,
		"changes", len(report.Changes), "skipped", len(report.Skipped), "version", report.Version)
	if keep := d.Settings.Background().History; keep > 0 && d.TrustsClock(ctx) {
		err := memory.Trim(ctx, d.Memory, t.Scope, d.Now().Add(-keep))
		if err != nil { // the next run does it
			d.Logger.WarnContext(ctx, "old notes not removed", "scope", t.Scope, "err", err)
		}
	}
	o := Outcome{Text: dreamText(report)}
	if report.More {
		o.ContinueAt = d.Now().Add(dreamPause)
	}
	return o, nil
}

// dreamer returns a [dream.Dreamer] for the history of a scope.
func (d *Dreamer) dreamer(of memory.Scope) *dream.Dreamer {
	return dream.New(dream.Deps{
		DB:        d.DB,
		History:   func(s memory.Scope) dream.History { return d.Memory.In(s) },
		Documents: d.Versions.Documents,
		Versions:  func(s memory.Scope) dream.Versions { return d.Versions.Tree(s) },
		Skills:    d.Skills.Names,
		Ask: func(ctx context.Context, req llm.Request) (*llm.Response, error) {
			return d.Model.Ask(ctx, spenderOf(of, session.Key{}), req)
		},
		Now: d.Now, Logger: d.Logger,
	}, &dream.Options{Zone: d.Zone})
}

// giveUp ends a task because the model's answers are useless, and tells the owners once.
func (d *Dreamer) giveUp(ctx context.Context, t *Task, e *dream.GiveUpError) (Outcome, error) {
	d.Logger.WarnContext(ctx, "dream given up for now", "scope", t.Scope, "err", e)
	wait := max(d.Settings.Background().Dream, maxRetry) << min(max(e.Failures-3, 0), 6)
	o := Outcome{ContinueAt: d.Now().Add(wait), State: t.State,
		Text: "The language model's answers were unusable, so nothing has changed."}
	if e.Failures > 3 {
		return o, nil
	}
	return o, commit(ctx, d.DB, func(tx *store.Tx) error {
		return d.Owners.TellOwners(tx, fmt.Sprintf("I could not turn the notes of `%s` "+
			"into lasting memory: the language model's answers were unusable %d times in a row. "+
			"Nothing is lost; I will try again later. The log has the details.", t.Scope, e.Failures))
	})
}

func dreamText(r dream.Report) string {
	var b strings.Builder
	switch {
	case r.From == r.To:
		return "There are no new notes since the last run. I make notes when a conversation gets " +
			"long, is idle, or ends with `/new`; `/compact` makes them now."
	case len(r.Changes) == 0 && len(r.Skipped) == 0:
		return "I have read the new notes; there was nothing to keep."
	case r.Version != "":
		fmt.Fprintf(&b, "I have changed my memory; `/dream-restore %s` undoes it:\n\n",
			short(r.Version))
	}
	for _, line := range r.Changes {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range r.Skipped {
		b.WriteString("- Not done: " + line + "\n")
	}
	return strings.TrimSpace(b.String())
}

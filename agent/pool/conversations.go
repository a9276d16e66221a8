package pool

import (
	"cmp"
	"context"

	"gateway/agent/activity"
	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/persona"
	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// Conversations is the commands' view of the sessions. Together with a Status it implements
// [command.Sessions].
type Conversations struct {
	*Stopper
	Eraser *background.Eraser
}

// Window implements [command.Sessions].
func (c Conversations) Window(
	ctx context.Context, key session.Key, m bus.InboundMessage,
) (command.Window, error) {
	s := c.ConfigOf(key).ForPlace(persona.PlaceOf(&m))
	contents, err := turn.Measure(ctx, c.env, s, key, m)
	w := command.Window{Model: s.ModelName, Size: s.ContextWindow, Room: s.ContextBudget()}
	for _, content := range contents {
		w.Parts = append(w.Parts, command.PromptPart{Label: content.Label,
			Tokens: c.env.Calls.Estimates.Tokens(s.ModelID, content.Bytes)})
	}
	return w, err
}

// Mode implements [command.Sessions].
func (c Conversations) Mode(key session.Key) string {
	return string(c.Pool.Mode(key))
}

// Models implements [command.Sessions].
func (c Conversations) Models(key session.Key, m bus.InboundMessage) command.Models {
	config, at := c.Config(), persona.PlaceOf(&m)
	s := config.ForPlace(at)
	models := command.Models{Default: command.Model{ID: s.ModelID, Name: s.ModelName},
		Chosen:  c.Chosen(key, session.Model),
		Effort:  llm.Effort(c.Chosen(key, session.Effort)),
		Efforts: llm.Efforts(c.ConfigOf(key).ForPlace(at).Model)}
	for _, choice := range config.Choices {
		models.Choices = append(models.Choices, command.Model{ID: choice.ID, Name: choice.Name})
	}
	return models
}

// HiddenSkills implements [command.Sessions].
func (c Conversations) HiddenSkills(m bus.InboundMessage) func(name string) bool {
	here := c.Config().ForPlace(persona.PlaceOf(&m)).Here
	return here.HiddenSkills()
}

// Voice implements [command.Sessions].
func (c Conversations) Voice(key session.Key, m bus.InboundMessage) string {
	if c.env.Speaker == nil || !c.env.Speaker.Plays(m.From.Account) {
		return ""
	}
	return c.ConfigOf(key).ForPlace(persona.PlaceOf(&m)).Voice
}

// Activity implements [command.Sessions].
func (c Conversations) Activity(key session.Key, m bus.InboundMessage) string {
	return string(cmp.Or(c.ConfigOf(key).ForPlace(persona.PlaceOf(&m)).Activity, activity.Compact))
}

// Stop implements [command.Sessions].
func (c Conversations) Stop(m bus.InboundMessage, e command.Extent) command.Stop {
	return c.New(m, e)
}

// Forget implements [command.Sessions].
func (c Conversations) Forget(r bus.Received) command.Erasure {
	return &erasure{c: c, command: r, stop: c.New(r.Message, command.Everything)}
}

// Decided implements [command.Sessions].
func (c Conversations) Decided(key session.Key) { c.MarkDue(key) }

// Answer implements [command.Sessions].
func (Conversations) Answer(q *question.Question, text string) string {
	return chosenAnswer(q, text, true)
}

// An erasure deletes all data about the sender of a command. It implements [command.Erasure].
type erasure struct {
	c       Conversations
	command bus.Received
	stop    *Stopping
	keys    []session.Key // erased sessions
}

// Erase implements [command.Erasure].
func (e *erasure) Erase(tx *store.Tx, answer bus.OutboundMessage) error {
	env, m := e.c.env, e.command.Message
	stopped, err := e.stop.End(tx)
	if err != nil {
		return err
	}
	left := background.Erasure{Scopes: []memory.Scope{memory.ScopeOf(m)},
		Chats: []bus.Address{background.ChatOf(m.From)},
		Inbox: e.command.Seq, Person: m.Person}
	if e.keys, err = e.c.Eraser.Rows(tx, &left); err != nil {
		return err
	}
	answer.Answers, answer.Stops = append(answer.Answers, stopped.Answers(m.From)...), stopped.Streams
	if left.Outbox, err = env.Outbox.Add(tx, answer, env.Now()); err != nil {
		return err
	}
	return e.c.Eraser.Add(tx, &left)
}

// Cancel implements [command.Erasure].
func (e *erasure) Cancel() {
	e.stop.Cancel()
	e.c.forget(e.keys)
}

package agent

import (
	"context"
	"time"

	"gateway/agent/command"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// newCommands returns the registry of commands.
func (d *Dispatcher) newCommands(db command.DB) *command.Commands {
	return command.New(command.Deps{DB: db, Inbox: d.Inbox, Outbox: d.Outbox, Memory: d.Memory,
		Documents: d.Documents, Skills: d.Skills, Jobs: d.Jobs, Budget: d.opts.Usage,
		Restart: d.opts.Restart, Sessions: conversations{d}, Background: tasks{d},
		Name: d.opts.Name, Version: d.opts.Version, Location: d.opts.Location, Now: d.opts.Now},
		d.opts.Commands...)
}

// conversations is what commands see of the dispatcher.
type conversations struct{ d *Dispatcher }

// Status describes a conversation and the gateway of d, as /status does.
func Status(ctx context.Context, d *Dispatcher, key session.Key) (command.Status, error) {
	return conversations{d}.Status(ctx, key)
}

// Status implements [command.Sessions].
func (c conversations) Status(ctx context.Context, key session.Key) (command.Status, error) {
	d, config := c.d, c.d.ConfigOf(key)
	waiting := d.Pending(key)
	mode, busy := d.Mode(key), d.Counts().Workers
	lines := make([]string, 0, 8)
	for _, text := range d.Toolset.States() {
		lines = append(lines, "- "+text)
	}
	channels, err := d.Accounts.States(d.DB.Read(ctx))
	for _, text := range channels {
		lines = append(lines, "- Channel: "+text)
	}
	return command.Status{Lines: lines, Model: config.ModelName, Context: config.ContextBudget(),
		Uptime:  d.opts.Now().Sub(d.started).Truncate(time.Second).String(),
		Waiting: len(waiting), Mode: string(mode), Busy: busy, Calls: len(d.env.Calls.Slots),
		Slots: cap(d.env.Calls.Slots)}, err
}

// Mode implements [command.Sessions].
func (c conversations) Mode(key session.Key) string {
	return string(c.d.Mode(key))
}

// SetMode implements [command.Sessions].
func (c conversations) SetMode(key session.Key, mode string) {
	c.d.SetMode(key, pool.Mode(mode))
}

// Models implements [command.Sessions].
func (c conversations) Models(key session.Key) command.Models {
	s := c.d.Config()
	models := command.Models{Default: command.Model{ID: s.ModelID, Name: s.ModelName},
		Chosen: c.d.Chosen(key)}
	for _, choice := range s.Choices {
		models.Choices = append(models.Choices, command.Model{ID: choice.ID, Name: choice.Name})
	}
	return models
}

// SetModel implements [command.Sessions].
func (c conversations) SetModel(key session.Key, id string) {
	c.d.SetModel(key, id)
}

// Stop implements [command.Sessions].
func (c conversations) Stop(m bus.InboundMessage, e command.Extent) command.Stop {
	return c.d.stops.New(m, e)
}

// Forget implements [command.Sessions].
func (c conversations) Forget(r bus.Received) command.Erasure {
	return &erasure{d: c.d, command: r, stop: c.d.stops.New(r.Message, command.Everything)}
}

// Decided implements [command.Sessions].
func (c conversations) Decided(key session.Key) {
	c.d.MarkDue(key)
}

// Answer implements [command.Sessions].
func (conversations) Answer(q *question.Question, text string) string {
	return pool.ChosenAnswer(q, text)
}

// tasks is what commands see of the background tasks.
type tasks struct{ d *Dispatcher }

// Archive implements [command.Background].
func (t tasks) Archive(tx *store.Tx, key session.Key) error { return t.d.archiver.Add(tx, key) }

// Changes implements [command.Background].
func (t tasks) Changes(ctx context.Context, s memory.Scope, id string) (string, error) {
	return t.d.versions.Changes(ctx, s, id)
}

// Wake implements [command.Background].
func (t tasks) Wake() { t.d.background.Wake() }

package agent

import (
	"context"
	"time"

	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/persona"
	"gateway/agent/pool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// newCommands returns the registry of commands.
func (d *Dispatcher) newCommands(db command.DB) *command.Commands {
	return command.New(command.Deps{DB: db, Inbox: d.Inbox, Outbox: d.Outbox, Memory: d.Memory,
		Documents: d.Documents, Skills: d.Skills, Jobs: d.Jobs, Budget: d.opts.Usage,
		Restart: d.opts.Restart, Background: tasks{d.versions, d.background, d.archiver},
		Sessions: conversations{pool.Conversations{Stopper: &d.stops, Eraser: d.eraser}, d},
		Name:     d.opts.Name, Version: d.opts.Version, Location: d.opts.Location, Now: d.opts.Now},
		d.opts.Commands...)
}

// conversations is the commands' view of the dispatcher.
type conversations struct {
	pool.Conversations
	d *Dispatcher
}

// Status implements [command.Sessions].
func (c conversations) Status(
	ctx context.Context, key session.Key, m bus.InboundMessage,
) (command.Status, error) {
	return c.d.Status(ctx, key, m)
}

// TakesFiles implements [command.Sessions].
func (c conversations) TakesFiles(to bus.Address) bool { return c.d.Accounts.TakesFiles(to) }

// Status describes a conversation and the gateway for /status, for the sender of m.
func (d *Dispatcher) Status(
	ctx context.Context, key session.Key, m bus.InboundMessage,
) (command.Status, error) {
	config := d.pool.ConfigOf(key).ForPlace(persona.PlaceOf(&m))
	waiting := d.pool.Pending(key)
	mode, busy := d.pool.Mode(key), d.pool.Counts().Workers
	lines := make([]string, 0, 8)
	for _, text := range d.Toolset.States() {
		lines = append(lines, "- "+text)
	}
	channels, err := d.Accounts.States(d.DB.Read(ctx))
	for _, text := range channels {
		lines = append(lines, "- Channel: "+text)
	}
	return command.Status{Lines: lines, Model: config.ModelName, Persona: config.Here.ID(),
		Context: config.ContextBudget(),
		Uptime:  d.opts.Now().Sub(d.started).Truncate(time.Second).String(),
		Waiting: len(waiting), Mode: string(mode), Busy: busy, Calls: len(d.env.Calls.Slots),
		Slots: cap(d.env.Calls.Slots)}, err
}

// tasks is the commands' view of the background tasks.
type tasks struct {
	*background.Versions // for Changes
	*background.Runner   // for Wake
	archiver             background.Archiver
}

// Archive implements [command.Background].
func (t tasks) Archive(tx *store.Tx, key session.Key) error { return t.archiver.Add(tx, key) }

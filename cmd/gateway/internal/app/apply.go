package app

import (
	"time"

	"gateway/agent"
	"gateway/agent/activity"
	"gateway/agent/heartbeat"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/schedule"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/channels/discord"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// agentOptions returns the options of the agent for a configuration. Only Settings can change
// before a restart.
func (g *Gateway) agentOptions(cfg *config.Config) *agent.Options {
	return &agent.Options{
		Settings: g.agentSettings(cfg), Name: cfg.Gateway.Name, Version: BuildVersion(),
		WorkspacePath: cfg.Gateway.Workspace, MemoryPath: MemoryFolder(cfg),
		SharedPath: SharedFolder(cfg),
		Location:   cfg.Gateway.Location, Slots: cfg.Agent.Slots,
		FormatHints: byAccount(cfg, func(c config.Channel) string { return formatHints[c.Type] }),
		Commands: append(accessCommands(g.gate, leaver{g.gate, g.db, g.channels},
			func() bool { return HasOwner(g.settings.Load()) }), mcpCommand(g.toolset.mcp)),
		Restart: g.restart, Observer: g.ops.metrics, Usage: g.usage, Logger: g.log,
		Export: g.newSender(cfg), TrustsClock: g.sweeper.TrustsClock,
	}
}

// agentSettings returns the options that can change while the gateway runs.
func (g *Gateway) agentSettings(cfg *config.Config) pool.Settings {
	model := cfg.Models[cfg.Agent.Model]
	_, notesID := newNotes(cfg, g.log)
	return pool.Settings{
		Settings: turn.Settings{
			ModelName: modelName(cfg, cfg.Agent.Model), ModelID: cfg.Agent.Model,
			ContextWindow: model.ContextWindow, MaxOutput: model.MaxOutput, NoImages: !model.Images,
			Models: map[bus.OriginKind]*turn.Choice{
				bus.Heartbeat: g.modelFor(cfg, cfg.Heartbeat.Model),
				bus.Task:      g.modelFor(cfg, cfg.Agent.TaskModel),
			},
			MaxRounds: cfg.Agent.MaxRounds, MaxTaskRounds: cfg.Agent.TaskRounds,
			Timeout: cfg.Agent.TurnTimeout, SpeechCost: cfg.Transcription.PriceMinute / 60,
			Voice: cfg.Media.Speech.Answers, Activity: activity.Mode(cfg.Agent.Activity),
			Rules: newRules(cfg), Approver: bus.Role(cfg.Approvals.Approver),
			ApprovalTime: cfg.Approvals.Timeout, Places: g.places(cfg),
		},
		NotesID: notesID, Choices: g.choices(cfg),
		QueueMode: pool.Mode(cfg.Agent.QueueMode), Waiting: cfg.Agent.Waiting,
		Names:     names(cfg),
		Debounce:  byAccount(cfg, func(c config.Channel) time.Duration { return c.Debounce }),
		ResetAt:   resetTimes(cfg),
		IdleAfter: cfg.Memory.Idle, DreamEvery: cfg.Memory.DreamEvery,
		History: cfg.Retention.History,
	}
}

// names returns the names by which people call the agent.
func names(cfg *config.Config) []string {
	// A transcription may spell a name in several ways, which the operator can list.
	if len(cfg.Transcription.Names) > 0 {
		return cfg.Transcription.Names
	}
	list := []string{cfg.Gateway.Name}
	for _, p := range config.Sorted(cfg.Personas) {
		if p.Name != "" {
			list = append(list, p.Name)
		}
	}
	return list
}

// resetTimes returns, by account, the time of day at which conversations begin anew, as the time
// since midnight. It leaves out accounts without one.
func resetTimes(cfg *config.Config) map[string]time.Duration {
	times := make(map[string]time.Duration)
	for name, c := range cfg.Channels {
		// The empty string, for never, can't be parsed.
		if at, err := time.Parse(config.TimeOfDay, c.SessionReset); err == nil {
			times[name] = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
		}
	}
	return times
}

// sessionScopes returns which messages of each account are one conversation.
func sessionScopes(cfg *config.Config) map[string]bus.SessionScope {
	return byAccount(cfg, func(c config.Channel) bus.SessionScope {
		return bus.SessionScope(c.Session)
	})
}

// byAccount returns the result of get for each account.
func byAccount[V any](cfg *config.Config, get func(config.Channel) V) map[string]V {
	m := make(map[string]V, len(cfg.Channels))
	for name, c := range cfg.Channels {
		m[name] = get(c)
	}
	return m
}

// modelFor returns the model with a name, or nil for "". With nil the turn uses the model of its
// conversation, which may be another one than the default model.
func (g *Gateway) modelFor(cfg *config.Config, name string) *turn.Choice {
	if name == "" {
		return nil
	}
	c := g.choice(cfg, name)
	return &c
}

// choice returns the model with a name and its properties. Each call makes a new model, which does
// not know which keys of an earlier one have failed.
func (g *Gateway) choice(cfg *config.Config, name string) turn.Choice {
	m := cfg.Models[name]
	return turn.Choice{Model: newModel(cfg, name, g.log), Name: modelName(cfg, name), ID: name,
		ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput, NoImages: !m.Images}
}

// demoModel is the name of the demo model, which every configuration contains.
const demoModel = "demo"

// choices returns the models that a conversation can choose. It contains the demo model only if
// that is the default model.
func (g *Gateway) choices(cfg *config.Config) (list []turn.Choice) {
	for name := range config.Sorted(cfg.Models) {
		if name != demoModel || cfg.Agent.Model == demoModel {
			list = append(list, g.choice(cfg, name))
		}
	}
	return list
}

// apply applies the settings of cfg that can change while the gateway runs. Only the reloader calls
// it, so calls don't overlap. Turns that run keep their settings. priced are the models that may be
// in use: those of cfg and of earlier settings.
func (g *Gateway) apply(cfg *config.Config, priced map[string]config.Model) {
	// The settings come before everything that reads them, such as [Gateway.withholds].
	g.settings.Store(cfg)
	g.ops.withheld.update() // first, so that no new secret is sent
	g.usage.Configure(budgetOptions(cfg, priced))
	g.dispatcher.Inbox.SetScopes(sessionScopes(cfg))
	notes, _ := newNotes(cfg, g.log)
	g.dispatcher.Configure(newModel(cfg, cfg.Agent.Model, g.log), notes, g.agentSettings(cfg))
	for name, c := range cfg.Channels {
		if !c.Enabled {
			continue
		}
		g.gate.SetPolicy(name, newPolicy(cfg, name))
		if d, ok := g.channels[name].(*discord.Channel); ok {
			d.SetGroups(c.Groups)
		}
	}
}

// JobStore returns the store of jobs.
func JobStore(cfg *config.Config) schedule.Store {
	return schedule.Store{MaxJobs: cfg.Schedule.MaxJobs, MinEvery: cfg.Schedule.MinEvery,
		Location: cfg.Gateway.Location}
}

// newScheduler returns the scheduler, which starts due jobs.
func (g *Gateway) newScheduler(cfg *config.Config, inbox *bus.Inbox) *schedule.Scheduler {
	finder := &heartbeat.Finder{DB: g.db, Documents: g.knowledge.documents}
	return schedule.New(g.db, inbox, &schedule.Options{
		Store: JobStore(cfg), Logger: g.log, Admit: g.admitJob, Halted: policy.IsHalted,
		Heartbeat:  compressed(cfg.Heartbeat.Every),
		Heartbeats: finder.List, Open: finder.IsOpen,
	})
}

// admitJob returns the role with which a job runs: the role that its maker had when making it, or
// their present role if that is lower. why says why it does not run, or is "".
func (g *Gateway) admitJob(q store.Queryer, j *schedule.Job) (_ bus.Role, why string, err error) {
	// The gate decides about jobs as about a message that the maker would write now.
	m := bus.InboundMessage{From: j.To, Sender: j.Sender, Group: j.Group, Text: j.Text}
	ok, err := g.gate.MayWrite(q, &m)
	if m.Role.AtLeast(j.Role) {
		m.Role = j.Role
	}
	if g.channels[j.To.Account] == nil {
		return m.Role, schedule.WhyUnserved, err
	}
	if ok || err != nil {
		return m.Role, "", err
	}
	left, err := g.gate.HasLeft(q, j.To)
	if left {
		return m.Role, schedule.WhyLeft, err
	}
	return m.Role, schedule.WhyRefused, err
}

package turn

import (
	"fmt"
	"slices"

	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/speech"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store"
)

// Sub-agents work in sessions of their own. Both the task and its outcome are messages in the
// inbox, as durable as messages of people.

// notForTasks are the tools that sub-agents and heartbeats don't have, because they neither talk to
// people nor have sub-agents.
var notForTasks = map[string]bool{"spawn": true, "subagents": true, "message": true, "ask": true,
	"generate_image": true, "edit_image": true}

// toolsFor returns the tools of a turn for people with the given role.
func (t *turn) toolsFor(role bus.Role) *tool.Registry {
	// A heartbeat, too, speaks only through its answer.
	k := t.trigger.Origin.Kind
	silent := k == bus.Task || k == bus.Heartbeat
	if !silent && len(t.settings.Here.Layers) == 0 {
		return t.env.Tools.For(role)
	}
	return t.env.Tools.Select(func(x tool.Tool) bool {
		return !(silent && notForTasks[x.Name]) && (x.MinRole == "" || role.AtLeast(x.MinRole)) &&
			!t.settings.hidesTool(x)
	})
}

func (t *turn) maxRounds() int {
	if t.isTask() {
		return t.settings.MaxTaskRounds
	}
	return t.settings.MaxRounds
}

// report puts the outcome of a sub-agent's task into the inbox of the parent session.
func (t *turn) report(tx *store.Tx, text string) error {
	task := t.trigger
	_, err := t.env.Inbox.Put(tx, bus.InboundMessage{
		ID:   bus.OutcomeID(task.Origin.Parent, fmt.Sprintf("%s:%d", t.Session, t.ID)),
		From: task.From, Sender: task.Sender, Person: task.Person, Role: task.Role,
		Group: task.Group, ChatTitle: task.ChatTitle,
		Addressed: true, Text: text, Time: t.env.Now(),
		Origin: bus.Origin{Kind: bus.Outcome, Label: task.Origin.Label,
			Session: task.Origin.Parent, Parent: task.Origin.Parent, Call: task.Origin.Call,
			Background: task.Origin.Background, Budget: task.Origin.Budget, Rights: task.Origin.Rights,
			Policies: task.Origin.Policies},
	}, t.env.Now())
	return err
}

// deliver sends the answer to people. It sends a sub-agent's answer to the parent session.
func (t *turn) deliver(tx *store.Tx, out bus.OutboundMessage) error {
	if t.isTask() {
		return t.report(tx, out.Text)
	}
	if out.Text == "" {
		return nil
	}
	return t.env.Outbox.Put(tx, out, t.env.Now())
}

// isVoice reports whether m was spoken.
func isVoice(m *bus.InboundMessage) bool {
	return slices.ContainsFunc(m.Attachments, func(a bus.Attachment) bool {
		return a.Kind == bus.Voice
	})
}

// addSpeech adds a background task that speaks the answer out, if the conversation wants spoken
// answers. It reports whether it added one. Answers of proactive turns are only written.
func (t *costs) addSpeech(tx *store.Tx, out bus.OutboundMessage) (bool, error) {
	when := t.settings.Voice
	if t.env.Speaker == nil || !t.joined || t.isTask() ||
		when != speech.Always && (when != speech.Auto || !t.voiced) {
		return false, nil
	}
	return t.env.Speaker.Add(tx, background.Work{Scope: t.Scope, Session: t.Session.String(),
		Ref: t.ID}, out, t.spender())
}

// ownMessage returns what the model sees of a message that the agent wrote to itself.
func (t *reader) ownMessage(m bus.InboundMessage) llm.Message {
	when := "[" + m.Time.In(t.zone()).Format(prompt.TimeLayout) + "] "
	if m.Origin.Standalone() {
		seen := llm.Message{Role: llm.User, Text: t.proactiveMessage(m, when),
			Foreign: m.Origin.Foreign, ForeignRole: string(m.Origin.Rights)}
		if m.Origin.Kind == bus.Hook {
			seen.Foreign = prompt.FromHook
		}
		return seen
	}
	if m.Origin.Kind == bus.Task {
		return llm.Message{Role: llm.User, Text: when + "[your task] " + m.Text,
			Foreign: m.Origin.Foreign, ForeignRole: string(m.Origin.Rights)}
	}
	label := fmt.Sprintf("the sub-agent %q", prompt.Name(m.Origin.Label, "without a name"))
	return llm.Message{Role: llm.User, Foreign: prompt.FromTask, ForeignRole: string(m.Origin.Rights),
		Text: when + "[outcome of " + label +
			"; tell the user what matters of it, as your own work]\n" + prompt.Escape(m.Text) +
			"\n[end of outcome of " + label + "]"}
}

package agent

import (
	"context"
	"fmt"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// Sub-agents work in sessions of their own. Their task is a message in the inbox, and so is its
// outcome, for the session that has given it: both are as durable as what people write.

// maxTasks is how many sub-agents of one session work at once; the others wait.
const maxTasks = 4

// notForTasks are the tools that sub-agents don't have, and neither have heartbeats: they talk to
// nobody and have no sub-agents.
var notForTasks = map[string]bool{"spawn": true, "subagents": true, "message": true, "ask": true}

// toolsFor returns the tools of a turn.
func (t *turn) toolsFor(role bus.Role) *tool.Registry {
	// A heartbeat speaks by its answer only, too.
	if k := t.trigger.Origin.Kind; k != bus.Task && k != bus.Heartbeat {
		return t.d.Tools.For(role)
	}
	return t.d.Tools.Select(func(x tool.Tool) bool {
		return !notForTasks[x.Name] && (x.Least == "" || role.AtLeast(x.Least))
	})
}

func (t *turn) maxRounds() int {
	if t.isTask() {
		return t.config().MaxTaskRounds
	}
	return t.config().MaxRounds
}

// holdBack reports whether the task r has to wait, because enough sub-agents of its session work.
// d.mu is held.
func (d *Dispatcher) holdBack(key session.Key, r bus.Received) bool {
	parent := key.Parent()
	if parent == "" || d.tasks[parent] < maxTasks {
		return false
	}
	d.queued[parent] = append(d.queued[parent], r)
	return true
}

// taskEnded counts that a sub-agent works no more, and lets the next one begin. d.mu is held.
func (d *Dispatcher) taskEnded(work context.Context, key session.Key) {
	parent := key.Parent()
	if parent == "" {
		return
	}
	if d.tasks[parent]--; d.tasks[parent] <= 0 {
		delete(d.tasks, parent)
	}
	queue := d.queued[parent]
	if len(queue) == 0 || d.isDraining() {
		return
	}
	if d.queued[parent] = queue[1:]; len(queue) == 1 {
		delete(d.queued, parent)
	}
	next := queue[0]
	d.start(work, session.Of(next.Message), &worker{waiting: []bus.Received{next}})
}

// report puts the outcome of a sub-agent's task into the inbox of the session that has given it.
func (t *turn) report(tx *store.Tx, text string) error {
	task := t.trigger
	_, err := t.d.Inbox.Put(tx, bus.InboundMessage{
		ID:   bus.OutcomeID(task.Origin.Parent, fmt.Sprintf("%s:%d", t.Session, t.ID)),
		From: task.From, Sender: task.Sender, Person: task.Person, Role: task.Role,
		Group: task.Group, ChatTitle: task.ChatTitle,
		Addressed: true, Text: text, Time: t.d.opts.Now(),
		Origin: bus.Origin{Kind: bus.Outcome, Label: task.Origin.Label,
			Session: task.Origin.Parent, Parent: task.Origin.Parent, Call: task.Origin.Call,
			Background: task.Origin.Background, Budget: task.Origin.Budget},
	}, t.d.opts.Now())
	return err
}

// deliver writes the answer out: to people, or, if it is that of a sub-agent, to who has given the
// task.
func (t *turn) deliver(tx *store.Tx, out bus.OutboundMessage) error {
	if t.isTask() {
		return t.report(tx, out.Text)
	}
	if out.Text = t.audible(out.Text); out.Text == "" {
		return nil
	}
	return t.d.Outbox.Put(tx, out, t.d.opts.Now())
}

// ownMessage returns what the model sees of a message that no person wrote.
func (t *turn) ownMessage(m bus.InboundMessage) llm.Message {
	when := "[" + m.Time.In(t.zone()).Format(prompt.TimeLayout) + "] "
	if m.Origin.Standalone() {
		seen := llm.Message{Role: llm.User, Text: t.proactiveMessage(m, when)}
		if m.Origin.Kind == bus.Hook {
			seen.Foreign = prompt.FromHook
		}
		return seen
	}
	if m.Origin.Kind == bus.Task {
		return llm.Message{Role: llm.User, Text: when + "[your task] " + m.Text,
			Foreign: m.Origin.Foreign}
	}
	label := fmt.Sprintf("the sub-agent %q", prompt.Name(m.Origin.Label, "without a name"))
	return llm.Message{Role: llm.User, Foreign: prompt.FromTask, Text: when + "[outcome of " + label +
		"; tell the user what matters of it]\n" + prompt.Escape(m.Text) +
		"\n[end of outcome of " + label + "]"}
}

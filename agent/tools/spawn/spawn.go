// Package spawn implements the tools "spawn" and "subagents", with which the agent delegates tasks
// to sub-agents.
//
// A sub-agent's task is a message in the inbox for a separate session. The task and its outcome are
// therefore as durable as people's messages. The package has no database tables.
package spawn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// Options are the dependencies of the tools. All are required.
type Options struct {
	DB    *store.DB
	Inbox *bus.Inbox
	Now   func() time.Time

	// Stop stops one sub-agent by its session key. It returns false if the sub-agent is not
	// running.
	Stop func(ctx context.Context, task session.Key) (bool, error)
}

// maxOpen is how many unfinished sub-agents a session may have: those that work and those that
// wait.
const maxOpen = 32

const (
	spawnDescription = "Gives a long or independent task to a sub-agent with your tools. It " +
		"knows only what you write, and can't talk to the user. Name a folder of its own for " +
		"files, and have it look first at what is there. Its outcome comes as a message " +
		"later, with wait as the result."
	listDescription = "Lists the sub-agents of this conversation, or stops one."
)

// tools has the functions of the tools. It keeps no state between calls: the inbox knows the
// sub-agents.
type tools struct{ Options }

// Tools returns the tools.
func Tools(o Options) []tool.Tool {
	t := tools{o}
	list := []tool.Tool{
		// The task is stored in the transaction of the call's result: both exist or neither.
		tool.New("spawn", spawnDescription, tool.Idempotent, t.spawn),
		tool.New("subagents", listDescription, tool.Idempotent, t.subagents),
	}
	list[0].Rare = `gives a long or independent task to a sub-agent, {"task":"all it needs to know"}`
	list[1].Rare = `lists sub-agents, {}, or stops one, {"stop":"id"}`
	for i := range list {
		list[i].MinRole = bus.User
	}
	return list
}

// spawnArguments are the arguments of spawn. With Wait the turn is suspended until there is an
// outcome.
type spawnArguments struct {
	Task  string `json:"task" jsonschema:"all it needs to know, and what to report"`
	Label string `json:"label,omitempty"`
	Wait  bool   `json:"wait,omitempty"`
}

// Limits of the arguments.
const (
	maxTask  = 32 << 10 // bytes
	maxLabel = 60       // characters
)

// waitFor is how long a turn waits for an outcome. The sub-agent's own limits are shorter.
const waitFor = 24 * time.Hour

// spawn implements the tool spawn. Without Wait its result is only that the task exists, and the
// outcome comes as a message of its own.
func (t tools) spawn(
	ctx context.Context, c tool.Call, a spawnArguments,
) (tool.Result, error) {
	task := strings.TrimSpace(a.Task)
	switch {
	case task == "":
		return tool.Result{}, errors.New("the task is empty")
	case len(task) > maxTask:
		return tool.Result{}, fmt.Errorf("the task is longer than %d bytes; put what it needs "+
			"into a file and name that", maxTask)
	}
	if open, err := t.open(t.DB.Read(ctx), c.Session); err != nil {
		return tool.Result{}, err
	} else if len(open) >= maxOpen {
		return tool.Result{}, fmt.Errorf("%d sub-agents are open, which is the limit; wait for "+
			"their outcomes", len(open))
	}
	id := taskID(c)
	label := cmp.Or(plaintext.OneLine(a.Label), plaintext.OneLine(a.Task)) // for people
	m := t.message(c, id, task, plaintext.Shorten(label, maxLabel))
	// With the ID of the call the outcome becomes its result instead of a message.
	if a.Wait {
		m.Origin.Call = c.ID
	}
	r := tool.Result{Commit: func(tx *store.Tx) (string, error) {
		// The ID of the message follows from the call, so that a repeated call can't give the task
		// twice.
		ok, err := t.Inbox.Put(tx, m, t.Now())
		if err == nil && !ok {
			err = &tool.RefusedError{Reason: "this task already exists"}
		}
		return fmt.Sprintf("The sub-agent %q (id %s) works on it. Its outcome will come as a message; "+
			"don't wait for it by asking again.", m.Origin.Label, id), err
	}}
	if a.Wait {
		r.Wait = &tool.Wait{Outcome: true, For: waitFor}
	}
	return r, nil
}

// taskID returns the ID of the task that c creates. It replaces those characters of the model's
// call ID that have a meaning in session keys.
func taskID(c tool.Call) string {
	return fmt.Sprintf("%d-%s", c.Turn, strings.Map(func(r rune) rune {
		if r == '#' || r == '/' || !unicode.IsPrint(r) || unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, c.ID))
}

// message returns the task as a message to the sub-agent's session. The sub-agent gets the rights,
// the limits and the foreign text of the turn, so that a task is no way around them.
func (t tools) message(c tool.Call, id, task, label string) bus.InboundMessage {
	return bus.InboundMessage{
		ID: bus.TaskID(c.Session, id), From: c.Address, Sender: c.Sender, Person: c.Person,
		Role: c.Role, Group: c.Group, ChatTitle: c.Title, Addressed: true, Text: task, Time: t.Now(),
		Origin: bus.Origin{Kind: bus.Task, Label: label, Parent: c.Session,
			Session:    c.Session.OfTask(id),
			Background: c.Proactive, Budget: c.Budget, Foreign: c.Foreign, Rights: c.Overheard,
			Policies: c.Limits.Policies},
	}
}

type listArguments struct {
	Stop string `json:"stop,omitempty" jsonschema:"id of the one to stop"`
}

func (t tools) subagents(
	ctx context.Context, c tool.Call, a listArguments,
) (tool.Result, error) {
	open, err := t.open(t.DB.Read(ctx), c.Session)
	if err != nil {
		return tool.Result{}, err
	}
	if a.Stop != "" {
		return t.stop(ctx, c, a.Stop, open)
	}
	if len(open) == 0 {
		return tool.Result{Text: "No sub-agents work or wait."}, nil
	}
	var b strings.Builder
	for _, s := range open {
		fmt.Fprintf(&b, "- %s %q: %s, since %s\n", s.id, s.label, s.state,
			t.Now().Sub(s.since).Truncate(time.Second))
	}
	return tool.Result{Text: b.String()}, nil
}

// stop ends one sub-agent of the session. The key of its session is made from the id, so the model
// can't stop those of other conversations.
func (t tools) stop(
	ctx context.Context, c tool.Call, id string, open []sub,
) (tool.Result, error) {
	ok, err := t.Stop(ctx, c.Session.OfTask(id))
	if err != nil {
		return tool.Result{}, err
	}
	if !ok {
		return tool.Result{}, fmt.Errorf("no sub-agent with the id %q works; %d do", id, len(open))
	}
	return tool.Result{Text: "Stopped. No outcome of it will come."}, nil
}

// A sub is an unfinished sub-agent.
type sub struct {
	id, label, state string
	since            time.Time
}

// open returns the unfinished sub-agents of a session, the oldest first.
func (t tools) open(q store.Queryer, parent session.Key) ([]sub, error) {
	tasks, err := t.Inbox.Tasks(q, parent)
	var list []sub
	for _, r := range tasks {
		s := sub{id: session.Of(r.Message).Task, label: r.Message.Origin.Label, state: "works",
			since: r.At}
		if r.Waiting {
			s.state = "waits for its turn"
		}
		list = append(list, s)
	}
	return list, err
}

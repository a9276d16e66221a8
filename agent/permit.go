package agent

import (
	"encoding/json"
	"fmt"

	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
)

// asks is what must be asked before a turn goes on.
type asks struct {
	question question.Question
	result   tool.Result // of the call that waits; its Commit happens when the turn begins to wait
}

// A verdict says what becomes of a call, as far as can be seen before it is made.
type verdict policy.Decision

// now reports whether the call can be decided on without asking anybody.
func (v verdict) now() bool { return policy.Decision(v) != policy.Ask }

// verdict returns what becomes of c. One that can't be made needs no approval.
func (t *turn) verdict(c llm.ToolCall) verdict {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return verdict(policy.Allow)
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	if err != nil {
		return verdict(policy.Allow)
	}
	return verdict(t.ruling(found, t.toolCall(c.ID, args)))
}

// ruling returns what becomes of a call: what the rules say, but for one that others than the
// people of the turn may have wished for.
func (t *turn) ruling(found tool.Tool, c tool.Call) policy.Decision {
	ruling := t.rule(t.role, found, c)
	if ruling == policy.Allow && t.suspicion(found, c) != "" {
		return policy.Ask
	}
	return ruling
}

// rule returns what the tool itself says of a call for a role, as the rules change that. A call
// that gives a command input is also judged like the start of that command.
func (t *turn) rule(role bus.Role, found tool.Tool, c tool.Call) policy.Decision {
	rules, argv := t.settings.Rules, argvOf(found, c)
	without := policy.Allow
	if found.Asks != nil && found.Asks(c) {
		without = policy.Ask
	}
	ruling := rules.Decide(role, found.Name, argv, without)
	if found.Like != "" && argv != nil {
		ruling = policy.Stricter(ruling, rules.Decide(role, found.Like, argv, without))
	}
	return ruling
}

// toolCall returns what a tool is told of a call.
func (t *turn) toolCall(id string, args json.RawMessage) tool.Call {
	return tool.Call{
		ID: id, Args: args, Address: t.Address, Session: string(t.Session),
		Sender: t.sender, Person: t.person, Role: t.role, Turn: t.ID, Budget: t.budgetTurn(),
		Group: t.group, Title: t.chatTitle, Scope: t.Scope,
		Proactive: t.proactive(), Zone: t.zone(), Foreign: t.foreign(),
	}
}

func argvOf(t tool.Tool, c tool.Call) []string {
	if t.Argv == nil {
		return nil
	}
	return t.Argv(c)
}

// permit decides whether a call may happen. It returns an error for the model if it may not, and
// what to ask if somebody must approve.
func (t *turn) permit(found tool.Tool, c tool.Call) (*asks, error) {
	switch t.ruling(found, c) {
	case policy.Allow:
		return nil, nil
	case policy.Ask:
		asked := approvable(found, c)
		q := question.Question{
			Kind: question.Approve, Least: t.settings.Approver,
			Subject: asked.Subject(),
			Text:    asked.Prompt(),
			Expires: t.env.Now().Add(t.settings.ApprovalTime),
		}
		if t.rule(t.role, found, c) == policy.Allow { // who speaks may have it done: did they wish it?
			q.Least, q.Text = t.role, q.Text+"\n\n"+t.suspicion(found, c)
		}
		return &asks{question: q}, nil
	}
	return nil, fmt.Errorf("the rules of this gateway do not let somebody of the role %q do this "+
		"with %s; don't try it in another way, and tell the user", t.role, found.Name)
}

// approves reports whether the granted question q is about the call c, as it stands now, and the
// rules have not come to deny that.
func (t *turn) approves(q *question.Question, c llm.ToolCall) bool {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return false
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	return err == nil && t.verdict(c) != verdict(policy.Deny) &&
		q.Subject == approvable(found, t.toolCall(c.ID, args)).Subject()
}

// approvable returns what somebody approves of a call.
func approvable(found tool.Tool, c tool.Call) policy.Call {
	asked := policy.Call{Tool: found.Name, Argv: argvOf(found, c), Args: c.Args}
	if found.Operands != nil {
		for _, o := range found.Operands(c) {
			asked.Files = append(asked.Files, policy.File(o))
		}
	}
	return asked
}

// waits returns what the turn waits for after a tool has said so.
func (t *turn) waits(r tool.Result) *asks {
	w := r.Wait
	q := question.Question{Kind: question.Ask, Sender: t.sender.ID, Text: w.Text, Options: w.Options,
		Expires: t.env.Now().Add(w.For)}
	if w.Outcome {
		q.Kind = question.Await
	}
	return &asks{question: q, result: r}
}

// askFor returns the message that asks q. alone says that who reads it is the only one who can
// decide, and knows that.
func askFor(q *question.Question, alone bool) bus.OutboundMessage {
	out := bus.OutboundMessage{To: q.Address, Text: q.Text}
	if q.Kind == question.Approve {
		who := ""
		if !alone {
			who = fmt.Sprintf(" Only who is %s or more can say so.", article(q.Least))
		}
		out.Text += fmt.Sprintf("\n\nShall I?%s (code `%s`)", who, q.Code)
		out.Buttons = []bus.Button{
			{Label: "Approve", Text: "/approve " + q.Code}, {Label: "Deny", Text: "/deny " + q.Code},
		}
		return out
	}
	for i, option := range q.Options {
		out.Buttons = append(out.Buttons, bus.Button{Label: option, Number: i + 1,
			Text: fmt.Sprintf("/answer %s %d", q.Code, i+1)})
	}
	return out
}

package turn

import (
	"encoding/json"
	"fmt"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
)

// permissions decides which tool calls are allowed.
type permissions struct {
	*turn
	costs *costs
	conv  *conversation
}

// An approvalRequest is a question that suspends the turn until somebody decides it.
type approvalRequest struct {
	question question.Question
	result   tool.Result // of the waiting call; Commit runs when the turn is suspended
}

// predict returns the decision about c, as far as it is known before the call. A call that can't be
// made needs no approval.
func (t *permissions) predict(c llm.ToolCall) policy.Decision {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return policy.Allow
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	if err != nil {
		return policy.Allow
	}
	return t.ruling(found, t.toolCall(c.ID, args))
}

// ruling returns the decision about a call. If the rules allow the call but foreign text may have
// caused it, it requires approval.
func (t *permissions) ruling(found tool.Tool, c tool.Call) policy.Decision {
	ruling := t.rule(t.role, found, c)
	if ruling == policy.Allow && t.approvalReason(found, c) != "" {
		return policy.Ask
	}
	return ruling
}

// rule returns the decision of the rules about a call for a role. If no rule applies, the tool
// itself decides. A call that sends input to a command is also judged like the start of that
// command.
func (t *permissions) rule(role bus.Role, found tool.Tool, c tool.Call) policy.Decision {
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

// toolCall returns the call as the tool gets it.
func (t *permissions) toolCall(id string, args json.RawMessage) tool.Call {
	return tool.Call{
		ID: id, Args: args, Address: t.Address, Session: t.Session,
		Sender: t.sender, Person: t.person, Role: t.role, Turn: t.ID, Budget: t.budgetTurn(),
		Group: t.group, Title: t.chatTitle, Scope: t.Scope, Zone: t.zone(), Chats: t.chats,
		Proactive: t.proactive(), Foreign: t.conv.foreign(), Overheard: t.conv.overheard(),
		Pay:    t.costs.payer(),
		Limits: tool.Limits{Folders: t.loaded.withheld, Policies: t.settings.Here.Policies},
	}
}

func argvOf(t tool.Tool, c tool.Call) []string {
	if t.Argv == nil {
		return nil
	}
	return t.Argv(c)
}

// permit decides whether a call is allowed. It returns an error for the model if it is not, and a
// question if somebody must approve it.
func (t *permissions) permit(found tool.Tool, c tool.Call) (*approvalRequest, error) {
	switch t.ruling(found, c) {
	case policy.Allow:
		return nil, nil
	case policy.Ask:
		asked := Approvable(found, c)
		q := question.Question{
			Kind: question.Approve, MinRole: t.settings.Approver,
			Subject: asked.Subject(),
			Text:    asked.Prompt(),
			Expires: t.env.Now().Add(t.settings.ApprovalTime),
		}
		if t.rule(t.role, found, c) == policy.Allow { // allowed for the role, but did the person want it?
			q.MinRole, q.Text = t.role, q.Text+"\n\n"+t.approvalReason(found, c)
		}
		return &approvalRequest{question: q}, nil
	}
	return nil, fmt.Errorf("the rules of this gateway do not let somebody of the role %q do this "+
		"with %s; don't try it in another way, and tell the user", t.role, found.Name)
}

// approves reports whether the granted question q covers the call c as it is now, and the rules
// have not denied c since.
func (t *permissions) approves(q *question.Question, c llm.ToolCall) bool {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return false
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	return err == nil && t.predict(c) != policy.Deny &&
		q.Subject == Approvable(found, t.toolCall(c.ID, args)).Subject()
}

// Approvable returns the part of a call that a person approves.
func Approvable(found tool.Tool, c tool.Call) policy.Call {
	asked := policy.Call{Tool: found.Name, Argv: argvOf(found, c), Args: c.Args}
	if found.Operands != nil {
		for _, o := range found.Operands(c) {
			asked.Files = append(asked.Files, policy.File(o))
		}
	}
	return asked
}

// waits returns the question that a tool has asked instead of returning a result, or nil.
func (t *permissions) waits(r tool.Result) *approvalRequest {
	w := r.Wait
	q := question.Question{Kind: question.Ask, Sender: answerer(t.turn), Text: w.Text,
		Options: w.Options, Continues: w.State, Running: w.Cancel != nil,
		Expires: t.env.Now().Add(w.For)}
	if w.Outcome {
		q.Kind = question.Await
	}
	return &approvalRequest{question: q, result: r}
}

// answerer returns the platform's id of the person who may answer the questions of t. It is "" if a
// program has posted to a hook: then users of the chat may answer.
func answerer(t *turn) string {
	if t.trigger.Origin.Kind == bus.Hook && !t.joined {
		return ""
	}
	return t.sender.ID
}

// askInChat returns the message that asks q in the chat of t. Messages from people there go to
// their conversation, so only a command answers a question of a job, a hook or a sub-agent. In a
// group a message reaches the conversation only if it is for the agent, as a reply is.
func askInChat(t *turn, q *question.Question) bus.OutboundMessage {
	out := askFor(q, !t.group && t.role.AtLeast(q.MinRole))
	out.ReplyTo = t.ReplyTo
	switch {
	case q.Kind != question.Ask:
	case t.Session.IsConversation() && t.group:
		out.Text += "\n\nTo answer, reply to this message."
	case !t.Session.IsConversation():
		out.Text += fmt.Sprintf("\n\nTo answer, send `/answer %s` and your answer.", q.Code)
		for i := range out.Buttons {
			out.Buttons[i].Number = 0
		}
	}
	return out
}

// askFor returns the message that asks q. alone means that the only reader of the chat is allowed
// to decide and knows it.
func askFor(q *question.Question, alone bool) bus.OutboundMessage {
	out := bus.OutboundMessage{To: q.Address, Text: q.Text}
	if q.Kind == question.Approve {
		who := ""
		if !alone {
			who = fmt.Sprintf(" It takes the approval of %s.", article(q.MinRole))
		}
		out.Text += fmt.Sprintf("\n\nShall I?%s (code `%s`)", who, q.Code)
		out.Buttons = []bus.Button{
			{Label: "Approve", Text: "/approve " + q.Code}, {Label: "Deny", Text: "/deny " + q.Code},
		}
		return out
	}
	for i, option := range q.Options {
		b := bus.Button{Label: option, Text: fmt.Sprintf("/answer %s %d", q.Code, i+1)}
		if q.Numbered() {
			b.Number = i + 1
		}
		out.Buttons = append(out.Buttons, b)
	}
	return out
}

// article returns r with its article.
func article(r bus.Role) string {
	if r == bus.Admin || r == bus.Owner {
		return "an " + string(r)
	}
	return "a " + string(r)
}

// approvalReason returns why a call needs approval although the rules allow it, or "".
func (t *permissions) approvalReason(found tool.Tool, c tool.Call) string {
	o := t.conv.provenance.Load()
	if o == nil {
		return ""
	}
	what := ""
	switch {
	case found.Lasts != nil && found.Lasts(c):
		what = "What it writes lasts"
	case o.least != "" && !o.least.AtLeast(t.role) && !t.mayUse(o.least, found, c):
		what = fmt.Sprintf("Somebody who is %s only may not have me do it", article(o.least))
	default:
		return ""
	}
	quoted := make([]string, len(o.sources))
	for i, s := range o.sources {
		quoted[i] = strings.ReplaceAll(prompt.SourceName(s), "`", "'")
	}
	return fmt.Sprintf("%s, and this turn has read `%s`, which may have told me to.", what,
		strings.Join(quoted, "`, `"))
}

// mayUse reports whether a person with role r could make the call without approval.
func (t *permissions) mayUse(r bus.Role, found tool.Tool, c tool.Call) bool {
	c.Role = r
	return r.AtLeast(found.MinRole) && t.rule(r, found, c) == policy.Allow
}

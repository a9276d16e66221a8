package turn

import (
	"context"
	"errors"
	"slices"

	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store"
	"gateway/store/fault"
)

// errSuspended reports that the turn is suspended.
var errSuspended = errors.New("the turn is suspended")

// suspendFor stores the question that the call c waits for, and reports errSuspended. If the
// question can't be asked, it writes a result for c instead.
func (t *toolRound) suspendFor(ctx context.Context, c llm.ToolCall, a *approvalRequest) error {
	q := &a.question
	q.Session, q.Turn, q.Call, q.Address = t.Session.String(), t.ID, c.ID, t.Address
	if q.Kind == question.Approve {
		q.Sender = answerer(t.turn)
	}
	var refusal *tool.RefusedError
	err := t.costs.tx(ctx, func(tx *store.Tx) error {
		refusal = nil
		if a.result.Commit != nil {
			_, err := a.result.Commit(tx)
			if errors.As(err, &refusal) {
				return t.conv.append(tx, &t.Turn, nil,
					[]llm.Message{prompt.ToolResult(c, ToolError(refusal, ""))})
			}
			if err != nil {
				return err
			}
		}
		if err := t.conv.append(tx, &t.Turn, nil, nil); err != nil {
			return err // the turn was stopped
		}
		var err error
		if q.After, err = t.env.Inbox.Newest(tx); err != nil {
			return err
		}
		if err := question.Put(tx, q); err != nil {
			return err
		}
		return t.putPrompts(tx, q)
	})
	if wait := a.result.Wait; wait != nil && wait.Cancel != nil && (err != nil || refusal != nil) {
		wait.Cancel() // nobody will answer
	}
	if err != nil {
		return err
	}
	t.env.Inbox.Wake() // Commit may have put messages into the inbox
	if refusal != nil {
		t.conv.recall(prompt.ToolResult(c, ToolError(refusal, "")))
		return nil
	}
	fault.Point("suspended")
	t.asked = *q
	if a.result.Wait != nil {
		t.cancelCall = a.result.Wait.Cancel
	}
	return errSuspended
}

// putPrompts asks q in the conversation. If nobody there may be able to decide, it also asks the
// owners.
func (t *toolRound) putPrompts(tx *store.Tx, q *question.Question) error {
	if q.Kind == question.Await {
		return nil
	}
	if err := t.env.Outbox.Put(tx, askInChat(t.turn, q), t.env.Now()); err != nil {
		return err
	}
	if q.Kind != question.Approve || t.role.AtLeast(q.MinRole) {
		return nil
	}
	return t.env.Calls.TellOwners(tx, q.Address, func(to bus.Address) bus.OutboundMessage {
		copied := askFor(q, true)
		copied.To = to
		copied.Text = "In `" + q.Address.String() + "`, where " +
			prompt.Name(t.sender.Name, t.sender.ID) + " (" + string(t.role) + ") writes, " + copied.Text
		return copied
	})
}

// resumeWait completes the open call that suspended the turn, and then makes the other open calls,
// which have not begun or only read. It reports false if the turn was not suspended.
func (t *toolRound) resumeWait(ctx context.Context, open []llm.ToolCall) (bool, error) {
	var q *question.Question
	var c llm.ToolCall
	for i := 0; i < len(open) && q == nil; i++ {
		var err error
		c = open[i]
		q, err = question.OfCall(t.env.DB.Read(context.WithoutCancel(ctx)), t.ID, c.ID)
		if err != nil {
			return false, err
		}
	}
	if q == nil {
		return false, nil
	}
	t.preview.woken = true
	var err error
	switch {
	case q.State == question.Open && !q.Running:
		// The process was killed before it suspended the turn in memory.
		t.asked = *q
		return true, errSuspended
	case q.Continues != nil:
		err = t.continueCall(ctx, c, q)
	case q.State == question.Granted:
		err = t.useGrant(ctx, c, q)
	case q.State == question.Used: // the process was killed during the call
		if t.conv.effect(c) == tool.Once || !t.permissions.approves(q, c) {
			err = t.conv.write(ctx, prompt.ToolResult(c, ResultUnknown))
		} else {
			err = t.runGranted(ctx, c, q)
		}
	default:
		m := prompt.ToolResult(c, t.capped(q.Answer))
		if q.Kind == question.Await {
			m.Foreign = prompt.FromTask
		}
		err = t.conv.write(ctx, m)
	}
	if err != nil || ctx.Err() != nil {
		return true, err
	}
	rest := slices.DeleteFunc(slices.Clone(open), func(o llm.ToolCall) bool { return o.ID == c.ID })
	if len(rest) > 0 && t.mailbox.HasNews() {
		err = t.conv.write(ctx, prompt.FillMissingResults(t.conv.history, ResultSkipped)...)
	} else {
		err = t.runCalls(ctx, rest)
	}
	return true, err
}

// continueCall continues the call c, whose tool waits for the answer to q. It first records that
// the call continues, so that no answer is used twice. If an earlier process ended in the middle of
// the call, the turn makes the call again, or tells the model that its outcome is unknown.
func (t *toolRound) continueCall(ctx context.Context, c llm.ToolCall, q *question.Question) error {
	defer t.heldCall.end() // unless the tool has continued it
	lost := q.State == question.Open || q.State == question.Used
	if t.permissions.predict(c) == policy.Deny {
		return t.conv.write(ctx, prompt.ToolResult(c, ResultChanged))
	}
	ok, err := useAnswer(ctx, t, q)
	lost = lost || !ok
	switch {
	case err != nil:
		return err
	case lost && t.conv.effect(c) == tool.Once:
		return t.conv.write(ctx, prompt.ToolResult(c, ResultUnknown))
	case lost:
		return t.runCalls(ctx, []llm.ToolCall{c})
	}
	fault.Point("continued")
	return t.runGranted(ctx, c, q)
}

// A heldCall ends a call that has waited for an answer in the middle. It is nil if there is none,
// or if the tool has continued it.
type heldCall func()

func (h *heldCall) end() {
	if *h != nil {
		(*h)()
		*h = nil
	}
}

// useGrant makes the call that q allows. It first records that the call begins, so that the call
// never begins twice.
func (t *toolRound) useGrant(ctx context.Context, c llm.ToolCall, q *question.Question) error {
	switch {
	case ctx.Err() != nil:
		return nil // left to the next process
	case !t.permissions.approves(q, c):
		return t.conv.write(ctx, prompt.ToolResult(c, ResultChanged))
	case !t.env.Now().Before(q.Expires):
		return t.conv.write(ctx, prompt.ToolResult(c, ResultLate))
	}
	switch ok, err := useAnswer(ctx, t, q); {
	case err != nil:
		return err
	case !ok:
		return t.conv.write(ctx, prompt.ToolResult(c, ResultUnknown))
	}
	fault.Point("granted")
	return t.runGranted(ctx, c, q)
}

// useAnswer records that a call uses the answer to q. ok is false if the answer was used already.
func useAnswer(ctx context.Context, t *toolRound, q *question.Question) (ok bool, err error) {
	err = t.costs.tx(ctx, func(tx *store.Tx) (err error) {
		if err := t.conv.append(tx, &t.Turn, nil, nil); err != nil {
			return err
		}
		ok, err = question.Use(tx, q)
		return err
	})
	return ok, err
}

// runGranted makes an approved call, or continues one.
func (t *toolRound) runGranted(ctx context.Context, c llm.ToolCall, q *question.Question) error {
	t.preview.showCalls(c)
	d, ok := t.call(ctx, c, q)
	if !ok {
		return nil
	}
	return t.conclude(ctx, c, d)
}

package turn

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/prompt"
	"gateway/session"
	"gateway/store"
)

// A bill is usage of a turn that is not written yet.
type bill struct {
	session session.Bill
	entries []budget.Entry
	holds   []*budget.Reservation
	learnt  prompt.Calibration // calibration to store in the same transaction
}

// costs counts and limits what a turn uses, and writes it with the turn's steps.
type costs struct {
	*turn
	used   llm.Usage    // by this attempt
	bill   bill         // the part that is not written yet
	erased bool         // /forget has erased the session: nobody is charged
	paid   atomic.Int64 // by tools since the last result, in millionths of a dollar
}

// MaxTasks is the maximum number of sub-agents of a session that work at once. Further tasks wait.
const MaxTasks = 4

// Each sub-agent may use one taskShare-th of the turn's limit.
const taskShare = MaxTasks

// spender returns who is charged for the turn.
func (t *costs) spender() budget.Spender {
	key := t.Session
	key.Task = "" // the session that gave the task pays
	who := budget.Spender{Session: key, Person: t.person, Turn: t.ID,
		Sender: t.Address.Account + "/" + t.sender.ID}
	if t.isTask() {
		who.Turn = t.budgetTurn()
	}
	return who
}

// limit returns the limit of the turn itself, without its sub-agents.
func (t *costs) limit() budget.Limit {
	limit := t.env.Calls.Ledger.TurnLimit()
	if t.isTask() {
		limit = limit.Share(taskShare)
	}
	return limit
}

// reserve asks the budgets to allow a model call.
func (t *costs) reserve(ctx context.Context, req llm.Request) (*budget.Reservation, error) {
	estimates := t.env.Calls.Estimates
	u := llm.Usage{Output: modelcall.ExpectedAnswer, Input: estimates.Tokens(t.settings.ModelID,
		prompt.Size(req))}
	if req.MaxOutput > 0 {
		u.Output = min(u.Output, req.MaxOutput)
	}
	ledger := t.env.Calls.Ledger
	amount := budget.Amount{Tokens: u.Input + u.Output, Cost: ledger.Price(t.settings.ModelID, u)}
	sum := budget.Amount{Tokens: t.Tokens + amount.Tokens, Cost: t.Cost + amount.Cost}
	if t.limit().Exceeded(sum) {
		return nil, fmt.Errorf("%w: the limit of the turn", budget.ErrExceeded)
	}
	return ledger.Reserve(t.env.DB.Read(context.WithoutCancel(ctx)), t.spender(), amount)
}

// payer returns a function that counts the costs of a tool call. The call may run concurrently with
// the turn.
func (t *costs) payer() func(ctx context.Context, what string, dollars float64) error {
	who, limit, used := t.spender(), t.limit(), budget.Amount{Tokens: t.Tokens, Cost: t.Cost}
	return func(ctx context.Context, what string, dollars float64) error {
		now := used
		now.Cost += float64(t.paid.Load())/millionths + dollars
		if limit.Exceeded(now) {
			return fmt.Errorf("%w: the limit of the turn", budget.ErrExceeded)
		}
		err := t.env.Calls.Charge(ctx, who, budget.Entry{Model: what, Calls: 1, Cost: dollars})
		if err == nil {
			t.paid.Add(int64(dollars * millionths))
		}
		return err
	}
}

const millionths = 1e6

// settle adds what a tool has paid to the costs of the turn, which its next step writes.
func (t *costs) settle() {
	if paid := t.paid.Swap(0); paid > 0 {
		t.Cost += float64(paid) / millionths
	}
}

// spend records the usage of a call, which the turn's next step writes.
func (t *costs) spend(hold *budget.Reservation, model string, u llm.Usage) {
	cost := t.env.Calls.Ledger.Price(model, u)
	hold.Set(budget.Amount{Tokens: u.Input + u.Output, Cost: cost})
	t.Tokens += u.Input + u.Output
	t.Cost += cost
	t.used.Add(u)
	t.bill.session.Usage.Add(u)
	t.bill.session.Cost += cost
	t.bill.entries = append(t.bill.entries, budget.Entry{Model: model, Calls: 1, Usage: u, Cost: cost})
	t.bill.holds = append(t.bill.holds, hold)
}

// release releases a hold that was not spent, even after a panic.
func (t *costs) release(hold *budget.Reservation) {
	if !slices.Contains(t.bill.holds, hold) {
		hold.Release()
	}
}

// tx runs fn in a transaction that also writes the turn's usage, and then wakes the router. The
// transaction is finished even if the process is stopping.
func (t *costs) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.commit(ctx, t.env.DB.Tx, fn)
}

// txSoon is like tx but does not wait for the disk unless fn calls [store.Tx.WaitForDisk]: see
// [store.DB.TxSoon].
func (t *costs) txSoon(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.commit(ctx, t.env.DB.TxSoon, fn)
}

func (t *costs) commit(
	ctx context.Context, do func(context.Context, func(*store.Tx) error) error,
	fn func(tx *store.Tx) error,
) error {
	err := do(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return t.account(tx)
	})
	t.mailbox.Claimed(ctx, err)
	if err == nil {
		for _, h := range t.bill.holds {
			h.Release()
		}
		t.env.Calls.Estimates.Saved(t.bill.learnt)
		t.bill = bill{}
	}
	return err
}

// account writes the turn's usage.
func (t *costs) account(tx *store.Tx) error {
	if len(t.bill.entries) == 0 {
		return nil
	}
	who := t.spender()
	if t.erased {
		who = budget.Spender{} // still counted in the sum of the day
	}
	if err := session.Spend(tx, t.Session, t.bill.session); err != nil {
		return err
	}
	for _, e := range t.bill.entries {
		if err := t.env.Calls.Count(tx, who, e); err != nil {
			return err
		}
	}
	t.bill.learnt = t.env.Calls.Estimates.Unsaved(t.bill.entries[len(t.bill.entries)-1].Model)
	return modelcall.SaveCalibration(tx, t.bill.learnt)
}

package turn

import (
	"context"
	"fmt"
	"slices"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/prompt"
	"gateway/session"
	"gateway/store"
)

// A bill is what a turn has used and not yet written.
type bill struct {
	session session.Bill
	entries []budget.Entry
	holds   []*budget.Hold
	learnt  prompt.Calibration // in the transaction that writes it
}

// costs are counted, bounded, and written with the turn's steps.
type costs struct {
	turn
	used   llm.Usage // by this attempt
	bill   bill      // what of it is not written yet
	erased bool      // by /forget: it is counted for nobody
}

// MaxTasks is how many sub-agents of one session work at once; the others wait.
const MaxTasks = 4

// taskShare is which part of a turn's limit each of its sub-agents has.
const taskShare = MaxTasks

// spender returns who pays for the turn.
func (t *costs) spender() budget.Spender {
	key := t.Session
	if parent := key.Parent(); parent != "" {
		key = parent
	}
	who := budget.Spender{Session: string(key), Person: t.person, Turn: t.ID,
		Sender: t.Address.Account + "/" + t.sender.ID}
	if t.isTask() {
		who.Turn = t.budgetTurn()
	}
	return who
}

// reserve asks the budgets for a call.
func (t *costs) reserve(ctx context.Context, req llm.Request) (*budget.Hold, error) {
	estimates := t.env.Calls.Estimates
	u := llm.Usage{Output: modelcall.ExpectedAnswer, Input: estimates.Tokens(t.settings.ModelID,
		prompt.Size(req))}
	if req.MaxOutput > 0 {
		u.Output = min(u.Output, req.MaxOutput)
	}
	ledger := t.env.Calls.Ledger
	amount := budget.Amount{Tokens: u.Input + u.Output, Cost: ledger.Price(t.settings.ModelID, u)}
	limit := ledger.TurnLimit()
	if t.isTask() {
		limit = limit.Share(taskShare)
	}
	if limit.Exceeded(budget.Amount{Tokens: t.Tokens + amount.Tokens, Cost: t.Cost + amount.Cost}) {
		return nil, fmt.Errorf("%w: the limit of the turn", budget.ErrSpent)
	}
	return ledger.Reserve(t.env.DB.Read(context.WithoutCancel(ctx)), t.spender(), amount)
}

// spend counts what a call has used. It is written with the turn's next step.
func (t *costs) spend(hold *budget.Hold, model string, u llm.Usage) {
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

// giveBack releases a hold of which nothing was spent, even after a panic.
func (t *costs) giveBack(hold *budget.Hold) {
	if !slices.Contains(t.bill.holds, hold) {
		hold.Release()
	}
}

// tx runs fn in a transaction, writes with it what the turn has used, and then wakes the router.
// What has begun to matter is finished also while the process ends.
func (t *costs) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.commit(ctx, t.env.DB.Tx, fn)
}

// txSoon is like tx but does not wait for the disk, unless fn writes what must: see
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
	t.mailbox.Claimed(err)
	if err == nil {
		for _, h := range t.bill.holds {
			h.Release()
		}
		t.env.Calls.Estimates.Saved(t.bill.learnt)
		t.bill = bill{}
	}
	return err
}

// account writes what the turn has used.
func (t *costs) account(tx *store.Tx) error {
	if len(t.bill.entries) == 0 {
		return nil
	}
	who := t.spender()
	if t.erased {
		who = budget.Spender{} // the day's sum has it all the same
	}
	if err := t.env.sessions.Spend(tx, t.Session, t.bill.session); err != nil {
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

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
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

// expectedAnswer is how many tokens an answer is expected to have when the budget is asked.
const expectedAnswer = 1024

// taskShare is which part of a turn's limit each of its sub-agents has.
const taskShare = maxTasks

// spender returns on whose account the turn works.
func (t *turn) spender() budget.Spender {
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
func (t *turn) reserve(ctx context.Context, req llm.Request) (*budget.Hold, error) {
	u := llm.Usage{Output: expectedAnswer, Input: t.d.estimates.Tokens(t.config().ModelID,
		prompt.Size(req))}
	if req.MaxOutput > 0 {
		u.Output = min(u.Output, req.MaxOutput)
	}
	ledger := t.d.opts.Usage
	amount := budget.Amount{Tokens: u.Input + u.Output, Cost: ledger.Price(t.config().ModelID, u)}
	limit := ledger.TurnLimit()
	if t.isTask() {
		limit = limit.Share(taskShare)
	}
	if limit.Exceeded(budget.Amount{Tokens: t.Tokens + amount.Tokens, Cost: t.Cost + amount.Cost}) {
		return nil, fmt.Errorf("%w: the limit of the turn", budget.ErrSpent)
	}
	return ledger.Reserve(t.d.DB.Read(context.WithoutCancel(ctx)), t.spender(), amount)
}

// spend counts what a call has used. It is written with the turn's next step.
func (t *turn) spend(hold *budget.Hold, model string, u llm.Usage) {
	cost := t.d.opts.Usage.Price(model, u)
	hold.Set(budget.Amount{Tokens: u.Input + u.Output, Cost: cost})
	t.Tokens += u.Input + u.Output
	t.Cost += cost
	t.used.Add(u)
	t.bill.session.Usage.Add(u)
	t.bill.session.Cost += cost
	t.bill.entries = append(t.bill.entries, budget.Entry{Model: model, Calls: 1, Usage: u, Cost: cost})
	t.bill.holds = append(t.bill.holds, hold)
}

// giveBack ends a hold of which nothing was spent, also after a panic.
func (t *turn) giveBack(hold *budget.Hold) {
	if !slices.Contains(t.bill.holds, hold) {
		hold.Release()
	}
}

// tx runs fn in a transaction, writes with it what the turn has used, and then wakes the router.
// What has begun to matter is finished also while the process ends.
func (t *turn) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.commit(ctx, t.d.DB.Tx, fn)
}

// txSoon is like tx but does not wait for the disk, unless fn writes what must: see
// [store.DB.TxSoon].
func (t *turn) txSoon(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.commit(ctx, t.d.DB.TxSoon, fn)
}

func (t *turn) commit(
	ctx context.Context, do func(context.Context, func(*store.Tx) error) error,
	fn func(tx *store.Tx) error,
) error {
	err := do(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return t.account(tx)
	})
	if err == nil {
		for _, h := range t.bill.holds {
			h.Release()
		}
		t.d.estimates.Saved(t.bill.learnt)
		t.bill = bill{}
		t.w.prove(false)
	}
	return err
}

// account writes what the turn has used.
func (t *turn) account(tx *store.Tx) error {
	if len(t.bill.entries) == 0 {
		return nil
	}
	who := t.spender()
	if t.erased {
		who = budget.Spender{} // the day's sum has it all the same
	}
	if err := t.d.sessions.Spend(tx, t.Session, t.bill.session); err != nil {
		return err
	}
	for _, e := range t.bill.entries {
		if err := t.d.count(tx, who, e); err != nil {
			return err
		}
	}
	t.bill.learnt = t.d.estimates.Unsaved(t.bill.entries[len(t.bill.entries)-1].Model)
	return saveCalibration(tx, t.bill.learnt)
}

// saveCalibration writes what was learnt of a model, if there is something.
func saveCalibration(tx *store.Tx, c prompt.Calibration) error {
	if c == (prompt.Calibration{}) {
		return nil
	}
	return budget.SetRatio(tx, c.Model, c.Ratio)
}

// slowestSpeech is how many bytes a second of sound has at least, for the price: 32 kbit/s is what
// the apps record. What the sender says of its length may be anything.
const slowestSpeech = 4 << 10

// paySpeech asks the budgets for the transcription of a, and counts it.
func (d *Dispatcher) paySpeech(ctx context.Context, m bus.InboundMessage, a bus.Attachment) error {
	who := budget.Spender{Session: string(session.KeyOf(m.From)), Person: m.Person, Sender: by(m)}
	cost := d.config().SpeechCost(max(a.Seconds, int(a.Size/slowestSpeech), 1))
	if err := d.halted(ctx); err != nil {
		return err
	}
	hold, err := d.opts.Usage.Reserve(d.DB.Read(context.WithoutCancel(ctx)), who,
		budget.Amount{Cost: cost})
	if err != nil {
		return err
	}
	defer hold.Release()
	return d.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return d.count(tx, who, budget.Entry{Model: speechModel, Calls: 1, Cost: cost})
	})
}

// speechModel is under what transcription is counted.
const speechModel = "transcription"

// count writes what was used, and tells the owners of limits that are near.
func (d *Dispatcher) count(tx *store.Tx, who budget.Spender, e budget.Entry) error {
	warnings, err := d.opts.Usage.Add(tx, who, e)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if w.Kind == "person" && who.Person == 0 {
			w.Key = who.Sender // that owners know
		}
		err := d.tellOwners(tx, func(to bus.Address) bus.OutboundMessage {
			return bus.OutboundMessage{To: to, Text: sayNear(w)}
		}, bus.Address{})
		if err != nil {
			return err
		}
	}
	return nil
}

// sayNear is what owners are told of a limit.
func sayNear(w budget.Warning) string {
	whose := map[string]string{
		"day": "", "person": " of person " + w.Key, "session": " of the conversation `" + w.Key + "`",
	}[w.Kind]
	text := fmt.Sprintf("Today's budget%s is used up to 80 %%: %s.", whose,
		w.Limit.Used(w.Used))
	if w.Passed {
		text = fmt.Sprintf("Today's budget%s is spent: %s.", whose, w.Limit.Used(w.Used))
	}
	return text + " Beyond it I make no model calls; `[budget]` in the configuration sets it."
}

// by names who wrote m.
func by(m bus.InboundMessage) string { return m.From.Account + "/" + m.Sender.ID }

// isSpent reports whether err says that a budget is spent.
func isSpent(err error) bool { return errors.Is(err, budget.ErrSpent) }

// Package modelcall makes calls of models. A call takes one of a bounded number of slots, is not
// made while everything is halted or a budget is spent, and is counted and observed.
package modelcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// Owners are the people who own the gateway.
type Owners interface {
	// OwnerChats returns their direct chats.
	OwnerChats(q store.Queryer) ([]bus.Address, error)
}

// Calls are what all model calls of the process share. It is used concurrently.
type Calls struct {
	DB        *store.DB
	Outbox    *bus.Outbox
	Ledger    *budget.Ledger
	Owners    Owners // nil: nobody is told of limits
	Observer  observe.Observer
	Estimates *prompt.Estimator
	Slots     chan struct{} // a call holds one
	Now       func() time.Time

	sessions session.Store
}

// A Model is a model with what a call of it must know.
type Model struct {
	llm.Model
	ID   string // as prices know it
	Name string // shown to people
}

// ExpectedAnswer is how many tokens an answer is expected to have when the budget is asked.
const ExpectedAnswer = 1024

// Halted returns [policy.ErrHalted] if everything is halted, or the error that hides whether it is:
// then nothing may happen either.
func (c *Calls) Halted(ctx context.Context) error {
	h, err := policy.GetHalt(c.DB.Read(context.WithoutCancel(ctx)))
	if err == nil && h != nil {
		err = policy.ErrHalted
	}
	return err
}

// Ask calls a model once, on behalf of no turn, and counts what that costs.
func (c *Calls) Ask(
	ctx context.Context, who budget.Spender, m Model, req llm.Request,
) (resp *llm.Response, err error) {
	select {
	case c.Slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.Slots }()
	if err := c.Halted(ctx); err != nil {
		return nil, err
	}
	expected := llm.Usage{Output: ExpectedAnswer,
		Input: c.Estimates.Tokens(m.ID, prompt.Size(req))}
	hold, err := c.Ledger.Reserve(c.DB.Read(context.WithoutCancel(ctx)), who, budget.Amount{
		Tokens: expected.Input + expected.Output, Cost: c.Ledger.Price(m.ID, expected)})
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	ctx, seen := c.Watch(ctx, observe.ModelBegin{Model: m.ID, Notes: true})
	defer func() { seen.End(resp, err) }()
	for ev, err := range m.Stream(ctx, req) {
		seen.Event()
		if err != nil {
			return nil, err
		}
		if resp := ev.Response; resp != nil {
			c.Estimates.LearnFrom(req, resp)
			return resp, c.bill(ctx, who, resp)
		}
	}
	return nil, &llm.Error{Kind: llm.Unavailable, Model: m.Name}
}

// bill writes what a call on behalf of no turn has used.
func (c *Calls) bill(ctx context.Context, who budget.Spender, resp *llm.Response) error {
	cost := c.Ledger.Price(resp.Model, resp.Usage)
	var learnt prompt.Calibration
	err := c.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		if !who.Session.IsZero() {
			err := c.sessions.Spend(tx, who.Session,
				session.Bill{Usage: resp.Usage, Cost: cost})
			if err != nil {
				return err
			}
		}
		learnt = c.Estimates.Unsaved(resp.Model)
		if err := SaveCalibration(tx, learnt); err != nil {
			return err
		}
		return c.Count(tx, who,
			budget.Entry{Model: resp.Model, Calls: 1, Usage: resp.Usage, Cost: cost})
	})
	if err == nil {
		c.Estimates.Saved(learnt)
	}
	return err
}

// SaveCalibration writes what was learnt of a model, if there is something.
func SaveCalibration(tx *store.Tx, c prompt.Calibration) error {
	if c == (prompt.Calibration{}) {
		return nil
	}
	return budget.SetRatio(tx, c.Model, c.Ratio)
}

// Pay counts a call whose price is known before it is made. It refuses while everything is halted
// or the budget is spent.
func (c *Calls) Pay(ctx context.Context, who budget.Spender, e budget.Entry) error {
	if err := c.Halted(ctx); err != nil {
		return err
	}
	hold, err := c.Ledger.Reserve(c.DB.Read(context.WithoutCancel(ctx)), who,
		budget.Amount{Cost: e.Cost})
	if err != nil {
		return err
	}
	defer hold.Release()
	return c.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return c.Count(tx, who, e)
	})
}

// Count writes what was used, and tells the owners of limits that are nearly or wholly used up.
func (c *Calls) Count(tx *store.Tx, who budget.Spender, e budget.Entry) error {
	warnings, err := c.Ledger.Add(tx, who, e)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if w.Kind == "person" && who.Person == 0 {
			w.Key = who.Sender // that owners know
		}
		err := c.TellOwners(tx, bus.Address{}, func(to bus.Address) bus.OutboundMessage {
			return bus.OutboundMessage{To: to, Text: warn(w)}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TellOwners puts a message into the direct chat of each owner, except the chat at but.
func (c *Calls) TellOwners(
	tx *store.Tx, but bus.Address, message func(to bus.Address) bus.OutboundMessage,
) error {
	if c.Owners == nil {
		return nil
	}
	owners, err := c.Owners.OwnerChats(tx)
	for i := 0; i < len(owners) && err == nil; i++ {
		if owners[i] != but {
			err = c.Outbox.Put(tx, message(owners[i]), c.Now())
		}
	}
	return err
}

// warn is what owners are told of a limit.
func warn(w budget.Warning) string {
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

// IsSpent reports whether err says that a budget is spent.
func IsSpent(err error) bool { return errors.Is(err, budget.ErrSpent) }

// A Watch follows the call of a model for the Observer.
type Watch struct {
	calls *Calls
	began time.Time
	first time.Duration
	ended func(observe.ModelEnd)
}

// Watch tells the Observer that a call begins.
func (c *Calls) Watch(
	ctx context.Context, b observe.ModelBegin,
) (context.Context, *Watch) {
	w := &Watch{calls: c, began: c.Now()}
	ctx, w.ended = c.Observer.Model(ctx, b)
	return ctx, w
}

// Event notes that the model has sent something.
func (w *Watch) Event() {
	if w.first == 0 {
		w.first = max(w.calls.Now().Sub(w.began), 1)
	}
}

// End tells the Observer that the call has ended.
func (w *Watch) End(resp *llm.Response, err error) {
	e := observe.ModelEnd{First: w.first, Err: err}
	if resp != nil {
		e.Model, e.Usage = resp.Model, resp.Usage
		e.Cost = w.calls.Ledger.Price(resp.Model, resp.Usage)
	}
	w.ended(e)
}

// Package modelcall makes model calls. Each call holds one of a limited number of slots, is
// refused while the gateway is halted or a budget is spent, and is billed and observed.
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

// Owners finds the owners of the gateway.
type Owners interface {
	// OwnerChats returns the direct chats of the owners.
	OwnerChats(q store.Queryer) ([]bus.Address, error)
}

// Calls has the state that all model calls of the process share. It is safe for concurrent use.
type Calls struct {
	DB        *store.DB
	Outbox    *bus.Outbox
	Ledger    *budget.Ledger
	Owners    Owners // nil: nobody hears of spent limits
	Observer  observe.Observer
	Estimates *prompt.Estimator
	Slots     chan struct{} // each call holds one; the capacity is the limit
	Now       func() time.Time

	// Payer returns who with the number that the person has now: they may have been forgotten since
	// the call began. nil: nobody is ever forgotten.
	Payer func(q store.Queryer, who budget.Spender) (budget.Spender, error)
}

// A Model is a model with its names.
type Model struct {
	llm.Model
	ID   string // name in the price list
	Name string // name that people see
}

// ExpectedAnswer is the assumed length of an answer, in tokens, when a call reserves its budget.
const ExpectedAnswer = 1024

// CheckHalted returns [policy.ErrHalted] if the gateway is halted. If it can't read the halt
// switch, it returns that error: then no call may run either.
func (c *Calls) CheckHalted(ctx context.Context) error {
	h, err := policy.GetHalt(c.DB.Read(context.WithoutCancel(ctx)))
	if err == nil && h != nil {
		err = policy.ErrHalted
	}
	return err
}

// Ask calls a model once, outside of a turn, and bills the usage to who.
func (c *Calls) Ask(
	ctx context.Context, who budget.Spender, m Model, req llm.Request,
) (resp *llm.Response, err error) {
	select {
	case c.Slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.Slots }()
	if err := c.CheckHalted(ctx); err != nil {
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
	ctx, seen := c.Watch(ctx, m.ID)
	defer func() { seen.End(resp, err) }()
	answer := 0
	for ev, err := range m.Stream(ctx, req) {
		seen.Event()
		if err != nil {
			if used := c.Broken(ctx, m.ID, req, answer); used != (llm.Usage{}) {
				err = errors.Join(err, c.bill(ctx, who, &llm.Response{Model: m.ID, Usage: used}))
			}
			return nil, err
		}
		if ev.Reset {
			answer = 0
		}
		answer += len(ev.Text)
		if resp := ev.Response; resp != nil {
			c.Complete(req, resp)
			return resp, c.bill(ctx, who, resp)
		}
	}
	return nil, &llm.Error{Kind: llm.Unavailable, Model: m.Name}
}

// Broken returns the usage of a call that broke off before the model reported it. It estimates the
// usage from the prompt and the bytes received. A refused call has no usage.
func (c *Calls) Broken(
	ctx context.Context, model string, req llm.Request, answer int,
) (u llm.Usage) {
	if answer > 0 || ctx.Err() != nil {
		u.Input = c.Estimates.Tokens(model, prompt.Size(req))
		u.Output = c.Estimates.Tokens(model, answer)
	}
	return u
}

// Complete learns from the usage in resp, the answer to req, and replaces counts that are missing
// by estimates: a server that reports no usage must not make an answer free.
func (c *Calls) Complete(req llm.Request, resp *llm.Response) {
	c.Estimates.LearnFrom(req, resp)
	if resp.Usage.Input == 0 {
		resp.Usage.Input = c.Estimates.Tokens(resp.Model, prompt.Size(req))
	}
	if m := resp.Message; resp.Usage.Output == 0 {
		resp.Usage.Output = c.Estimates.Tokens(resp.Model,
			len(m.Reasoning)+prompt.TextSize([]llm.Message{m}))
	}
}

// bill writes the usage of a call that is not part of a turn.
func (c *Calls) bill(ctx context.Context, who budget.Spender, resp *llm.Response) error {
	used := resp.Spent()
	cost := c.Ledger.Price(resp.Model, used)
	var learnt prompt.Calibration
	err := c.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		who := who
		if !who.Session.IsZero() {
			_, exists, err := session.Named(tx, who.Session.String())
			if err == nil {
				err = session.Spend(tx, who.Session, session.Bill{Usage: used, Cost: cost})
			}
			if err != nil {
				return err
			}
			if !exists { // /forget has erased it: nobody is charged
				who = budget.Spender{}
			}
		}
		learnt = c.Estimates.Unsaved(resp.Model)
		if err := SaveCalibration(tx, learnt); err != nil {
			return err
		}
		return c.Count(tx, who,
			budget.Entry{Model: resp.Model, Calls: 1, Usage: used, Cost: cost})
	})
	if err == nil {
		c.Estimates.Saved(learnt)
	}
	return err
}

// SaveCalibration writes the measured token ratio of a model. It does nothing if c is zero.
func SaveCalibration(tx *store.Tx, c prompt.Calibration) error {
	if c == (prompt.Calibration{}) {
		return nil
	}
	return budget.SetRatio(tx, c.Model, c.Ratio)
}

// Charge bills a call whose price is known in advance. It refuses with an error while the gateway
// is halted or the budget is spent. Charge must be called before the call is made.
func (c *Calls) Charge(ctx context.Context, who budget.Spender, e budget.Entry) error {
	if err := c.CheckHalted(ctx); err != nil {
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

// Count writes the usage of a call. It tells the owners when a limit is 80 % used or spent.
func (c *Calls) Count(tx *store.Tx, who budget.Spender, e budget.Entry) error {
	if c.Payer != nil {
		var err error
		if who, err = c.Payer(tx, who); err != nil {
			return err
		}
	}
	warnings, err := c.Ledger.Add(tx, who, e)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if w.Kind == "person" && who.Person == 0 {
			w.Key = who.Sender // owners know the sender, not the id 0
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

// TellOwners sends a message to the direct chat of each owner, except to the chat but.
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

// warn returns the message for the owners about a limit.
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

// IsSpent reports whether err means that a budget is spent.
func IsSpent(err error) bool { return errors.Is(err, budget.ErrExceeded) }

// A Watch reports the progress of one model call to the Observer.
type Watch struct {
	calls *Calls
	began time.Time
	first time.Duration
	ended func(observe.ModelEnd)
}

// Watch tells the Observer that a call of a model, by its name in the price list, begins.
func (c *Calls) Watch(ctx context.Context, model string) (context.Context, *Watch) {
	w := &Watch{calls: c, began: c.Now()}
	ctx, w.ended = c.Observer.Model(ctx, model)
	return ctx, w
}

// Event records that the model sent an event.
func (w *Watch) Event() {
	if w.first == 0 {
		w.first = max(w.calls.Now().Sub(w.began), 1)
	}
}

// End tells the Observer that the model call has ended.
func (w *Watch) End(resp *llm.Response, err error) {
	e := observe.ModelEnd{First: w.first, Err: err}
	if resp != nil {
		e.Model, e.Usage = resp.Model, resp.Usage
		e.Cost = w.calls.Ledger.Price(resp.Model, resp.Spent())
	}
	w.ended(e)
}

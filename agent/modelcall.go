package agent

import (
	"context"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/session"
	"gateway/store"
)

// callModel calls the model for notes once, beside an answer. It takes a slot and counts like any
// call, and does nothing while everything is halted or the budget is spent.
func (d *Dispatcher) callModel(
	ctx context.Context, who budget.Spender, req llm.Request,
) (resp *llm.Response, err error) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.slots }()
	if err := d.halted(ctx); err != nil {
		return nil, err
	}
	ledger := d.opts.Usage
	expected := llm.Usage{Output: expectedAnswer,
		Input: d.estimates.Tokens(d.config().NotesID, prompt.Size(req))}
	hold, err := ledger.Reserve(d.DB.Read(context.WithoutCancel(ctx)), who, budget.Amount{
		Tokens: expected.Input + expected.Output, Cost: ledger.Price(d.config().NotesID, expected)})
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	ctx, seen := d.watchModel(ctx, ModelBegin{Model: d.config().NotesID, Notes: true})
	defer func() { seen.end(resp, err) }()
	for ev, err := range d.config().notes.Stream(ctx, req) {
		seen.event()
		if err != nil {
			return nil, err
		}
		if resp := ev.Response; resp != nil {
			d.estimates.LearnFrom(req, resp)
			return resp, d.bill(ctx, who, resp)
		}
	}
	return nil, &llm.Error{Kind: llm.Unavailable, Model: d.config().ModelName}
}

// bill writes what a call beside an answer has used.
func (d *Dispatcher) bill(ctx context.Context, who budget.Spender, resp *llm.Response) error {
	cost := d.opts.Usage.Price(resp.Model, resp.Usage)
	var learnt prompt.Calibration
	err := d.tx(ctx, func(tx *store.Tx) (err error) {
		if who.Session != "" {
			err := d.sessions.Spend(tx, session.Key(who.Session),
				session.Bill{Usage: resp.Usage, Cost: cost})
			if err != nil {
				return err
			}
		}
		learnt = d.estimates.Unsaved(resp.Model)
		if err := saveCalibration(tx, learnt); err != nil {
			return err
		}
		return d.count(tx, who,
			budget.Entry{Model: resp.Model, Calls: 1, Usage: resp.Usage, Cost: cost})
	})
	if err == nil {
		d.estimates.Saved(learnt)
	}
	return err
}

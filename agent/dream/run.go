package dream

import (
	"context"
	"errors"
	"fmt"

	"gateway/memory"
)

// Run turns the next entries of a scope's history into memory. state is the state last
// saved by an incomplete run of the scope, or nil. save must make a new state durable.
//
// After an error the run can be repeated later with the last saved state: nothing was
// lost, and nothing is done twice. After a run without an error the state is obsolete, and
// the next run begins with nil. The scope must not be erased during a run; a run that was
// interrupted detects an erasure.
func (d *Dreamer) Run(
	ctx context.Context, scope memory.Scope, state []byte,
	save func(ctx context.Context, state []byte) error,
) (Report, error) {
	if _, err := memory.ParseScope(string(scope)); err != nil { // "" would mean the shared documents
		return Report{}, fmt.Errorf("dream: %w", err)
	}
	r := &run{Dreamer: d, scope: scope, keep: save}
	r.load(ctx, state)
	report, err := r.all(ctx)
	if _, gaveUp := errors.AsType[*GiveUpError](err); err != nil && !gaveUp {
		err = fmt.Errorf("dream: %s: %w", scope, err)
	}
	return report, err
}

// all performs the remaining steps of the run.
func (r *run) all(ctx context.Context) (Report, error) {
	dreamed, last, err := r.position(ctx)
	if err != nil {
		return Report{}, err
	}
	if there, err := r.there(r.deps.DB.Read(ctx)); err != nil {
		return Report{}, err
	} else if !there || r.state.Phase != begun && dreamed >= r.state.To && !r.state.ended() {
		r.state.restart() // the history was erased or read by another run
	}
	if r.state.Phase == begun {
		if last <= dreamed {
			return Report{Scope: r.scope, From: dreamed, To: dreamed}, nil
		}
		if err := r.analyse(ctx, dreamed, last); err != nil {
			return Report{}, err
		}
	}
	if r.state.Phase == dreamt && len(r.state.Findings) > 0 {
		if err := r.edit(ctx); err != nil {
			return Report{}, err
		}
	}
	return r.finish(ctx)
}

// position returns the cursors of the last entry read and of the newest entry.
func (r *run) position(ctx context.Context) (dreamed, last int64, err error) {
	history, q := r.deps.History(r.scope), r.deps.DB.Read(ctx)
	if dreamed, err = history.Dreamed(q); err == nil {
		last, err = history.Last(q)
	}
	return dreamed, last, err
}

// finish changes the documents and moves the cursor.
func (r *run) finish(ctx context.Context) (Report, error) {
	gone := Report{Scope: r.scope, Skipped: []string{"the history was erased meanwhile"}}
	there, err := r.there(r.deps.DB.Read(ctx))
	if err != nil || !there {
		return gone, err
	}
	v, err := r.apply(ctx)
	if err != nil {
		return Report{}, err
	}
	there, err = r.advance(ctx)
	if err != nil || !there {
		return gone, err
	}
	report := Report{
		Scope: r.scope, From: r.state.From, To: r.state.To,
		Changes: r.state.changes(), Version: v.ID, Skipped: r.state.Skipped,
	}
	_, last, err := r.position(ctx)
	report.More = last > r.state.To
	if err != nil { // the work is done; the next run checks again
		r.deps.Logger.WarnContext(ctx, "end of the history is not known", "scope", r.scope, "err", err)
	}
	return report, nil
}

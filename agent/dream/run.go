package dream

import (
	"context"
	"errors"
	"fmt"

	"gateway/memory"
)

// Run turns the next entries of a scope's history into memory. state is what was saved last by a
// run of the scope that did not end well, nil if there is none; save makes a new state durable.
//
// An error means that the run can be tried again later with the state saved last: nothing was lost,
// and nothing will be done twice. After a run without an error the state is of no more use: the
// next one begins with nil. The scope must not be erased while a run of it is under way; a run that
// was interrupted finds out.
func (d *Dreamer) Run(
	ctx context.Context, scope memory.Scope, state []byte,
	save func(ctx context.Context, state []byte) error,
) (Report, error) {
	if _, err := memory.ParseScope(string(scope)); err != nil { // "" would be the shared documents
		return Report{}, fmt.Errorf("dream: %w", err)
	}
	r := &run{Dreamer: d, scope: scope, keep: save}
	r.load(ctx, state)
	report, err := r.all(ctx)
	var given *GiveUpError
	if err != nil && !errors.As(err, &given) {
		err = fmt.Errorf("dream: %s: %w", scope, err)
	}
	return report, err
}

// all does what is left of the run.
func (r *run) all(ctx context.Context) (Report, error) {
	dreamed, last, err := r.position(ctx)
	if err != nil {
		return Report{}, err
	}
	if there, err := r.there(r.deps.DB.Read(ctx)); err != nil {
		return Report{}, err
	} else if !there || r.state.Phase != begun && dreamed >= r.state.To && !r.ended() {
		r.restart() // the history was erased, or another run has read it: this one is void
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

// position returns how far the history was read, and how far it goes.
func (r *run) position(ctx context.Context) (dreamed, last int64, err error) {
	history, q := r.deps.History(r.scope), r.deps.DB.Read(ctx)
	if dreamed, err = history.Dreamed(q); err == nil {
		last, err = history.Last(q)
	}
	return dreamed, last, err
}

// ended reports whether all that is left is to move the cursor.
func (r *run) ended() bool {
	switch r.state.Phase {
	case dreamt:
		return len(r.state.Findings) == 0
	case planned:
		return len(r.state.Plan) == 0
	}
	return r.state.Phase == written
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
		Changes: r.changes(), Version: v.ID, Skipped: r.state.Skipped,
	}
	_, last, err := r.position(ctx)
	report.More = last > r.state.To
	if err != nil { // all is done, and the next run looks again
		r.deps.Logger.WarnContext(ctx, "end of the history is not known", "scope", r.scope, "err", err)
	}
	return report, nil
}

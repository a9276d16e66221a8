// Package failover combines several models in one [llm.Model]. A [Chain] retries after temporary
// errors and goes on to the next model after other errors. For a while it avoids a model that has
// failed.
//
// A call tries each model at most 4 times and waits up to 7 seconds in between, or longer if the
// provider asks for it. The state is kept in memory, so all models are tried again after a restart.
// The package has no database tables.
package failover

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
)

// Retries on the same model.
const (
	retries   = 3
	firstWait = time.Second // doubles each time
	jitter    = 0.25        // the wait is longer by up to this fraction
	maxAfter  = time.Minute // if a provider asks for a longer wait, there is no retry
)

// An Entry is a model with its configured name.
type Entry struct {
	Name  string
	Model llm.Model

	// MaxOutput is the configured limit of an answer in tokens; 0: the provider's default. Only a
	// [Chain] uses it.
	MaxOutput int
}

// Options are the optional settings of a [Chain].
type Options struct {
	Logger *slog.Logger // discards by default
}

// A Chain is a list of models with the preferred one first. It implements [llm.Model].
//
// Errors of kinds that are [llm.Kind.Temporary] are retried on the same model. After other errors
// the Chain tries the next model at once, and also if a content filter left nothing of the answer.
// The exceptions are [llm.ContextTooLong], [llm.NoImages], [llm.TooManyImages] and
// [llm.BadThoughts]: the Chain returns them, because only the caller can change the conversation.
// If all models fail, the Chain returns the last model's error. It prefers the error of a model
// that has refused the content, because the caller may then leave earlier messages out. It does not
// prefer that error to [llm.NoTools], because the last model may answer without tools.
type Chain struct {
	links []*link
	log   *slog.Logger
}

var _ llm.Model = (*Chain)(nil)

// New returns a chain of models. It panics if there are no entries.
func New(entries []Entry, opts *Options) *Chain {
	if len(entries) == 0 {
		panic("failover: no models")
	}
	o := *cmp.Or(opts, new(Options))
	c := &Chain{log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	for _, e := range entries {
		c.links = append(c.links, &link{Entry: e})
	}
	return c
}

// Efforts returns the efforts that the preferred model supports.
func (c *Chain) Efforts() []llm.Effort { return llm.Efforts(c.links[0].Model) }

// Stream implements [llm.Model].
func (c *Chain) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		t := &try{yield: yield}
		var err, refusal error
		// Models that are cooling down are left out. If all are, the one that is ready first is tried.
		models, soonest := ready(c.links, time.Now())
		if len(models) == 0 {
			models = []*link{soonest}
		}
		for i, l := range models {
			t.more = i < len(models)-1
			own := req
			own.MaxOutput = c.maxOutput(l, req.MaxOutput)
			err = c.ask(ctx, l, own, t)
			if err == nil || t.broken || ctx.Err() != nil || slices.Contains(forCaller, kindOf(err)) {
				refusal = nil
				break
			}
			if kindOf(err) == llm.ContentRefused {
				refusal = err
			}
		}
		if refusal != nil && kindOf(err) != llm.NoTools { // without tools this model may answer
			err = refusal
		}
		if err != nil && !t.broken {
			yield(llm.Event{}, err)
		}
	}
}

// forCaller has the errors that only the caller can resolve, by changing the conversation.
var forCaller = []llm.Kind{llm.ContextTooLong, llm.NoImages, llm.TooManyImages, llm.BadThoughts}

// maxOutput returns the limit of an answer for l if the caller asks for a limit. The caller knows
// the preferred model only: its configured limit stands for that of l. Any other limit remains if l
// has none or a greater one.
func (c *Chain) maxOutput(l *link, asked int) int {
	switch {
	case asked == c.links[0].MaxOutput:
		return l.MaxOutput
	case asked == 0 || l.MaxOutput == 0:
		return asked
	}
	return min(asked, l.MaxOutput)
}

// ask tries one model until the model answers, fails with an error that is not retried, or has no
// retries left. In the last two cases the model's cool-down begins.
func (c *Chain) ask(ctx context.Context, l *link, req llm.Request, t *try) error {
	for n := 0; ; n++ {
		err := t.run(ctx, l.Model, req)
		switch {
		case t.broken:
			return nil
		case err == nil:
			l.reset()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		kind, after := kindOf(err), afterOf(err)
		wait, again := retryIn(kind, after, n)
		if !again {
			if d := l.failed(kind, after, time.Now()); d > 0 {
				c.log.WarnContext(ctx, "model cools down",
					"model", l.Name, "kind", kind, "after", d.Round(time.Second))
			} else {
				c.log.WarnContext(ctx, "model failed", "model", l.Name, "kind", kind)
			}
			return err
		}
		c.log.InfoContext(ctx, "model is retried", "model", l.Name, "kind", kind, "after", wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// retryIn returns how long to wait before retry n+1 on the same model, and whether there is one.
func retryIn(kind llm.Kind, after time.Duration, n int) (time.Duration, bool) {
	if !kind.Temporary() || n >= retries || after > maxAfter {
		return 0, false
	}
	wait := cmp.Or(after, firstWait<<n)
	// The jitter spreads the retries of calls that failed at the same time.
	return wait + time.Duration(rand.Float64()*jitter*float64(wait)), true
}

// sleep waits for d. If ctx ends first, it returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errNoEnd reports a model that ended its stream without a response or an error.
var errNoEnd = errors.New("failover: stream ended without a response")

// A try is the state of one call, over all its attempts.
type try struct {
	yield  func(llm.Event, error) bool
	more   bool      // another model follows, which answers if this one refuses
	spent  llm.Usage // of refused answers
	shown  bool      // the user sees text of a failed attempt
	broken bool      // the consumer has broken out of the loop
}

// run makes one attempt and passes on its events. It returns the error that ended the attempt.
func (t *try) run(ctx context.Context, m llm.Model, req llm.Request) error {
	if t.shown && !t.pass(llm.Event{Reset: true}) {
		return nil
	}
	for e, err := range m.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if r := e.Response; r != nil {
			if t.more && isRefusal(r) {
				t.spent.Add(r.Usage)
				return &llm.Error{Kind: llm.ContentRefused, Model: r.Model}
			}
			r.Refused.Add(t.spent)
		}
		if !t.pass(e) || e.Response != nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errNoEnd
}

// isRefusal reports whether r is empty because the provider's content filter has refused it. Some
// providers return an error instead.
func isRefusal(r *llm.Response) bool {
	return r.Finish == llm.FinishFiltered && strings.TrimSpace(r.Message.Text) == "" &&
		len(r.Message.ToolCalls) == 0
}

func (t *try) pass(e llm.Event) bool {
	if e.Reset {
		t.shown = false
	}
	t.shown = t.shown || e.Text != ""
	more := t.yield(e, nil)
	t.broken = !more && e.Response == nil // the Response is the last event
	return more
}

// kindOf returns the kind of err, and Unavailable for other errors, so that they are retried.
func kindOf(err error) llm.Kind {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Kind
	}
	return llm.Unavailable
}

// afterOf returns how long the provider asks the caller to wait.
func afterOf(err error) time.Duration {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.After
	}
	return 0
}

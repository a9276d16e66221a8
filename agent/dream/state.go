package dream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/store"
)

// A phase is how far a run has come.
type phase string

// The phases that a saved state can be in.
const (
	begun   phase = ""
	dreamt  phase = "dreamt"  // the changes have names
	planned phase = "planned" // the new texts are known
	written phase = "written" // they are in the documents
)

// A state is what a run has found so far. It is saved as JSON.
type state struct {
	Scope    memory.Scope `json:"scope"`
	Phase    phase        `json:"phase"`
	Failures int          `json:"failures,omitempty"` // answers of no use, in a row
	Used     int          `json:"used,omitempty"`     // tokens, since the last failure

	ID       string    `json:"id,omitempty"` // of the change
	From     int64     `json:"from,omitempty"`
	To       int64     `json:"to,omitempty"`
	Newest   string    `json:"newest,omitempty"` // of the entries that were read, see [mark]
	Findings []finding `json:"findings,omitempty"`
	Skipped  []string  `json:"skipped,omitempty"`
	Plan     []file    `json:"plan,omitempty"`
	Writing  bool      `json:"writing,omitempty"` // some of the plan may be in the documents
}

// A file is what becomes of a document, or a new skill.
type file struct {
	Name string `json:"name"` // path in the scope's folder
	New  bool   `json:"new,omitempty"`
	Base string `json:"base,omitempty"` // its text when the change was made
	Hash string `json:"hash,omitempty"` // of that text
	Text string `json:"text"`           // its new text
}

// A run is one under way.
type run struct {
	*Dreamer
	scope memory.Scope
	state state
	keep  func(ctx context.Context, state []byte) error
}

// load reads the state of an earlier process. A state that can't be used counts as none.
func (r *run) load(ctx context.Context, saved []byte) {
	r.state = state{Scope: r.scope}
	if len(saved) == 0 {
		return
	}
	var s state
	err := json.Unmarshal(saved, &s)
	if err == nil && s.Scope != r.scope {
		err = errors.New("it is of another scope")
	}
	if err == nil && !s.whole() {
		err = errors.New("it is not whole")
	}
	if err != nil {
		r.deps.Logger.WarnContext(ctx, "saved state of dream is of no use", "scope", r.scope, "err", err)
		return
	}
	r.state = s
}

// whole reports whether s has what its phase needs.
func (s *state) whole() bool {
	switch s.Phase {
	case begun:
		return s.Newest == ""
	case dreamt, planned, written:
		return s.ID != "" && s.To > s.From && s.Newest != ""
	}
	return false
}

func (r *run) save(ctx context.Context) error {
	b, err := json.Marshal(r.state)
	if err == nil {
		err = r.keep(ctx, b)
	}
	if err != nil {
		return fmt.Errorf("save the state: %w", err)
	}
	return nil
}

// giveUpAfter is how many failures in a row somebody should be told of.
const giveUpAfter = 3

// fail counts an answer that was of no use. After some of them the run begins anew, with fewer
// entries.
func (r *run) fail(ctx context.Context, cause error) error {
	r.state.Failures++
	r.state.Used = 0
	if r.state.Failures >= giveUpAfter {
		cause = &GiveUpError{Scope: r.scope, Failures: r.state.Failures, Err: cause}
		r.restart()
	}
	return errors.Join(cause, r.save(ctx))
}

// mark returns what tells an entry from another one that has got its cursor after an erasure.
func mark(e memory.Entry) string {
	return fmt.Sprintf("%d %d %s", e.Cursor, e.Time.UnixMilli(), e.Session)
}

// there reports whether the history still has what the run has read.
func (r *run) there(q store.Queryer) (bool, error) {
	if r.state.Newest == "" { // it has read nothing
		return true, nil
	}
	list, err := r.deps.History(r.scope).Entries(q, r.state.To-1, 1)
	return len(list) == 1 && mark(list[0]) == r.state.Newest, err
}

// restart forgets what the run has found.
func (r *run) restart() { r.state = state{Scope: r.scope, Failures: r.state.Failures} }

// errTokens reports that a run has used what it may.
var errTokens = errors.New("the run has used its tokens")

// bytesPerToken is about how many bytes of text a token has.
const bytesPerToken = 4

// ask asks the model within what the run may use.
func (r *run) ask(ctx context.Context, req llm.Request) (*llm.Response, error) {
	expected := promptSize(req) / bytesPerToken
	left := r.opts.MaxTokens - r.state.Used - expected
	if left <= 0 {
		return nil, r.fail(ctx, fmt.Errorf("%w: %d of %d, and the next call would take about %d more",
			errTokens, r.state.Used, r.opts.MaxTokens, expected))
	}
	req.MaxOutput = r.opts.MaxOutput
	if left < cmp.Or(req.MaxOutput, usualOutput) {
		req.MaxOutput = left
	}
	resp, err := r.deps.Ask(ctx, req)
	if err != nil {
		var refused *llm.Error
		if errors.As(err, &refused) && hopeless(refused.Kind) && ctx.Err() == nil {
			return nil, r.fail(ctx, err)
		}
		return nil, err
	}
	if resp == nil {
		resp = &llm.Response{}
	}
	used := resp.Usage.Input + resp.Usage.Output
	if used <= 0 { // the provider does not say
		used = expected + (messageSize(resp.Message))/bytesPerToken
	}
	r.state.Used += used
	return resp, nil
}

// usualOutput is more than an answer usually takes, in tokens. Where less is left, the provider is
// told: otherwise it is not, as some refuse more than their model can do.
const usualOutput = 8_192

// hopeless reports whether the same request will fail the same way whenever it is made.
func hopeless(k llm.Kind) bool {
	return k == llm.ContextTooLong || k == llm.ContentRefused || k == llm.BadRequest
}

func promptSize(req llm.Request) int {
	n := 0
	for _, m := range req.Messages {
		n += messageSize(m)
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return n
}

func messageSize(m llm.Message) int {
	n := len(m.Text)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

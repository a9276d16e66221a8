package dream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/store"
)

// phase is the progress of a run.
type phase string

// Phases of a saved state.
const (
	begun   phase = ""
	dreamt  phase = "dreamt"  // the changes are named
	planned phase = "planned" // the new texts are complete
	written phase = "written" // the documents have the new texts
)

// state is the progress of a run. It is saved as JSON.
type state struct {
	Scope    memory.Scope `json:"scope"`
	Phase    phase        `json:"phase"`
	Failures int          `json:"failures,omitempty"` // consecutive useless answers
	Used     int          `json:"used,omitempty"`     // tokens, since the last failure

	ID       string    `json:"id,omitempty"` // ID of the change
	From     int64     `json:"from,omitempty"`
	To       int64     `json:"to,omitempty"`
	Newest   string    `json:"newest,omitempty"` // mark of the newest entry read, see [mark]
	Findings []finding `json:"findings,omitempty"`
	Skipped  []string  `json:"skipped,omitempty"`
	Plan     []file    `json:"plan,omitempty"`
	Writing  bool      `json:"writing,omitempty"` // parts of the plan may be written already
}

// file is a changed document or a new skill.
type file struct {
	Name string `json:"name"` // path in the scope's folder
	New  bool   `json:"new,omitempty"`
	Base string `json:"base,omitempty"` // its text when the change was made
	Hash string `json:"hash,omitempty"` // of that text
	Text string `json:"text"`           // its new text
}

// run is a run in progress.
type run struct {
	*Dreamer
	scope memory.Scope
	state state
	keep  func(ctx context.Context, state []byte) error
}

// load reads the state of an earlier process. It ignores an unusable state.
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

// whole reports whether s has the fields that its phase needs.
func (s *state) whole() bool {
	switch s.Phase {
	case begun:
		return s.Newest == ""
	case dreamt, planned, written:
		return s.ID != "" && s.To > s.From && s.Newest != ""
	}
	return false
}

// ended reports whether only the cursor remains to be moved.
func (s *state) ended() bool {
	switch s.Phase {
	case dreamt:
		return len(s.Findings) == 0
	case planned:
		return len(s.Plan) == 0
	}
	return s.Phase == written
}

// restart discards the findings of the run.
func (s *state) restart() { *s = state{Scope: s.Scope, Failures: s.Failures} }

// skip adds a line to the report about something that was not done.
func (s *state) skip(format string, args ...any) {
	s.Skipped = append(s.Skipped, fmt.Sprintf(format, args...))
}

// reason returns the reason of the change, for the documents' history.
func (s *state) reason() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Dream over the entries %d to %d", s.From+1, s.To)
	for _, change := range s.changes() {
		b.WriteString("\n" + change)
	}
	b.WriteString("\n\nNamed by the model:")
	for _, f := range s.Findings {
		b.WriteString("\n" + f.String())
	}
	return b.String()
}

// changes describes all changes of the run.
func (s *state) changes() []string {
	var list []string
	for _, f := range s.Plan {
		list = append(list, f.changes()...)
	}
	return list
}

// save makes the state durable.
func (r *run) save(ctx context.Context) error {
	b, err := json.Marshal(r.state)
	if err == nil {
		err = r.keep(ctx, b)
	}
	return store.Wrap(err, "save the state")
}

// giveUpAfter is the number of consecutive failures after which Run returns a
// [GiveUpError].
const giveUpAfter = 3

// fail counts a useless answer. After several of them the run starts again with fewer
// entries.
func (r *run) fail(ctx context.Context, cause error) error {
	r.state.Failures++
	r.state.Used = 0
	if r.state.Failures >= giveUpAfter {
		cause = &GiveUpError{Scope: r.scope, Failures: r.state.Failures, Err: cause}
		r.state.restart()
	}
	return errors.Join(cause, r.save(ctx))
}

// mark returns a text that distinguishes an entry from a later one that got the same cursor after
// an erasure.
func mark(e memory.Entry) string {
	return fmt.Sprintf("%d %d %s", e.Cursor, e.Time.UnixMilli(), e.Session)
}

// there reports whether the history still has the entries that the run has read.
func (r *run) there(q store.Queryer) (bool, error) {
	if r.state.Newest == "" { // nothing was read yet
		return true, nil
	}
	list, err := r.deps.History(r.scope).Entries(q, r.state.To-1, 1)
	return len(list) == 1 && mark(list[0]) == r.state.Newest, err
}

// errTokens means that a run has used all its tokens.
var errTokens = errors.New("the run has used its tokens")

// bytesPerToken is the approximate number of bytes per token.
const bytesPerToken = 4

// ask makes a model call within the limits of the run.
func (r *run) ask(ctx context.Context, req llm.Request) (*llm.Response, error) {
	expected := promptSize(req) / bytesPerToken
	left := r.opts.MaxTokens - r.state.Used - expected
	if left <= 0 {
		return nil, r.fail(ctx, fmt.Errorf("%w: %d of %d, and the next call would take about %d more",
			errTokens, r.state.Used, r.opts.MaxTokens, expected))
	}
	if left < usualOutput {
		req.MaxOutput = left
	}
	resp, err := r.deps.Ask(ctx, req)
	if err != nil {
		refused, ok := errors.AsType[*llm.Error](err)
		if ok && isPermanent(refused.Kind) && ctx.Err() == nil {
			return nil, r.fail(ctx, err)
		}
		return nil, err
	}
	resp = cmp.Or(resp, &llm.Response{})
	used := resp.Usage.Input + resp.Usage.Output
	if used <= 0 { // the provider reports no usage
		used = expected + (messageSize(resp.Message))/bytesPerToken
	}
	r.state.Used += used
	return resp, nil
}

// usualOutput is more than an answer usually needs, in tokens. The request carries a limit
// only if less is left, because some providers refuse a limit beyond that of their model.
const usualOutput = 8_192

// isPermanent reports whether repeating the same request always fails in the same way.
func isPermanent(k llm.Kind) bool {
	return k == llm.ContextTooLong || k == llm.ContentRefused || k == llm.BadRequest ||
		k == llm.NoTools
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

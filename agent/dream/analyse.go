package dream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/store/fault"
	"gateway/store/plaintext"
)

// errNonsense means that the answer has no usable line.
var errNonsense = errors.New("the model's answer holds no line of the form that was asked for")

// again is sent to the model after such an answer.
const again = "Your answer has no valid line. Answer only with lines that begin with " +
	"[USER], [MEMORY], [SOUL], [USER-REMOVE], [MEMORY-REMOVE], [SOUL-REMOVE] or [SKILL], or with " +
	"the one line [SKIP]."

// maxEcho is the part of a useless answer that is shown to the model again, in bytes.
const maxEcho = 2_000

// analyse is the first phase: the model names the changes to make.
func (r *run) analyse(ctx context.Context, from, last int64) error {
	entries, err := r.nextEntries(ctx, from)
	if err != nil {
		return err
	}
	if len(entries) == 0 { // a person has removed them
		r.state.Phase, r.state.From, r.state.To = dreamt, from, last
		return nil
	}
	own := withoutForeign(entries)
	if len(own) == 0 {
		r.state.Phase, r.state.From, r.state.To = dreamt, from, entries[len(entries)-1].Cursor
		return nil
	}
	d := r.openDrafts(ctx)
	skills := r.deps.Skills(r.scope)
	req := llm.Request{Messages: analysisPrompt(r.scope, r.opts, own, d, skills)}
	for range 2 {
		resp, err := r.ask(ctx, req)
		if err != nil && len(entries) == 1 && r.mayLeaveOut(err) {
			left := fmt.Sprintf("entry %d was not read: the provider of the model refuses it",
				entries[0].Cursor)
			return r.name(ctx, analysis{skipped: []string{left}}, d, from, entries)
		}
		if err != nil {
			return err
		}
		a := parse(wholeLines(resp), skills)
		if a.valid {
			return r.name(ctx, a, d, from, entries)
		}
		req.Messages = append(req.Messages,
			llm.Message{Role: llm.Assistant, Text: plaintext.Cut(resp.Message.Text, maxEcho) + " …"},
			llm.Message{Role: llm.User, Text: again})
	}
	return r.fail(ctx, errNonsense)
}

// mayLeaveOut reports whether a single entry is left out after err, because the provider refuses
// its content again and again. Otherwise it would keep the run from all later entries. The owners
// have learned of the failures before: see [GiveUpError].
func (r *run) mayLeaveOut(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return ok && e.Kind == llm.ContentRefused && r.state.Failures > giveUpAfter
}

// withoutForeign returns entries without those derived from foreign text, because a web page must
// not be able to write to the memory.
func withoutForeign(entries []memory.Entry) []memory.Entry {
	return slices.DeleteFunc(slices.Clone(entries), memory.Entry.IsForeign)
}

// name saves the findings of the first phase.
func (r *run) name(
	ctx context.Context, a analysis, d *drafts, from int64, read []memory.Entry,
) error {
	newest, long := read[len(read)-1], len(read[0].Text)
	r.state.Phase, r.state.ID = dreamt, "dream-"+rand.Text()
	r.state.From, r.state.To, r.state.Newest = from, newest.Cursor, mark(newest)
	r.state.Findings, r.state.Skipped = nil, a.skipped
	if long > r.opts.entryRoom() {
		r.state.skip("the end of entry %d was not read: it has %d bytes", newest.Cursor, long)
	}
	for _, f := range a.findings {
		if s := d.byName[f.Document]; s != nil && s.problem != "" {
			r.state.skip("%s: the document can't be changed: %s", f, s.problem)
			continue
		}
		r.state.Findings = append(r.state.Findings, f)
	}
	if err := r.save(ctx); err != nil {
		return err
	}
	fault.Point("dreamt")
	return nil
}

// nextEntries returns the entries for this run: at least one, fewer after failures, and
// not more text than the run has room for.
func (r *run) nextEntries(ctx context.Context, after int64) ([]memory.Entry, error) {
	limit := max(1, r.opts.MaxEntries>>min(r.state.Failures, 16))
	list, err := r.deps.History(r.scope).Entries(r.deps.DB.Read(ctx), after, limit)
	if err != nil {
		return nil, err
	}
	room := r.opts.entryRoom()
	for i, e := range list {
		if room -= len(e.Text); room < 0 && i > 0 {
			return list[:i], nil
		}
	}
	return list, nil
}

// readEntries returns the entries that the run has read before, without those derived from
// foreign text.
func (r *run) readEntries(ctx context.Context) ([]memory.Entry, error) {
	list, err := r.deps.History(r.scope).Entries(r.deps.DB.Read(ctx), r.state.From, r.opts.MaxEntries)
	for i, e := range list {
		if e.Cursor > r.state.To {
			return withoutForeign(list[:i]), err
		}
	}
	return withoutForeign(list), err
}

// wholeLines returns the text of an answer without an incomplete last line.
func wholeLines(resp *llm.Response) string {
	text := resp.Message.Text
	if resp.Finish != llm.FinishLength && resp.Finish != llm.FinishFiltered {
		return text
	}
	return text[:max(strings.LastIndexByte(text, '\n'), 0)]
}

package dream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/store/fault"
	"gateway/store/plaintext"
)

// Names of the tools of the second phase.
const (
	toolEdit  = "edit_document"
	toolSkill = "write_skill"
	toolDone  = "done"
)

// editTools returns all tools of the second phase. They work on [drafts].
func editTools(skills bool) []llm.ToolSpec {
	list := []llm.ToolSpec{{
		Name: toolEdit,
		Description: "Replaces a part of a document. Copy the old text exactly; it must occur " +
			`once. With old "" the new text is added at the end; if it begins with a heading of the ` +
			`document, at the end of that section. With new "" the old text is removed.`,
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"name":{"type":"string","enum":["USER.md","MEMORY.md","SOUL.md"]},` +
			`"old":{"type":"string"},"new":{"type":"string"}},"required":["name","old","new"]}`),
	}, {
		Name:        toolDone,
		Description: "Says that all changes are made, or that there is nothing to do.",
		Schema:      json.RawMessage(`{"type":"object","properties":{}}`),
	}}
	if skills {
		list = append(list, llm.ToolSpec{
			Name:        toolSkill,
			Description: "Writes a new skill that a [SKILL] line names.",
			Schema: json.RawMessage(`{"type":"object","properties":{` +
				`"name":{"type":"string","description":"as in the [SKILL] line"},` +
				`"description":{"type":"string","description":"one line: what it does and when to use it"},` +
				`"body":{"type":"string","description":"Markdown, without front matter"}},` +
				`"required":["name","description","body"]}`),
		})
	}
	return list
}

// Limits of one answer.
const (
	maxCalls     = 32       // tool calls
	maxArguments = 64 << 10 // of a call, in bytes
)

// goOn is sent to the model after an answer that made no call and no change, or was cut
// off.
const goOn = "Make the changes with the tools. When all are made, or if there is nothing to do, " +
	"call done."

var (
	errRounds = errors.New("the model did not come to an end")
	errNoEdit = errors.New("the model made no change and did not say that it was done")
)

// edit is the second phase: the model changes copies of the documents.
func (r *run) edit(ctx context.Context) error {
	d := r.openDrafts(ctx)
	var entries []memory.Entry
	if len(d.allowed) > 0 {
		var err error
		if entries, err = r.readEntries(ctx); err != nil {
			return err
		}
	}
	req := llm.Request{
		Messages: editingPrompt(r.scope, r.opts, r.state.Findings, entries, d),
		Tools:    editTools(len(d.allowed) > 0),
	}
	nudged := false
	for range r.opts.MaxRounds {
		resp, err := r.ask(ctx, req)
		if err != nil {
			return err
		}
		if err := r.save(ctx); err != nil { // the tokens used
			return err
		}
		said := sendable(resp.Message)
		if len(said.ToolCalls) == 0 {
			if d.edited && resp.Finish != llm.FinishLength && resp.Finish != llm.FinishFiltered {
				return r.plan(ctx, d)
			}
			if nudged {
				return r.fail(ctx, errNoEdit)
			}
			nudged = true
			req.Messages = append(req.Messages, said, llm.Message{Role: llm.User, Text: goOn})
			continue
		}
		results, done := d.answer(resp.Message.ToolCalls)
		if done {
			return r.plan(ctx, d)
		}
		req.Messages = append(append(req.Messages, said), results...)
	}
	return r.fail(ctx, fmt.Errorf("%w in %d rounds", errRounds, r.opts.MaxRounds))
}

// sendable returns an answer in a form that can be sent back to the model: providers refuse
// empty messages and arguments that are not JSON.
func sendable(m llm.Message) llm.Message {
	m.Role, m.Text = llm.Assistant, plaintext.Cut(m.Text, maxEcho)
	calls := make([]llm.ToolCall, 0, len(m.ToolCalls))
	for _, c := range m.ToolCalls {
		if len(c.Arguments) > maxArguments || !isObject(c.Arguments) {
			c.Arguments = "{}"
		}
		c.Name = plaintext.Cut(c.Name, 64)
		calls = append(calls, c)
	}
	m.ToolCalls = calls
	if m.Text == "" && len(calls) == 0 {
		m.Text = "…"
	}
	return m
}

func isObject(s string) bool {
	return strings.HasPrefix(strings.TrimSpace(s), "{") && json.Valid([]byte(s))
}

// answer executes the tool calls of an answer and returns their results. done is true if
// the model has called done and no call of this answer failed.
func (d *drafts) answer(calls []llm.ToolCall) (results []llm.Message, done bool) {
	failed := 0
	for i, c := range calls {
		text := "done"
		var err error
		switch {
		case i >= maxCalls:
			err = fmt.Errorf("no more than %d calls in one answer: call it again", maxCalls)
		case c.Name == toolDone && failed > 0:
			err = fmt.Errorf("%d calls of this answer failed: mend them, or call done alone", failed)
		case c.Name == toolDone:
			done = true
		default:
			done = false // the model continues
			err = d.call(c)
		}
		if err != nil {
			failed++
			text, done = "Error: "+err.Error(), false
		}
		results = append(results, llm.Message{Role: llm.ToolRole, Text: text, ToolCallID: c.ID})
	}
	return results, done
}

// call executes one tool call.
func (d *drafts) call(c llm.ToolCall) error {
	if c.Name != toolEdit && c.Name != toolSkill {
		return fmt.Errorf("there is no tool %q: want %s, %s or %s", plaintext.Cut(c.Name, 80), toolEdit,
			toolSkill, toolDone)
	}
	if len(c.Arguments) > maxArguments {
		return fmt.Errorf("the arguments have %d bytes: no more than %d", len(c.Arguments), maxArguments)
	}
	if !isObject(c.Arguments) {
		return errors.New("the arguments are no JSON object: write them again")
	}
	var edit editArgs
	var skill skillArgs
	args := any(&edit)
	if c.Name == toolSkill {
		args = &skill
	}
	if err := json.Unmarshal([]byte(c.Arguments), args); err != nil {
		if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("argument %q must be a string", bad.Field)
		}
		return errors.New("the arguments can't be read: write them again")
	}
	if c.Name == toolSkill {
		return d.write(skill)
	}
	return d.edit(edit)
}

// plan saves the files to write.
func (r *run) plan(ctx context.Context, d *drafts) error {
	r.state.Phase, r.state.Plan = planned, d.plan()
	if !d.edited {
		for _, f := range r.state.Findings {
			r.state.skip("%s: the model saw nothing to change for it", f)
		}
	}
	if err := r.save(ctx); err != nil {
		return err
	}
	fault.Point("planned")
	return nil
}

// Package llmtest provides a scripted [llm.Model] for tests, in memory.
//
// A [Model] answers from a queue of steps or calls a function: with text in pieces, tool calls or
// errors, after a delay or when a channel is closed. It records its requests. It uses no provider's
// protocol; to test a protocol, use the fake server beside the provider's client. The package has
// no database tables.
package llmtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gateway/agent/llm"
)

// ErrNoStep reports that a Model had no step left for a call. It is wrapped in an [llm.Error] of
// kind [llm.BadRequest].
var ErrNoStep = errors.New("llmtest: no step left")

// A Step describes what a Model does in one call.
type Step struct {
	Delay time.Duration   // wait first, and then
	Block <-chan struct{} // wait until this is closed; nil does not wait

	Text      []string // pieces of the visible text
	Between   time.Duration
	Reasoning string
	Calls     []llm.ToolCall // an empty ID is replaced by a new one
	Finish    llm.Finish     // default depends on Calls
	Usage     llm.Usage

	Err error // ends the stream after Text, instead of the Response
}

// Say returns a Step that answers with text, word by word.
func Say(text string) Step { return Step{Text: strings.SplitAfter(text, " ")} }

// Call returns a Step that calls a tool.
func Call(tool, arguments string) Step {
	return Step{Calls: []llm.ToolCall{{Name: tool, Arguments: arguments}}}
}

// Fail returns a Step that fails with an [llm.Error] of the given kind.
func Fail(kind llm.Kind) Step { return Step{Err: &llm.Error{Kind: kind}} }

// A Model is a scripted model. It is safe for concurrent use.
type Model struct {
	name   string
	answer func(llm.Request) Step // nil if steps are used

	mu       sync.Mutex
	steps    []Step
	requests []llm.Request
	calls    int // number of ids given to tool calls
	running  int
}

var _ llm.Model = (*Model)(nil)

// New returns a Model that uses one step for each call.
func New(name string, steps ...Step) *Model {
	return &Model{name: name, steps: steps}
}

// Func returns a Model that calls answer for each step. answer must be safe for concurrent use.
func Func(name string, answer func(llm.Request) Step) *Model {
	return &Model{name: name, answer: answer}
}

// Queue appends steps to those that are left.
func (m *Model) Queue(steps ...Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps = append(m.steps, steps...)
}

// Requests returns the requests so far, in order.
func (m *Model) Requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Running returns the number of calls in progress.
func (m *Model) Running() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// Left returns the number of unused steps.
func (m *Model) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps)
}

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		step := m.begin(req)
		defer m.end()
		if err := step.wait(ctx); err != nil {
			yield(llm.Event{}, err)
			return
		}
		for i, piece := range step.Text {
			if i > 0 {
				if err := sleep(ctx, step.Between); err != nil {
					yield(llm.Event{}, err)
					return
				}
			}
			if !yield(llm.Event{Text: piece}, nil) {
				return
			}
		}
		switch {
		case ctx.Err() != nil:
			yield(llm.Event{}, ctx.Err())
		case step.Err != nil:
			yield(llm.Event{}, m.named(step.Err))
		default:
			yield(llm.Event{Response: m.response(step)}, nil)
		}
	}
}

// begin records a call and returns its step.
func (m *Model) begin(req llm.Request) Step {
	req.Messages = slices.Clone(req.Messages)
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.running++
	var step Step
	switch {
	case m.answer != nil:
	case len(m.steps) == 0:
		err := fmt.Errorf("%w for request %d", ErrNoStep, len(m.requests))
		step = Step{Err: &llm.Error{Kind: llm.BadRequest, Err: err}}
	default:
		step = m.steps[0]
		m.steps = m.steps[1:]
	}
	m.mu.Unlock()
	if m.answer != nil {
		step = m.answer(req)
	}
	return step
}

func (m *Model) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
}

// named returns err. If err is an *llm.Error without a model, it sets the model's name.
func (m *Model) named(err error) error {
	var e *llm.Error
	if !errors.As(err, &e) || e.Model != "" {
		return err
	}
	named := *e
	named.Model = m.name
	return &named
}

func (m *Model) response(s Step) *llm.Response {
	calls := slices.Clone(s.Calls)
	m.mu.Lock()
	for i := range calls {
		if calls[i].ID == "" {
			m.calls++
			calls[i].ID = "call_" + strconv.Itoa(m.calls)
		}
	}
	m.mu.Unlock()
	finish := s.Finish
	if finish == "" {
		finish = llm.FinishStop
		if len(calls) > 0 {
			finish = llm.FinishToolCalls
		}
	}
	return &llm.Response{
		Message: llm.Message{
			Role: llm.Assistant, Text: strings.Join(s.Text, ""),
			Reasoning: s.Reasoning, ToolCalls: calls,
		},
		Finish: finish,
		Usage:  s.Usage,
		Model:  m.name,
	}
}

// wait waits for Delay and Block. It returns ctx's error if ctx ends first.
func (s *Step) wait(ctx context.Context) error {
	if err := sleep(ctx, s.Delay); err != nil {
		return err
	}
	if s.Block == nil {
		return nil
	}
	select {
	case <-s.Block:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/agent/tool"
	"gateway/store"
	"gateway/store/fault"
)

// useTools runs the tool calls of m. Before the first of them m is in the transcript, and each
// result as soon as its tool has ended.
func (t *turn) useTools(ctx context.Context, m llm.Message) error {
	m.Text = t.partial + m.Text
	t.partial = ""
	if err := t.write(ctx, m); err != nil {
		return err
	}
	fault.Point("intended")
	if err := t.runCalls(ctx, m.ToolCalls); err != nil {
		return err
	}
	if t.rounds++; t.rounds >= t.d.opts.MaxRounds {
		t.closing = askSumUp
	}
	return t.boundary(ctx)
}

// boundary is between two steps, when all calls have their results: what the person has said
// meanwhile is taken in.
func (t *turn) boundary(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // shows at the next model call
	}
	if batch := t.w.steered(true); len(batch) > 0 {
		messages := t.userMessages(ctx, batch)
		err := t.d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return t.append(tx, &t.Turn, batch, messages)
		})
		t.w.taken()
		if err != nil {
			return err
		}
		t.history = append(t.history, messages...)
		t.hear(batch)
		t.ReplyTo = quoted(batch[len(batch)-1].Message)
	}
	return nil
}

// write adds messages to the transcript.
func (t *turn) write(ctx context.Context, messages ...llm.Message) error {
	err := t.d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return t.append(tx, &t.Turn, nil, messages)
	})
	if err != nil {
		return err
	}
	fault.Point("stepped")
	t.history = append(t.history, messages...)
	return nil
}

// runCalls runs calls and writes their results: side by side if all are pure, else in their order.
// Once ctx has ended no further call begins.
func (t *turn) runCalls(ctx context.Context, calls []llm.ToolCall) error {
	names := make([]string, len(calls))
	pure := true
	for i, c := range calls {
		names[i] = c.Name
		pure = pure && t.effect(c) == tool.Pure
	}
	t.show(t.partial, "Using "+strings.Join(names, ", ")+" …")
	if !pure || len(calls) == 1 {
		for i, c := range calls {
			if i > 0 && t.w.hasNews() {
				return t.write(ctx, closeCalls(t.history, resultSkipped)...)
			}
			if m, ok := t.call(ctx, c); !ok {
				return nil
			} else if err := t.write(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}
	return t.runSideBySide(ctx, calls)
}

// maxParallel bounds how many tools of one turn run at once.
const maxParallel = 8

func (t *turn) runSideBySide(ctx context.Context, calls []llm.ToolCall) error {
	done := make(chan *llm.Message, len(calls)) // nil for a call that was given up
	slots := make(chan struct{}, maxParallel)
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if m, ok := t.call(ctx, c); ok {
				done <- &m
			} else {
				done <- nil
			}
		})
	}
	var err error
	for range calls {
		if m := <-done; m != nil && err == nil {
			err = t.write(ctx, *m)
		}
	}
	wg.Wait()
	return err
}

// effect returns what a resumed turn may do with c. An unknown tool does nothing.
func (t *turn) effect(c llm.ToolCall) tool.Effect {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return tool.Pure
	}
	return found.Effect
}

// resumeTools gives the calls that were under way when the last process ended their
// results: those that may run twice are run, and of the others the outcome is unknown.
func (t *turn) resumeTools(ctx context.Context) error {
	open := unanswered(t.history)
	var again []llm.ToolCall
	for _, c := range open {
		if t.effect(c) != tool.Once {
			again = append(again, c)
			continue
		}
		if err := t.write(ctx, toolResult(c, resultUnknown)); err != nil {
			return err
		}
	}
	if len(again) == 0 {
		return nil
	}
	return t.runCalls(ctx, again)
}

// call runs one tool and returns its result for the model. There is none if ctx had ended
// before, and if the process ends before the tool does: what becomes of such a call is up
// to the next process.
func (t *turn) call(ctx context.Context, c llm.ToolCall) (m llm.Message, ok bool) {
	if ctx.Err() != nil {
		return llm.Message{}, false
	}
	start := t.d.opts.Now()
	text, err := t.runTool(ctx, c)
	if err != nil && context.Cause(ctx) == context.Canceled {
		return llm.Message{}, false
	}
	log := t.d.logger(&t.Turn).With("tool", c.Name, "took", t.d.opts.Now().Sub(start))
	if err != nil {
		log.InfoContext(ctx, "tool failed", "err", err)
		text = "Error: " + err.Error() + "\nFind out what went wrong and try another way."
	} else {
		log.DebugContext(ctx, "tool done")
	}
	return toolResult(c, t.capped(text)), true
}

func (t *turn) runTool(ctx context.Context, c llm.ToolCall) (text string, err error) {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return "", err
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.d.opts.ToolTimeout, errToolTimeout)
	defer cancel()
	// A tool's panic is its result, also on a goroutine of its own, where the worker's
	// recover does not reach.
	defer func() {
		if p := recover(); p != nil {
			t.d.logger(&t.Turn).ErrorContext(ctx, "tool panicked", "tool", c.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the tool crashed")
		}
	}()
	result, err := found.Run(ctx, tool.Call{
		ID: c.ID, Args: args, Address: t.Address, Session: string(t.Session),
		Sender: t.sender, Role: t.role, Turn: t.ID,
	})
	if err != nil && context.Cause(ctx) == errToolTimeout {
		err = fmt.Errorf("%s took longer than %s", c.Name, t.d.opts.ToolTimeout)
	}
	return result.Text, err
}

var errToolTimeout = errors.New("the tool takes too long")

// A longer result than maxResult characters is stored in resultsDir of the workspace; the
// model sees its head and tail.
const (
	maxResult  = 16_000
	headResult = 8_000
	tailResult = 4_000
	resultsDir = "tool-results"
)

func (t *turn) capped(text string) string {
	if text == "" {
		return "(no output)"
	}
	if len(text) <= maxResult {
		return text
	}
	where := "the rest could not be stored"
	if file, err := t.offload(text); err == nil {
		where = "the whole is in " + file
	} else {
		t.d.logger(&t.Turn).Warn("tool result not stored", "err", err)
	}
	tail := text[len(text)-tailResult:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return fmt.Sprintf("%s\n\n[… %d characters in all; %s …]\n\n%s",
		clip(text, headResult), len(text), where, tail)
}

// offload stores text in the workspace and returns its path there.
func (t *turn) offload(text string) (string, error) {
	root := t.d.opts.Workspace
	if root == nil {
		return "", errors.New("there is no workspace")
	}
	if err := root.MkdirAll(resultsDir, 0o700); err != nil {
		return "", err
	}
	t.mu.Lock()
	t.results++
	n := t.results
	t.mu.Unlock()
	file := path.Join(resultsDir, fmt.Sprintf("turn-%d-%d-%d.txt", t.ID, t.Attempts, n))
	return file, root.WriteFile(file, []byte(text), 0o600)
}

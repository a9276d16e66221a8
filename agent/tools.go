package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/agent/picture"
	"gateway/agent/tool"
	"gateway/bus"
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
	if t.rounds++; t.rounds >= t.maxRounds() {
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
		messages, r, err := t.perceive(ctx, batch)
		if err != nil {
			return err
		}
		err = t.tx(ctx, func(tx *store.Tx) error {
			if err := r.touch(tx); err != nil {
				return err
			}
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
	err := t.tx(ctx, func(tx *store.Tx) error {
		return t.append(tx, &t.Turn, nil, messages)
	})
	if err != nil {
		return err
	}
	fault.Point("stepped")
	t.history = append(t.history, messages...)
	return nil
}

// runCalls runs calls and writes their results: side by side if all are pure and nobody need be
// asked, else in their order. Once ctx has ended no further call begins.
func (t *turn) runCalls(ctx context.Context, calls []llm.ToolCall) error {
	if len(calls) == 0 {
		return nil
	}
	names := make([]string, len(calls))
	free := true
	for i, c := range calls {
		names[i] = c.Name
		free = free && t.effect(c) == tool.Pure && t.verdict(c).now()
	}
	t.show(t.partial, "Using "+strings.Join(names, ", ")+" …")
	if !free || len(calls) == 1 {
		for i, c := range calls {
			if i > 0 && t.w.hasNews() {
				return t.write(ctx, closeCalls(t.history, resultSkipped)...)
			}
			done, ok := t.call(ctx, c, false)
			if !ok {
				return nil
			}
			if err := t.conclude(ctx, c, done); err != nil {
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
	type ended struct {
		call llm.ToolCall
		done done
		ok   bool // false for a call that was given up
	}
	results := make(chan ended, len(calls))
	slots := make(chan struct{}, maxParallel)
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d, ok := t.call(ctx, c, false)
			results <- ended{c, d, ok}
		})
	}
	var err error
	for range calls {
		if e := <-results; e.ok && err == nil {
			err = t.conclude(ctx, e.call, e.done)
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
	if len(open) > 0 {
		if resumed, err := t.resumeWait(ctx, open); resumed || err != nil {
			return err
		}
	}
	var again []llm.ToolCall
	for _, c := range open {
		if t.effect(c) != tool.Once {
			again = append(again, c)
			continue
		}
		if err := t.write(ctx, t.result(ctx, c, tool.Result{Text: resultUnknown})); err != nil {
			return err
		}
	}
	return t.runCalls(ctx, again)
}

// A done is what a call has come to: the result that is written, and what is written with it.
type done struct {
	result tool.Result
	asks   *asks // who is to be asked before the call may happen; or nil
}

// call runs one tool. There is no result if ctx had ended before, if everything is halted, and if
// the process ends before the tool does: what becomes of such a call is up to the next process.
func (t *turn) call(ctx context.Context, c llm.ToolCall, granted bool) (d done, ok bool) {
	if ctx.Err() != nil || t.d.halted(ctx) != nil {
		return done{}, false
	}
	start := t.d.opts.Now()
	ctx, ended := t.d.opts.Observer.Tool(ctx, ToolBegin{Name: c.Name, ID: c.ID})
	d, err := t.runTool(ctx, c, granted)
	ended(t.toolEnd(c, d, err))
	if err != nil && context.Cause(ctx) == context.Canceled {
		return done{}, false
	}
	log := t.d.logger(&t.Turn).With("tool", c.Name, "took", t.d.opts.Now().Sub(start))
	if err != nil {
		log.InfoContext(ctx, "tool failed", "err", err)
		d.result = tool.Result{Text: toolError(err)}
	} else {
		log.DebugContext(ctx, "tool done")
	}
	return d, true
}

// toolError is what the model is told of a call that has failed.
func toolError(err error) string {
	return "Error: " + err.Error() + "\nFind out what went wrong and try another way."
}

func (t *turn) runTool(ctx context.Context, c llm.ToolCall, granted bool) (d done, err error) {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return done{}, err
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	if err != nil {
		return done{}, err
	}
	call := t.toolCall(c.ID, args)
	limit := t.d.opts.ToolTimeout
	if found.Timeout > 0 {
		limit = found.Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errToolTimeout)
	defer cancel()
	// A tool's panic is its result, also on a goroutine of its own, where the worker's
	// recover does not reach.
	defer func() {
		if p := recover(); p != nil {
			t.d.logger(&t.Turn).ErrorContext(ctx, "tool panicked", "tool", c.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			d, err = done{}, errors.New("the tool crashed")
		}
	}()
	if !granted {
		if a, err := t.permit(found, call); a != nil || err != nil {
			return done{asks: a}, err
		}
	}
	if found.Effect != tool.Pure && bytes.Contains(args, []byte(memoryFolder+"/")) {
		t.wrote = true // no other call runs beside one that is not pure
	}
	d.result, err = found.Run(ctx, call)
	if err != nil && context.Cause(ctx) == errToolTimeout {
		err = fmt.Errorf("%s took longer than %s", c.Name, limit)
	}
	return d, err
}

var errToolTimeout = errors.New("the tool takes too long")

// conclude writes what a call has come to. It reports errParked if the turn waits from now on.
func (t *turn) conclude(ctx context.Context, c llm.ToolCall, d done) error {
	switch {
	case d.asks != nil:
		return t.parkFor(ctx, c, d.asks)
	case d.result.Wait != nil:
		return t.parkFor(ctx, c, t.waits(d.result))
	}
	r := d.result
	if r.Commit == nil {
		return t.write(ctx, t.result(ctx, c, r))
	}
	var m llm.Message
	err := t.tx(ctx, func(tx *store.Tx) error {
		text, err := r.Commit(tx)
		if refusal, ok := errors.AsType[*tool.RefusedError](err); ok {
			text, err = toolError(refusal), nil
		}
		if err != nil {
			return err
		}
		m = toolResult(c, t.capped(text))
		return t.append(tx, &t.Turn, nil, []llm.Message{m})
	})
	if err != nil {
		return err
	}
	t.d.Inbox.Wake() // what Commit has put there is not heard of otherwise
	t.history = append(t.history, m)
	return nil
}

// result returns r as the model sees it.
func (t *turn) result(ctx context.Context, c llm.ToolCall, r tool.Result) llm.Message {
	m := toolResult(c, t.guardLoop(c, t.capped(framed(r)+t.storeFiles(c, r.Files))))
	if len(r.Images) == 0 || !t.d.look(ctx) {
		return m
	}
	defer t.d.looked()
	for _, im := range r.Images {
		kept, err := t.keepImage(im)
		if err != nil {
			t.d.logger(&t.Turn).Warn("image of a tool not kept", "tool", c.Name, "err", err)
			m.Text += "\n[an image that can't be shown: " + foreignName(im.Name) + "]"
			continue
		}
		m.Images = append(m.Images, kept)
		m.Text += "\n[image " + foreignName(im.Name) + " is in " + kept.Path + " and shown below]"
	}
	m.Text = strings.TrimPrefix(m.Text, noOutput+"\n")
	return m
}

// storeFiles stores what a tool has found among the files of the conversation, and returns where.
func (t *turn) storeFiles(c llm.ToolCall, files []tool.File) string {
	var b strings.Builder
	for _, f := range files {
		where, err := t.keep(f.Name, f.Data)
		if err != nil {
			t.d.logger(&t.Turn).Warn("file of a tool not kept", "tool", c.Name, "err", err)
			where = "nowhere, because it could not be stored"
		}
		fmt.Fprintf(&b, "\n[file %s, %d bytes, is in %s]", foreignName(f.Name), len(f.Data), where)
	}
	return b.String()
}

// keepImage stores im among the files of the conversation, in the size that models take.
func (t *turn) keepImage(im tool.Image) (llm.Image, error) {
	data, kind, err := picture.Fit(bytes.NewReader(im.Data), maxImageSide, maxImageBytes)
	if err != nil {
		return llm.Image{}, err
	}
	_, ext, _ := strings.Cut(kind, "/")
	where, err := t.keep("image."+ext, data)
	if err != nil {
		return llm.Image{}, err
	}
	return llm.Image{Path: where, Type: kind}, nil
}

// A longer result than maxResult bytes is stored among the files of the conversation; the model
// sees its head and tail.
const (
	maxResult  = 16_000
	headResult = 8_000
	tailResult = 4_000
)

// memoryFolder is how tools call the folder of the scope.
const memoryFolder = "memory"

const noOutput = "(no output)"

func (t *turn) capped(text string) string {
	if text == "" {
		return noOutput
	}
	if len(text) <= maxResult {
		return text
	}
	where := "the rest could not be stored"
	if file, err := t.keep(bus.Offload, []byte(text)); err == nil {
		where = "the whole is in " + file
	} else {
		t.d.logger(&t.Turn).Warn("tool result not stored", "err", err)
	}
	tail := text[len(text)-tailResult:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return fmt.Sprintf("%s\n\n[… %d bytes in all; %s …]\n\n%s",
		clip(text, headResult), len(text), where, tail)
}

// keep stores data among the files of the conversation, and returns how the model knows it.
func (t *turn) keep(name string, data []byte) (string, error) {
	if t.d.Media == nil {
		return "", errors.New("there is no place for files")
	}
	a, err := t.d.Media.Put(t.Address, name, bytes.NewReader(data))
	return path.Join(mediaFolder, path.Base(a.Path)), err
}

// compactJSON returns arguments in a form in which equal ones are the same.
func compactJSON(arguments string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(arguments)); err != nil {
		return arguments
	}
	return b.String()
}

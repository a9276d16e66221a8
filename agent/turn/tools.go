package turn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store"
	"gateway/store/fault"
	"gateway/store/plaintext"
)

// A toolRound makes the tool calls of a model's answer.
type toolRound struct {
	*turn
	costs       *costs
	preview     *preview
	conv        *conversation
	model       *modelCaller
	permissions *permissions

	rounds int               // number of model calls that used tools
	seen   map[callHash]int  // number of equal calls with equal results
	asked  question.Question // question for which the turn is suspended

	cancelCall func()   // ends the call that waits for the answer to asked; or nil
	heldCall   heldCall // the call that waited for the answer when the turn was suspended
	wrote      bool     // documents of the scope may have changes that are not recorded
}

// useTools makes the tool calls of m. It writes m before the first call, and each result as soon as
// the call has ended.
func (t *toolRound) useTools(ctx context.Context, m llm.Message) error {
	m.Text = t.preview.partial + m.Text
	t.preview.partial = ""
	if err := t.conv.write(ctx, m); err != nil {
		return err
	}
	fault.Point("intended")
	if err := t.runCalls(ctx, m.ToolCalls); err != nil {
		return err
	}
	if t.rounds++; t.rounds >= t.maxRounds() {
		t.model.closing = AskSumUp
	}
	return nil
}

// runCalls makes calls and writes their results: concurrently if all are pure and none needs
// approval, otherwise in order. No call begins after ctx is done.
func (t *toolRound) runCalls(ctx context.Context, calls []llm.ToolCall) error {
	if len(calls) == 0 {
		return nil
	}
	concurrent := len(calls) > 1
	for _, c := range calls {
		concurrent = concurrent && t.conv.effect(c) == tool.Pure && t.permissions.predict(c) != policy.Ask
	}
	t.preview.showCalls(calls...)
	if !concurrent {
		for i, c := range calls {
			if i > 0 && t.mailbox.HasNews() {
				return t.conv.write(ctx, prompt.FillMissingResults(t.conv.history, ResultSkipped)...)
			}
			done, ok := t.call(ctx, c, nil)
			if !ok {
				return nil
			}
			if err := t.conclude(ctx, c, done); err != nil {
				return err
			}
		}
		return nil
	}
	return t.runConcurrently(ctx, calls)
}

// MaxParallel is the maximum number of concurrent tool calls of a turn, with those whose results
// wait to be written.
const MaxParallel = 8

// runConcurrently makes calls, up to MaxParallel at a time, and writes each result as soon as its
// call has ended. Results that wait for an answer come last.
func (t *toolRound) runConcurrently(ctx context.Context, calls []llm.ToolCall) error {
	type ended struct {
		call llm.ToolCall
		done callResult
		ok   bool // false if the call was given up
	}
	results := make(chan ended, len(calls))
	slots := make(chan struct{}, MaxParallel)
	over := make(chan struct{})
	defer close(over) // also after a panic in conclude
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() {
			select {
			case slots <- struct{}{}:
			case <-over:
				return
			}
			d, ok := t.call(ctx, c, nil)
			results <- ended{c, d, ok}
		})
	}
	var err error
	var waits []ended
	for range calls {
		e := <-results
		switch {
		case e.ok && e.done.result.Wait != nil:
			waits = append(waits, e)
		case e.ok && err == nil:
			err = t.conclude(ctx, e.call, e.done)
		}
		<-slots // not before: a result may have a large image
	}
	wg.Wait()
	// A turn waits for one answer at a time. Further calls that wait are made again after it.
	for _, e := range waits {
		if err == nil {
			err = t.conclude(ctx, e.call, e.done)
		} else if cancel := e.done.result.Wait.Cancel; cancel != nil {
			cancel()
		}
	}
	return err
}

// markCut gives the last call in resp the beginning of an object if the limit of the answer, or the
// provider's filter, has come before its arguments. Otherwise it would be made without arguments,
// also after a restart.
func markCut(resp *llm.Response) {
	last := &resp.Message.ToolCalls[len(resp.Message.ToolCalls)-1]
	cut := resp.Finish == llm.FinishLength || resp.Finish == llm.FinishFiltered
	if cut && strings.TrimSpace(last.Arguments) == "" {
		last.Arguments = "{"
	}
}

// endsEarly reports whether the arguments of a call are the beginning of a JSON value.
func endsEarly(arguments string) bool {
	var v json.RawMessage
	err := json.NewDecoder(strings.NewReader(arguments)).Decode(&v)
	return errors.Is(err, io.ErrUnexpectedEOF)
}

var errCutOff = errors.New("the arguments of this call end too early, so nothing was done; if " +
	"your answer reached the limit of its length, make smaller calls, and write a long file in parts")

// resumeTools gives results to the calls that were under way when the last process ended. Calls
// that may run twice run again. For the others the result says that the outcome is unknown. waited
// reports whether the turn was suspended for one of them.
func (t *toolRound) resumeTools(ctx context.Context) (waited bool, err error) {
	open := prompt.Unanswered(t.conv.history)
	if len(open) > 0 {
		if waited, err = t.resumeWait(ctx, open); waited || err != nil {
			return waited, err
		}
	}
	var again []llm.ToolCall
	for _, c := range open {
		t.record(ctx, c, c.Arguments, background.Written) // the last process may have made the call
		if t.conv.effect(c) != tool.Once {
			again = append(again, c)
			continue
		}
		if err := t.conv.write(ctx, t.result(ctx, c, tool.Result{Text: ResultUnknown})); err != nil {
			return false, err
		}
	}
	return false, t.runCalls(ctx, again)
}

// A callResult is the result of a call with everything that is written with it.
type callResult struct {
	result tool.Result
	asks   *approvalRequest // question to ask before the call may run; or nil
	source string           // origin of foreign text in an error
}

// call makes one tool call. There is no result if ctx is done, if everything is halted, or if the
// process stops before the tool has ended: the next process then makes such a call. granted is the
// question by which somebody approved the call, or the question whose answer the tool has waited
// for, or nil.
func (t *toolRound) call(
	ctx context.Context, c llm.ToolCall, granted *question.Question,
) (d callResult, ok bool) {
	if ctx.Err() != nil || t.env.Calls.CheckHalted(ctx) != nil {
		return callResult{}, false
	}
	start := t.env.Now()
	ctx, ended := t.env.Calls.Observer.Tool(ctx, c.Name)
	d, err := t.runTool(ctx, c, granted)
	ended(t.toolEnd(c, d, err))
	if err != nil && context.Cause(ctx) == context.Canceled {
		return callResult{}, false
	}
	log := t.logger().With("tool", c.Name, "took", t.env.Now().Sub(start))
	if err != nil {
		// The error may quote the call, and so what somebody wrote, which the log must not have.
		log.InfoContext(ctx, "tool failed")
		log.DebugContext(ctx, "tool failed because of", "err", err)
		d = callResult{result: tool.Result{Text: ToolError(err, d.result.Foreign)},
			source: d.result.Foreign}
	} else {
		log.DebugContext(ctx, "tool done")
	}
	return d, true
}

// ToolError returns the text that the model reads about a failed call. If the error may contain
// text of source, the text is framed as foreign text.
func ToolError(err error, source string) string {
	text := prompt.Escape(err.Error())
	if source != "" {
		text = prompt.Frame(source, err.Error())
	}
	return "Error: " + text + "\nFind out what went wrong and try another way."
}

func (t *toolRound) runTool(
	ctx context.Context, c llm.ToolCall, granted *question.Question,
) (d callResult, err error) {
	// A panic becomes the call's error. The recover of the worker would not catch it on this
	// goroutine.
	defer func() {
		if p := recover(); p != nil {
			d, err = callResult{}, t.crashed(ctx, c.Name, p)
		}
	}()
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return callResult{}, err
	}
	args, err := t.tools.Arguments(c.Name, c.Arguments)
	if err != nil && endsEarly(c.Arguments) {
		err = errCutOff
	}
	if err != nil {
		return callResult{}, err
	}
	call := t.permissions.toolCall(c.ID, args)
	limit := t.env.Profile.ToolTimeout
	if found.Timeout > 0 {
		limit = found.Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errToolTimeout)
	defer cancel()
	if granted == nil {
		if a, err := t.permissions.permit(found, call); a != nil || err != nil {
			return callResult{asks: a}, err
		}
	} else if granted.Kind == question.Ask {
		t.heldCall = nil
		call.Reply = &tool.Reply{State: granted.Continues, Text: granted.Answer,
			Answered: granted.State == question.Answered}
	} else if granted.Subject != Approvable(found, call).Subject() {
		return callResult{result: tool.Result{Text: ResultChanged}}, nil
	}
	t.record(ctx, c, string(args), background.ByHand)
	d.result, err = t.runApart(ctx, found, call)
	t.record(ctx, c, string(args), background.Written)
	if own, _ := documentsIn(string(args)); own && errors.Is(err, ErrAbandoned) {
		t.wrote = true // it still runs
	}
	switch cause := context.Cause(ctx); {
	case err == nil || errors.Is(err, ErrAbandoned):
	case cause == errToolTimeout:
		err = fmt.Errorf("%s took longer than %s", c.Name, limit)
	case cause == errTurnTimeout:
		err = context.DeadlineExceeded
	}
	return d, err
}

// record records, as a change by somebody, the documents that the call c may change. If that fails
// for documents of the scope, the end of the turn records them. People's changes are recorded
// before the call, so that the agent's version has only the agent's changes. A call that is not
// pure runs alone.
func (t *toolRound) record(ctx context.Context, c llm.ToolCall, args string, by version.Change) {
	own, shared := documentsIn(args)
	// Nobody else can change the shared documents.
	shared = shared && t.role.AtLeast(bus.Admin)
	if t.env.Documents == nil || t.conv.effect(c) == tool.Pure || !own && !shared {
		return
	}
	scope := t.Scope
	if !own {
		scope = ""
	}
	err := t.env.Merger.Versions.Record(context.WithoutCancel(ctx), scope, shared, by)
	if err != nil {
		t.wrote = t.wrote || own
		t.logger().WarnContext(ctx, "versions of documents lack a change, which the next one contains",
			"author", by.Author, "err", err)
	}
}

// documentsIn reports whether the arguments of a call name documents or skills of the scope, and
// whether they name shared ones.
func documentsIn(args string) (own, shared bool) {
	for _, name := range append([]string{document.SkillsFolder + "/"}, document.SharedNames...) {
		shared = shared ||
			strings.Count(args, name) > strings.Count(args, memoryFolder+"/"+name)
	}
	return strings.Contains(args, memoryFolder+"/"), shared
}

// crashed returns the error of a call that has panicked.
func (t *toolRound) crashed(ctx context.Context, name string, p any) error {
	t.env.Logger.ErrorContext(ctx, "tool panicked", "session", t.Session, "tool", name,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return errors.New("the tool crashed")
}

// AbandonAfter is how long the turn waits for a tool whose context is done.
const AbandonAfter = 10 * time.Second

// ErrAbandoned reports a call that still runs although its context is done. Nobody waits for it.
var ErrAbandoned = errors.New("it did not end when it was told to, and its outcome is unknown; " +
	"check what it has done before you repeat it")

// runApart runs a tool on its own goroutine, so that a tool that ignores its context blocks its
// session for AbandonAfter at most. It returns a panic as an error.
func (t *toolRound) runApart(
	ctx context.Context, f tool.Tool, call tool.Call,
) (tool.Result, error) {
	type ended struct {
		result tool.Result
		err    error
	}
	over := make(chan ended, 1)
	var left atomic.Bool // whether the call was abandoned
	go func() {
		var e ended
		defer func() {
			if p := recover(); p != nil {
				e = ended{err: t.crashed(ctx, f.Name, p)}
			}
			over <- e
			if !left.CompareAndSwap(false, true) {
				t.env.Counters.Abandoned.Add(-1)
			}
		}()
		e.result, e.err = f.Run(ctx, call)
	}()
	select {
	case e := <-over:
		return e.result, e.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(AbandonAfter)
	defer timer.Stop()
	select {
	case e := <-over:
		return e.result, e.err
	case <-timer.C:
	}
	t.env.Counters.Abandoned.Add(1)
	if !left.CompareAndSwap(false, true) { // it has just ended
		t.env.Counters.Abandoned.Add(-1)
		e := <-over
		return e.result, e.err
	}
	t.env.Logger.ErrorContext(ctx, "tool abandoned: it goes on though it was to end",
		"session", t.Session, "tool", f.Name)
	return tool.Result{}, ErrAbandoned
}

var errToolTimeout = errors.New("the tool takes too long")

// conclude writes the end of a call. It reports errSuspended if the turn is now suspended.
func (t *toolRound) conclude(ctx context.Context, c llm.ToolCall, d callResult) error {
	t.costs.settle()
	switch {
	case d.asks != nil:
		return t.suspendFor(ctx, c, d.asks)
	case d.result.Wait != nil:
		return t.suspendFor(ctx, c, t.permissions.waits(d.result))
	}
	r := d.result
	if r.Commit == nil {
		m := t.result(ctx, c, r)
		if m.Foreign = cmp.Or(r.Foreign, d.source); r.Trusted {
			m.Foreign = ""
		}
		return t.conv.write(ctx, m)
	}
	var m llm.Message
	err := t.costs.tx(ctx, func(tx *store.Tx) error {
		text, err := r.Commit(tx)
		if refusal, ok := errors.AsType[*tool.RefusedError](err); ok {
			text, err = ToolError(refusal, ""), nil
		} else {
			text = prompt.Frame(r.Foreign, text)
		}
		if err != nil {
			return err
		}
		// Store no file here, because other writers wait for this transaction: the text of a Commit
		// is short.
		m = prompt.ToolResult(c, cutResult(cmp.Or(text, noOutput), "the rest is not kept"))
		if !r.Trusted {
			m.Foreign = r.Foreign
		}
		return t.conv.append(tx, &t.Turn, nil, []llm.Message{m})
	})
	if err != nil {
		return err
	}
	t.env.Inbox.Wake() // Commit may have put messages into the inbox
	t.conv.recall(m)
	return nil
}

// result returns r as the model sees it.
func (t *toolRound) result(ctx context.Context, c llm.ToolCall, r tool.Result) llm.Message {
	text := prompt.Frame(r.Foreign, r.Text) + t.storeFiles(c, r.Files)
	m := prompt.ToolResult(c, t.detectLoop(c, t.capped(text)))
	for _, im := range r.Images {
		kept, err := t.storeImage(ctx, im)
		if err != nil {
			t.logger().Warn("image of a tool not kept", "tool", c.Name, "err", err)
			m.Text += "\n[an image that can't be shown: " + prompt.SourceName(im.Name) + ": " +
				attachment.Reason(err) + "]"
			continue
		}
		m.Images = append(m.Images, kept)
		m.Text += "\n[image " + prompt.SourceName(im.Name) + " is in " + kept.Path + " and shown below]"
	}
	m.Text = strings.TrimPrefix(m.Text, noOutput+"\n")
	return m
}

// storeFiles stores files from a tool in the folder of the conversation. It returns a text that
// names their paths.
func (t *toolRound) storeFiles(c llm.ToolCall, files []tool.File) string {
	var b strings.Builder
	for _, f := range files {
		where, err := t.env.Attachments.SaveFile(t.Address, f.Name, f.Data)
		if err != nil {
			t.logger().Warn("file of a tool not kept", "tool", c.Name, "err", err)
			where = "nowhere, because it could not be stored"
		}
		fmt.Fprintf(&b, "\n[file %s, %d bytes, is in %s]", prompt.SourceName(f.Name), len(f.Data), where)
	}
	return b.String()
}

// storeImage stores im in the folder of the conversation, in a size that models accept.
func (t *toolRound) storeImage(ctx context.Context, im tool.Image) (llm.Image, error) {
	data, kind, err := t.env.Attachments.FitImage(ctx, t.Address, im.Data)
	if err != nil {
		return llm.Image{}, err
	}
	_, ext, _ := strings.Cut(kind, "/")
	where, err := t.env.Attachments.SaveFile(t.Address, "image."+ext, data)
	if err != nil {
		return llm.Image{}, err
	}
	return llm.Image{Path: where, Type: kind, Ready: true}, nil
}

// A result longer than MaxResult bytes is stored in the folder of the conversation. The model sees
// its beginning and end.
const (
	MaxResult  = 16_000
	HeadResult = 8_000
	TailResult = 4_000
)

// memoryFolder is the name that tools use for the folder of the scope.
const memoryFolder = "memory"

const noOutput = "(no output)"

func (t *toolRound) capped(text string) string {
	if text == "" {
		return noOutput
	}
	if len(text) <= MaxResult {
		return text
	}
	where := "the rest could not be stored"
	if file, err := t.env.Attachments.SaveFile(t.Address, bus.Offload, []byte(text)); err == nil {
		where = "the whole is in " + file
	} else {
		t.logger().Warn("tool result not stored", "err", err)
	}
	return cutResult(text, where)
}

// cutResult returns the beginning and the end of a result that is too long.
func cutResult(text, where string) string {
	if len(text) <= MaxResult {
		return text
	}
	return withoutMiddle(text, HeadResult, TailResult, where)
}

// withoutMiddle returns the first and the last bytes of a text. where says where the rest is.
func withoutMiddle(text string, first, last int, where string) string {
	return fmt.Sprintf("%s\n\n[… %d bytes in all; %s …]\n\n%s",
		plaintext.Cut(text, first), len(text), where, plaintext.Tail(text, last))
}

// compactJSON returns arguments in a canonical form, so that equal arguments compare equal.
func compactJSON(arguments string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(arguments)); err != nil {
		return arguments
	}
	return b.String()
}

// toolEnd describes how the call c has ended.
func (t *toolRound) toolEnd(c llm.ToolCall, d callResult, err error) observe.ToolEnd {
	_, unknown := t.tools.Lookup(c.Name)
	return observe.ToolEnd{Known: unknown == nil, Waits: d.asks != nil || d.result.Wait != nil,
		Err: err}
}

// addVersion adds a background task that records a version of the documents, if the turn may have
// changed some. [Run] wakes the tasks.
func (t *toolRound) addVersion(tx *store.Tx) error {
	if !t.wrote || t.env.Documents == nil {
		return nil
	}
	return t.env.Background.Add(tx, background.Task{Work: background.Work{
		Kind: background.Version, Scope: t.Scope}})
}

package turn

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/prompt"
	"gateway/bus"
)

// An asker asks the model.
type asker struct {
	conversation
	clock     *clock
	closing   string               // not "": why the model must answer now, without tools
	shortened bool                 // the prompt was, because the model found it too long
	noImages  bool                 // the model has refused one
	images    map[string]llm.Image // that were loaded for this turn, by path
}

// ask calls the model once, showing its answer while it grows.
func (t *asker) ask(ctx context.Context) (resp *llm.Response, err error) {
	if err := t.takeSlot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-t.env.Calls.Slots }()
	if err := t.env.Calls.Halted(ctx); err != nil {
		return nil, err
	}
	req := t.request(ctx)
	hold, err := t.reserve(ctx, req)
	if err != nil {
		return nil, err
	}
	defer t.giveBack(hold)
	ctx, seen := t.env.Calls.Watch(ctx, observe.ModelBegin{Model: t.settings.ModelID})
	defer func() { seen.End(resp, err) }()
	var text strings.Builder
	text.WriteString(t.partial)
	for ev, err := range t.settings.Model.Stream(ctx, req) {
		seen.Event()
		if err != nil {
			t.spendBroken(ctx, hold, req, text.Len()-len(t.partial))
			return nil, err
		}
		if ev.Reset {
			text.Reset()
			text.WriteString(t.partial)
		}
		if ev.Text != "" {
			text.WriteString(ev.Text)
			t.show(text.String(), "")
		}
		if ev.Response != nil {
			ev.Response.Message.ToolCalls = t.tools.Direct(ev.Response.Message.ToolCalls)
			t.env.Calls.Estimates.LearnFrom(req, ev.Response)
			t.bill.session.Context = ev.Response.Usage.Input
			t.prompt = ev.Response.Usage.Input + ev.Response.Usage.Output
			t.shortened = false
			t.spend(hold, ev.Response.Model, ev.Response.Usage)
			return ev.Response, nil
		}
	}
	// Only a model that breaks its contract ends without a response.
	return nil, &llm.Error{Kind: llm.Unavailable, Model: t.settings.ModelName}
}

// spendBroken counts a call that ended after so many bytes of the answer, before the model could
// say what it has used: by the length of both. A call that was refused has used nothing.
func (t *asker) spendBroken(
	ctx context.Context, hold *budget.Hold, req llm.Request, answer int,
) {
	if answer == 0 && ctx.Err() == nil {
		return
	}
	t.spend(hold, t.settings.ModelID, llm.Usage{
		Input:  t.env.Calls.Estimates.Tokens(t.settings.ModelID, prompt.Size(req)),
		Output: t.env.Calls.Estimates.Tokens(t.settings.ModelID, answer),
	})
}

// request is what the model is asked now.
func (t *asker) request(ctx context.Context) llm.Request {
	messages := prompt.Prepare(t.tools.Offered(t.history), t.historySize())
	messages = prompt.WithToolImages(messages)
	messages = slices.Insert(messages, 0, llm.Message{Role: llm.System, Text: t.system})
	req := llm.Request{MaxOutput: t.settings.MaxOutput, Effort: t.settings.Effort}
	if t.closing == "" {
		req.Tools = t.tools.Specs()
	}
	if t.partial != "" {
		messages = append(messages, llm.Message{Role: llm.Assistant, Text: t.partial},
			llm.Message{Role: llm.User, Text: AskContinue})
	} else if t.closing != "" {
		messages = append(messages, llm.Message{Role: llm.User, Text: t.closing})
	}
	req.Messages = t.withImages(ctx, prompt.Merge(messages))
	return req
}

// Text is shown once it has been growing for ShowAfter: an answer that comes at once needs no
// preview. One that has not begun after typingAfter is announced without text.
const (
	ShowAfter   = 100 * time.Millisecond
	showEvery   = 50 * time.Millisecond
	typingAfter = 700 * time.Millisecond
)

// live is the preview of the answer under way. The turn's mu guards it.
type live struct {
	newest bus.Progress
	timer  *time.Timer // publishes newest when it is due
	due    bool        // the timer runs for a text, not for the announcement
	grows  time.Time   // when the first text came
	shown  time.Time   // of the newest that was published
	any    bool        // something was published
	over   bool        // nothing more of it is published
}

// A preview shows an answer while it grows.
type preview struct {
	costs
	woken   bool   // the turn goes on after it has waited
	partial string // beginning of the answer, cut off by the output limit

	mu   sync.Mutex // against the timer of live
	live *live      // nil if there is none; mu guards it
}

// showBegin begins a preview, which announces the answer if it does not come soon.
func (t *preview) showBegin() {
	if !t.trigger.Origin.Interactive() || t.mayBeSilent() {
		return // nobody watches
	}
	l := &live{newest: t.progress()}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.timer = time.AfterFunc(typingAfter, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.live == l && !l.over && (l.due || !l.any) { // else it comes too late
			t.publish(t.env.Now())
		}
	})
	t.live = l
}

// show shows the answer so far and what is being done: at once, or, if that is too soon, when it
// is time.
func (t *preview) show(text, status string) {
	now := t.env.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.live
	if l == nil || l.over {
		return
	}
	l.newest.Text, l.newest.Status = text, status
	if status != "" {
		t.publish(now)
		return
	}
	if l.grows.IsZero() {
		l.grows = now
	}
	wait := max(l.grows.Add(ShowAfter).Sub(now), l.shown.Add(showEvery).Sub(now))
	switch {
	case wait <= 0:
		t.publish(now)
	case !l.due:
		l.due = true
		l.timer.Reset(wait)
	}
}

// publish shows the newest of the preview. t.mu is held.
func (t *preview) publish(now time.Time) {
	t.live.timer.Stop()
	t.live.due, t.live.shown, t.live.any = false, now, true
	t.env.Live.Publish(t.live.newest)
}

// hide keeps more of the preview from coming, also if its timer has fired and waits for the turn's
// mu, and reports whether anything of it was shown: only then does a message take its place.
func (t *preview) hide() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		return false
	}
	t.live.timer.Stop()
	t.live.over = true
	return t.live.any
}

// showEnd ends the preview. void says that no message takes its place.
func (t *preview) showEnd(void bool) {
	// An earlier process, or the turn before it has waited, may have shown something.
	if t.hide() || void && t.ID != 0 && (t.Attempts > 1 || t.woken) {
		p := t.progress()
		p.Ended, p.Void = true, void
		t.env.Live.Publish(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = nil
}

// outbound returns the message with the given text that ends the preview, if there is one.
func (t *preview) outbound(text string) bus.OutboundMessage {
	out := bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo, Text: text, Answers: t.answers}
	if t.hide() || t.Attempts > 1 || t.woken { // an earlier process may have shown one
		out.Stream = t.stream()
	}
	return out
}

func (t *preview) progress() bus.Progress {
	return bus.Progress{To: t.Address, Stream: t.stream(), ReplyTo: t.ReplyTo}
}

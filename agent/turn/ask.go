package turn

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/activity"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
)

// A modelCaller makes the model calls of a turn.
type modelCaller struct {
	*turn
	costs   *costs
	preview *preview
	conv    *conversation

	clock     *clock
	closing   string               // why the model must answer now without tools; "": it need not
	shortened bool                 // the prompt was shortened because it was too long for the model
	images    map[string]llm.Image // images loaded for this turn, by path

	noImages   bool // the model has refused an image
	halved     int  // how often the model has refused the number of images
	noThoughts bool // the provider has refused thoughts of earlier answers
	noTools    bool // the model has refused tools
}

// ask calls the model once and shows the growing answer.
func (t *modelCaller) ask(ctx context.Context) (resp *llm.Response, err error) {
	if err := t.takeSlot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-t.env.Calls.Slots }()
	if err := t.env.Calls.CheckHalted(ctx); err != nil {
		return nil, err
	}
	req := t.request(ctx)
	hold, err := t.costs.reserve(ctx, req)
	if err != nil {
		return nil, err
	}
	defer t.costs.release(hold)
	ctx, seen := t.env.Calls.Watch(ctx, t.settings.ModelID)
	defer func() { seen.End(resp, err) }()
	var text strings.Builder
	text.WriteString(t.preview.partial)
	for ev, err := range t.settings.Model.Stream(ctx, req) {
		seen.Event()
		if err != nil {
			t.spendBroken(ctx, hold, req, text.Len()-len(t.preview.partial))
			return nil, err
		}
		if ev.Reset {
			text.Reset()
			text.WriteString(t.preview.partial)
		}
		if ev.Text != "" {
			text.WriteString(ev.Text)
			t.preview.show(text.String(), "")
		}
		if ev.Response != nil {
			ev.Response.Message.ToolCalls = t.tools.Direct(ev.Response.Message.ToolCalls)
			t.env.Calls.Complete(req, ev.Response)
			t.costs.bill.session.Context = ev.Response.Usage.Input
			t.conv.prompt = ev.Response.Usage.Input + ev.Response.Usage.Output
			t.shortened = false
			t.costs.spend(hold, ev.Response.Model, ev.Response.Usage)
			return ev.Response, nil
		}
	}
	// A model that ends without an error or a response breaks its contract.
	return nil, &llm.Error{Kind: llm.Unavailable, Model: t.settings.ModelName}
}

// spendBroken records the usage of a call that broke off before the model reported it.
func (t *modelCaller) spendBroken(
	ctx context.Context, hold *budget.Reservation, req llm.Request, answer int,
) {
	used := t.env.Calls.Broken(ctx, t.settings.ModelID, req, answer)
	if used != (llm.Usage{}) {
		t.costs.spend(hold, t.settings.ModelID, used)
	}
}

// request returns the next request to the model.
func (t *modelCaller) request(ctx context.Context) llm.Request {
	messages := prompt.Prepare(t.tools.Offered(t.conv.history), t.conv.historySize())
	if t.noThoughts {
		prompt.DropThoughts(messages)
	}
	messages = prompt.WithToolImages(messages)
	system := llm.Message{Role: llm.System, Text: t.conv.system}
	req := llm.Request{MaxOutput: t.settings.MaxOutput, Effort: t.settings.Effort}
	switch {
	case t.noTools:
		system.Text += SystemNoTools
	case t.closing == "":
		req.Tools = t.tools.Specs()
	}
	messages = slices.Insert(messages, 0, system)
	if t.preview.partial != "" {
		messages = append(messages, llm.Message{Role: llm.Assistant, Text: t.preview.partial},
			llm.Message{Role: llm.User, Text: AskContinue})
	} else if t.closing != "" {
		messages = append(messages, llm.Message{Role: llm.User, Text: t.closing})
	}
	req.Messages = t.withImages(ctx, prompt.Merge(messages))
	return req
}

// adapt changes the next request so that the model may accept it after err. It reports false if no
// change is left that could help.
func (t *modelCaller) adapt(ctx context.Context, err *llm.Error) (again bool, _ error) {
	switch {
	case err.Kind == llm.NoImages && !t.noImages:
		t.noImages = true
	case err.Kind == llm.TooManyImages && prompt.MaxImages>>t.halved > 0:
		t.halved++
	case err.Kind == llm.BadThoughts && !t.noThoughts:
		t.noThoughts = true
	case err.Kind == llm.NoTools && !t.noTools:
		t.logger().WarnContext(ctx, "model is asked without tools", "err", err)
		t.noTools = true
	case err.Kind == llm.ContentRefused:
		return t.leaveOutEarlier(ctx)
	case err.Kind == llm.ContextTooLong && !t.shortened:
		t.shortened = true
		return true, t.conv.shorten(ctx)
	case err.Kind == llm.ContextTooLong && !t.noImages && len(t.images) > 0:
		t.noImages = true // one image may have more tokens than a local model takes
	default:
		return false, nil
	}
	return true, nil
}

// The preview appears once the text has been growing for ShowAfter: an immediate answer needs no
// preview. An answer that has not begun after typingAfter is announced without text.
const (
	ShowAfter   = 100 * time.Millisecond
	showEvery   = 50 * time.Millisecond
	typingAfter = 700 * time.Millisecond
)

// live is the state of the current preview. The preview's mu guards it.
type live struct {
	newest bus.Progress
	timer  *time.Timer // publishes newest when it fires
	due    bool        // the timer publishes a text, not the announcement
	grows  time.Time   // when the first text arrived
	shown  time.Time   // when a text was last published
	any    bool        // something has been published
	over   bool        // nothing more is published
}

// A preview shows a growing answer.
type preview struct {
	*turn
	woken   bool   // the turn was suspended and continues
	partial string // beginning of an answer that hit the output limit
	log     activity.Log

	mu   sync.Mutex // also guards against the timer of live
	live *live      // nil: no preview
}

// showBegin starts a preview. If no text arrives soon, the preview announces that the answer is
// coming.
func (t *preview) showBegin() {
	if !t.trigger.Origin.Interactive() || t.mayBeSilent() {
		return // nobody watches the turn
	}
	l := &live{newest: t.progress()}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.timer = time.AfterFunc(typingAfter, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.live == l && !l.over && (l.due || !l.any) { // otherwise the timer fired too late
			t.publish(t.env.Now())
		}
	})
	t.live = l
}

// show publishes the answer so far and the status, at once or when enough time has passed since the
// last publication.
func (t *preview) show(text, status string) {
	now := t.env.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.live
	if l == nil || l.over {
		return
	}
	l.newest.Text, l.newest.Status, l.newest.Since = text, status, time.Time{}
	if status != "" {
		l.newest.Since = now
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

// showCalls shows that calls begin.
func (t *preview) showCalls(calls ...llm.ToolCall) {
	if status := t.log.Add(t.settings.Activity, calls); status != "" {
		t.show(t.partial, status)
	}
}

// publish publishes the newest text. t.mu is held.
func (t *preview) publish(now time.Time) {
	t.live.timer.Stop()
	t.live.due, t.live.shown, t.live.any = false, now, true
	t.env.Live.Publish(t.live.newest)
}

// hide stops the preview, even if its timer has fired and waits for t.mu. It reports whether
// anything was shown: only then does a message replace the preview.
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

// showEnd ends the preview. void says that no message replaces it.
func (t *preview) showEnd(void bool) { t.showLast(void, false) }

// showWait ends the preview because the turn is suspended.
func (t *preview) showWait() { t.showLast(true, true) }

// showLast ends the preview. void and waits are as in [bus.Progress].
func (t *preview) showLast(void, waits bool) {
	// An earlier process, or the same turn before it was suspended, may have shown something.
	if t.hide() || void && t.ID != 0 && (t.Attempts > 1 || t.woken) {
		p := t.progress()
		p.Ended, p.Void, p.Waits = true, void, waits
		t.env.Live.Publish(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = nil
}

// outbound returns a message with the given text that replaces the preview, if there is one.
func (t *preview) outbound(text string) bus.OutboundMessage {
	out := bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo, Text: text, Answers: t.answers}
	if t.hide() || t.Attempts > 1 || t.woken { // an earlier process may have shown a preview
		out.Stream = t.stream()
	}
	return out
}

func (t *preview) progress() bus.Progress {
	return bus.Progress{To: t.Address, Stream: t.stream(), ReplyTo: t.ReplyTo}
}

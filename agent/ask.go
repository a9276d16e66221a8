package agent

import (
	"context"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
)

// ask calls the model once, showing its answer while it grows.
func (t *turn) ask(ctx context.Context) (*llm.Response, error) {
	d := t.d
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.draining:
		return nil, errDraining
	}
	defer func() { <-d.slots }()
	switch { // a slot may have been free all the same
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case d.isDraining():
		return nil, errDraining
	}
	if err := d.opts.Budget.Allow(t.Session); err != nil {
		return nil, err
	}
	req := t.request()
	var text strings.Builder
	text.WriteString(t.partial)
	for ev, err := range d.Model.Stream(ctx, req) {
		if err != nil {
			t.spendBroken(ctx, req, text.Len()-len(t.partial))
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
			t.bill.Context = ev.Response.Usage.Input
			t.spend(ev.Response.Model, ev.Response.Usage)
			return ev.Response, nil
		}
	}
	// Only a model that breaks its contract ends without a response.
	return nil, &llm.Error{Kind: llm.Unavailable, Model: d.opts.ModelName}
}

func (t *turn) spend(model string, u llm.Usage) {
	t.bill.Usage.Add(u)
	t.bill.Cost += t.d.opts.Cost(model, u)
	t.d.opts.Budget.Spent(t.Session, model, u)
}

// spendBroken counts a call that ended after so many bytes of the answer, before the model could
// say what it has used: by the length of both. A call that was refused has used nothing.
func (t *turn) spendBroken(ctx context.Context, req llm.Request, answer int) {
	if answer == 0 && ctx.Err() == nil {
		return
	}
	t.spend(t.d.opts.ModelName, llm.Usage{
		Input: textSize(req.Messages) / bytesPerToken, Output: answer / bytesPerToken,
	})
}

// request is what the model is asked now.
func (t *turn) request() llm.Request {
	messages := prepare(t.history, t.d.historySize())
	messages = append([]llm.Message{{Role: llm.System, Text: t.system}}, messages...)
	req := llm.Request{MaxOutput: t.d.opts.MaxOutput}
	if t.closing == "" {
		req.Tools = t.d.Tools.Specs()
	}
	if t.partial != "" {
		messages = append(messages, llm.Message{Role: llm.Assistant, Text: t.partial},
			llm.Message{Role: llm.User, Text: askContinue})
	} else if t.closing != "" {
		messages = append(messages, llm.Message{Role: llm.User, Text: t.closing})
	}
	req.Messages = merge(messages)
	return req
}

// Text is shown once it has been growing for showAfter: an answer that comes at once needs no
// preview. One that has not begun after typingAfter is announced without text.
const (
	showAfter   = 100 * time.Millisecond
	showEvery   = 50 * time.Millisecond
	typingAfter = 700 * time.Millisecond
)

// live is the state of a turn's preview. The turn's mu guards it.
type live struct {
	typing *time.Timer // set while the announcement is still to come
	grows  time.Time   // when the first text came
	shown  time.Time   // of the newest progress
	any    bool        // something was shown
}

// showBegin announces the answer if it does not come soon.
func (t *turn) showBegin() {
	p := t.progress()
	t.mu.Lock()
	defer t.mu.Unlock()
	var typing *time.Timer
	typing = time.AfterFunc(typingAfter, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.live.typing == typing { // else it comes too late
			t.live.typing, t.live.any = nil, true
			t.d.Live.Publish(p)
		}
	})
	t.live = live{typing: typing}
}

// show shows the answer so far and what is being done.
func (t *turn) show(text, status string) {
	now := t.d.opts.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live.grows.IsZero() && status == "" {
		t.live.grows = now
	}
	if status == "" && (now.Sub(t.live.grows) < showAfter || now.Sub(t.live.shown) < showEvery) {
		return
	}
	t.live.stop()
	t.live.shown, t.live.any = now, true
	p := t.progress()
	p.Text, p.Status = text, status
	t.d.Live.Publish(p)
}

// stop keeps the announcement from coming any more.
func (l *live) stop() {
	if l.typing != nil {
		l.typing.Stop()
		l.typing = nil
	}
}

// hideTyping keeps the announcement from coming any more, and reports whether anything was shown.
func (t *turn) hideTyping() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live.stop()
	return t.live.any
}

// showEnd says that what was shown is over. void says that no message takes its place.
func (t *turn) showEnd(void bool) {
	if !t.hideTyping() {
		return
	}
	p := t.progress()
	p.Ended, p.Void = true, void
	t.d.Live.Publish(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = live{}
}

// outbound returns the message with the given text that ends the preview, if there is one.
func (t *turn) outbound(text string) bus.OutboundMessage {
	out := bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo, Text: text}
	if t.hideTyping() || t.Attempts > 1 { // an earlier process may have shown one
		out.Stream = t.stream()
	}
	return out
}

func (t *turn) progress() bus.Progress {
	return bus.Progress{To: t.Address, Stream: t.stream(), ReplyTo: t.ReplyTo}
}

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
	if err := d.opts.Budget.Allow(t.Session); err != nil {
		return nil, err
	}
	var text strings.Builder
	text.WriteString(t.partial)
	for ev, err := range d.Model.Stream(ctx, t.request()) {
		if err != nil {
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
			t.spend(ev.Response)
			return ev.Response, nil
		}
	}
	// Only a model that breaks its contract ends without a response.
	return nil, &llm.Error{Kind: llm.Unavailable, Model: d.opts.ModelName}
}

func (t *turn) spend(resp *llm.Response) {
	t.bill.Usage.Add(resp.Usage)
	t.bill.Cost += t.d.opts.Cost(resp.Model, resp.Usage)
	t.bill.Context = resp.Usage.Input
	t.d.opts.Budget.Spent(t.Session, resp.Model, resp.Usage)
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

// Progress is shown from showAfter on: a model that answers at once needs no preview. An answer
// that has not begun after typingAfter is announced without text.
const (
	showAfter   = 100 * time.Millisecond
	showEvery   = 50 * time.Millisecond
	typingAfter = 700 * time.Millisecond
)

// live is the state of a turn's preview.
type live struct {
	typing *time.Timer
	shown  time.Time // of the newest progress
	any    bool      // something was shown
}

// showBegin announces the answer if it does not come soon.
func (t *turn) showBegin() {
	p := t.progress()
	t.live = live{}
	t.live.typing = time.AfterFunc(typingAfter, func() { t.d.Live.Publish(p) })
}

// show shows the answer so far and what is being done.
func (t *turn) show(text, status string) {
	now := t.d.opts.Now()
	if status == "" && (now.Sub(t.began) < showAfter || now.Sub(t.live.shown) < showEvery) {
		return
	}
	if t.live.typing != nil {
		t.live.typing.Stop()
	}
	t.live.shown, t.live.any = now, true
	p := t.progress()
	p.Text, p.Status = text, status
	t.d.Live.Publish(p)
}

// hideTyping keeps the announcement from coming any more, and reports whether a preview was shown.
func (t *turn) hideTyping() bool {
	if t.live.typing != nil && !t.live.typing.Stop() {
		t.live.any = true // it has come, or show has taken its place
	}
	t.live.typing = nil
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

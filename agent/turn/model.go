package turn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/session"
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
			t.conv.prompt = ev.Response.Usage.Input + min(ev.Response.Usage.Output, t.said(ev.Response))
			t.shortened = false
			t.costs.spend(hold, ev.Response.Model, ev.Response.Spent())
			return ev.Response, nil
		}
	}
	// A model that ends without an error or a response breaks its contract.
	return nil, &llm.Error{Kind: llm.Unavailable, Model: t.settings.ModelName}
}

// said estimates the tokens of an answer without the thoughts, which count as output. They are
// mostly much longer, and few providers get them back.
func (t *modelCaller) said(r *llm.Response) int {
	return t.env.Calls.Estimates.Tokens(t.settings.ModelID,
		prompt.TextSize([]llm.Message{r.Message}))
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

// withImages returns messages with the data of the newest images. Older images are only mentioned.
func (t *modelCaller) withImages(ctx context.Context, messages []llm.Message) []llm.Message {
	left := prompt.MaxImages >> t.halved
	if t.noImages || t.settings.NoImages || t.env.Attachments.Media == nil {
		left = 0
	}
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		m := &messages[i]
		if len(m.Images) == 0 {
			continue
		}
		images := make([]llm.Image, len(m.Images)) // don't change the transcript's images
		copy(images, m.Images)
		for j := len(images) - 1; j >= 0 && left > 0; j-- {
			images[j] = t.image(ctx, images[j])
			left--
		}
		m.Images = images
	}
	return messages
}

// image returns im with its data if it can be loaded.
func (t *modelCaller) image(ctx context.Context, im llm.Image) llm.Image {
	if known, ok := t.images[im.Path]; ok {
		return known
	}
	shown, err := t.env.Attachments.Image(ctx, t.Address, im)
	for i := 0; i < len(t.chats) && err != nil; i++ {
		shown, err = t.env.Attachments.Image(ctx, t.chats[i], im)
	}
	im = shown
	if err != nil {
		t.logger().InfoContext(ctx, "image not shown to the model", "err", err)
	}
	if t.images == nil {
		t.images = make(map[string]llm.Image)
	}
	t.images[im.Path] = im
	return im
}

// leaveOutEarlier leaves the earlier turns, and the notes of them, out of the prompt, because the
// provider may refuse it for what they contain. It reports false if that was done before.
func (t *modelCaller) leaveOutEarlier(ctx context.Context) (bool, error) {
	if t.conv.alone || t.First {
		return false, nil
	}
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	summary, err := session.ReadSummary(read, t.Session)
	if err != nil {
		return false, err
	}
	summary.Text = "" // but From stays, so that the notes do not appear as recent history instead
	system, err := t.conv.systemParts(read, summary)
	if err != nil {
		return false, err
	}
	t.conv.system = t.env.Prompts.Text(system)
	t.conv.history, t.conv.older, t.conv.alone = t.conv.history[t.conv.older:], 0, true
	return true, nil
}

// A clock ends a turn that takes too long. The clock stops while the turn waits for a slot, because
// other turns cause that wait.
type clock struct {
	end func(error) // ends the turn's context

	mu    sync.Mutex
	left  time.Duration
	since time.Time   // when it was last started
	timer *time.Timer // nil while it is stopped
}

// start starts the clock.
func (c *clock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, func() { c.end(errTurnTimeout) })
}

// stop stops the clock.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
	c.timer = nil
}

// SessionsPerSlot is the maximum number of working sessions per slot for model calls.
const SessionsPerSlot = 4

// LongestWaits is the longest wait for a slot, as a multiple of the longest turn. Since
// SessionsPerSlot limits the number of waiting sessions, only hanging models cause such a wait.
const LongestWaits = 2 * SessionsPerSlot

// errNoSlot reports that a turn waited too long for a slot.
var errNoSlot = errors.New("no model call could be made for too long")

// takeSlot waits for a slot.
func (t *modelCaller) takeSlot(ctx context.Context) error {
	select { // most turns find a free slot
	case t.env.Calls.Slots <- struct{}{}:
		return t.slotTaken(ctx)
	default:
	}
	t.clock.stop()
	defer t.clock.start()
	patience := time.NewTimer(LongestWaits * t.settings.Timeout)
	defer patience.Stop()
	select {
	case t.env.Calls.Slots <- struct{}{}:
		return t.slotTaken(ctx)
	case <-patience.C:
		return errNoSlot
	case <-ctx.Done():
		return ctx.Err()
	case <-t.env.Draining:
		return errDraining
	}
}

// slotTaken gives the slot back if the turn can no longer use it.
func (t *modelCaller) slotTaken(ctx context.Context) (err error) {
	if err = ctx.Err(); err == nil && t.env.IsDraining() {
		err = errDraining
	}
	if err != nil {
		<-t.env.Calls.Slots
	}
	return err
}

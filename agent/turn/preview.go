package turn

import (
	"strconv"
	"sync"
	"time"

	"gateway/agent/activity"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

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

// stream returns the name of the current preview.
func (t *turn) stream() string { return StreamOf(&t.Turn) }

// StreamOf returns the name of the preview of a turn's current answer.
func StreamOf(t *session.Turn) string {
	return strconv.FormatInt(t.ID, 10) + "." + strconv.Itoa(t.Answers)
}

package router

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// A preview shows an answer while it grows, in the message that will hold the answer in the end, or
// in several if it is longer than a message may be. It may fail at any point; the answer is
// delivered anyway.
type preview struct {
	messages
	stream  string
	replyTo string
	text    string // newest
	status  string // newest
	ended   bool
	stopped bool // ended, and no answer takes its place

	began   time.Time // when the first progress came
	edited  time.Time // when it was last changed
	typed   time.Time // when the typing indicator was last set
	failed  bool      // nothing more is shown
	draft   string    // what is shown as being written, where that is possible
	noDraft bool      // it is not
}

// messages are the platform's messages that show a preview.
type messages struct {
	ids    []string // platform's
	texts  []string // what they say; "" if an earlier process wrote the text
	usable int      // how many of them, from the first, the answer can replace
	lost   string   // key of one more that may have been sent and whose id is unknown; or ""

	orphaned time.Time // when nobody looked after them any more; zero while somebody does
}

// restoredMessages returns the messages of a preview that an earlier process showed.
func restoredMessages(p bus.Preview, now time.Time) messages {
	return messages{ids: p.IDs, texts: make([]string, len(p.IDs)), usable: len(p.IDs), lost: p.Key,
		orphaned: now}
}

func (m *messages) add(id, text string) {
	m.ids, m.texts = append(m.ids, id), append(m.texts, text)
	m.usable = len(m.ids)
}

// dropFrom notes that message n is gone. Those after it can't be used either, since the answer goes
// on below them.
func (m *messages) dropFrom(n int) { m.usable = n }

// showDelay is how long an answer grows before it is shown, on platforms that limit edits.
// typeEvery is how often the typing indicator is renewed.
const (
	showDelay = time.Second
	typeEvery = 4 * time.Second
)

// active reports whether p may need work.
func (p *preview) active() bool { return p.stream != "" && (!p.ended || p.stopped) }

// applyUpdate applies update to the preview. r.mu is held.
func (c *conversation) applyUpdate(update *bus.Progress) {
	p := &c.preview
	if !update.Ended && c.r.finished.has(update.Stream) {
		return // too late: the answer itself is being delivered
	}
	if p.stream != update.Stream {
		if update.Ended {
			return // nothing of it is shown
		}
		c.keepPreview()
		*p = preview{stream: update.Stream, began: c.r.now(), messages: c.r.keptPreviews[update.Stream]}
		delete(c.r.keptPreviews, update.Stream)
	}
	p.replyTo, p.ended, p.stopped = update.ReplyTo, update.Ended, update.Void
	if !update.Ended {
		p.text, p.status = c.r.secrets.Load().safePrefix(update.Text), update.Status
	}
}

// keepPreview ends the preview, and keeps its messages for the answer that will replace them. r.mu
// is held.
func (c *conversation) keepPreview() {
	if len(c.preview.ids) > 0 || c.preview.lost != "" {
		c.preview.orphaned = c.r.now()
		c.r.keptPreviews[c.preview.stream] = c.preview.messages
	}
	c.preview = preview{}
}

// claimPreview ends the preview of a stream and returns its messages.
func (c *conversation) claimPreview(stream string) messages {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.preview.stream == stream {
		c.keepPreview()
	}
	m := c.r.keptPreviews[stream]
	delete(c.r.keptPreviews, stream)
	return m
}

// show brings the preview up to date if that is due, and returns how long to wait before the next
// call. work is the context of calls that the end of ctx must not interrupt.
func (c *conversation) show(ctx, work context.Context) time.Duration {
	if c.preview.stopped {
		return c.endStopped(work)
	}
	now := c.r.now()
	wait := c.showTyping(ctx, now)
	p := &c.preview
	if c.a.editor == nil && c.a.drafter == nil || p.failed || p.text == "" && p.status == "" {
		return wait
	}
	limits := c.a.limits(c.to)
	due := p.edited.Add(limits.EditInterval)
	if p.edited.IsZero() {
		due = p.began.Add(min(showDelay, limits.EditInterval))
	}
	if early := due.Sub(now); early > 0 {
		return min(wait, early)
	}
	if c.showDraft(work, limits) {
		p.edited = c.r.now()
		return max(min(wait, limits.EditInterval), time.Millisecond)
	}
	n, text := c.stale(work, limits)
	if n < 0 || c.a.editor == nil {
		return wait
	}
	early := c.a.wait(c.to, now)
	if n == len(p.ids) { // a new message counts towards the limits like any other
		early = c.a.reserve(&c.reservation, c.to, limits, now)
	}
	if early > 0 {
		return min(wait, early)
	}
	c.showText(work, n, text)
	p.edited = c.r.now() // the platform may have received it as late as this
	return max(min(wait, limits.EditInterval), time.Millisecond)
}

// showDraft shows the end of the answer as a draft, and reports whether the channel can do that
// here.
func (c *conversation) showDraft(ctx context.Context, limits channels.Limits) bool {
	p := &c.preview
	if c.a.drafter == nil || p.noDraft || len(p.ids) > 0 {
		return false
	}
	var pieces []string
	err := c.withRecover(ctx, func() error { pieces = p.pieces(limits); return nil })
	if err != nil || len(pieces) == 0 {
		p.failed = p.failed || err != nil
		return true
	}
	text := pieces[len(pieces)-1]
	if text == p.draft || c.a.wait(c.to, c.r.now()) > 0 {
		return true
	}
	err = c.withRecover(ctx, func() error { return c.a.drafter.Draft(ctx, c.to, p.stream, text) })
	if errors.Is(err, channels.ErrRefused) {
		p.noDraft = true
		return false
	}
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		c.a.pause(limit, c.to, c.r.now())
	} else if err != nil {
		p.failed = true
		c.r.log.InfoContext(ctx, "preview given up", "to", c.to.String(), "err", err)
	}
	p.draft = text
	return true
}

// showTyping renews the typing indicator until there is text, and returns how long to wait before
// the next call.
func (c *conversation) showTyping(ctx context.Context, now time.Time) time.Duration {
	p := &c.preview
	if c.a.typer == nil || len(p.ids) > 0 {
		return typeEvery
	}
	if wait := p.typed.Add(typeEvery).Sub(now); wait > 0 {
		return wait
	}
	p.typed = now
	if c.a.wait(c.to, now) == 0 {
		c.a.showTyping(ctx, c.to, &c.r.wg)
	}
	return typeEvery
}

// stopPreviews ends the preview if it was stopped or belongs to one of the streams. It returns how
// long the next message has to wait for that.
func (c *conversation) stopPreviews(ctx context.Context, streams []string) time.Duration {
	c.r.mu.Lock()
	p := &c.preview
	for _, s := range streams {
		c.r.finished.add(s)
		p.stopped = p.stopped || p.stream == s
	}
	p.ended = p.ended || p.stopped
	c.r.mu.Unlock()
	if p.stopped {
		if wait := c.endStopped(ctx); p.stopped {
			return wait
		}
	}
	return 0
}

// stoppedMark stands at the end of an answer that was stopped.
const stoppedMark = "… (stopped)"

// endStopped ends the preview of an answer that was stopped. Its messages stay, without the status
// line and with stoppedMark. It returns how long to wait before the next call.
func (c *conversation) endStopped(ctx context.Context) time.Duration {
	p := &c.preview
	p.status = ""
	for {
		n, text := c.stale(ctx, c.a.limits(c.to))
		if n < 0 || n == len(p.ids) || p.failed {
			break
		}
		if wait := c.a.wait(c.to, c.r.now()); wait > 0 {
			return wait
		}
		c.showText(ctx, n, text)
	}
	if last := len(p.ids) - 1; last >= 0 {
		if c.a.finisher != nil {
			c.a.finisher.Finish(ctx, c.to, p.ids[last])
		}
		err := c.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return c.r.outbox.ForgetPreview(tx, p.stream)
		})
		if err != nil {
			c.r.log.ErrorContext(ctx, "outbox not written", "to", c.to.String(), "err", err)
		}
	}
	*p = preview{}
	return time.Millisecond
}

// pieces returns the texts that the messages of p should have.
func (p *preview) pieces(l channels.Limits) []string {
	pieces := []string{p.text}
	if l.Text > 0 {
		pieces = markup.SplitFirst(p.text, l.Text, maxParts, l.Measure)
	}
	if p.stopped {
		return p.withStopMark(pieces, l)
	}
	if p.status == "" {
		return pieces
	}
	status := "_" + p.status + "_"
	if len(pieces) == 0 || pieces[0] == "" {
		return []string{status}
	}
	last := len(pieces) - 1
	text := pieces[last] + "\n\n" + status
	if l.Text > 0 && l.Measure(text) > l.Text {
		return pieces // the status does not fit
	}
	return append(pieces[:last:last], text)
}

// withStopMark returns the pieces that are shown, with stoppedMark at the end of the last.
func (p *preview) withStopMark(pieces []string, l channels.Limits) []string {
	pieces = slices.Clone(pieces[:min(len(pieces), len(p.ids))])
	last := len(pieces) - 1
	switch {
	case len(p.ids) == 0:
		return nil
	case last < 0: // an earlier process has shown a text that is unknown now
		return []string{stoppedMark}
	}
	mark := " " + stoppedMark
	if text := pieces[last]; strings.HasSuffix(text, "```") || strings.HasSuffix(text, "~~~") {
		mark = "\n\n" + stoppedMark // on the line of the fence it would leave the fence open
	}
	if l.Text > 0 && l.Measure(pieces[last]+mark) > l.Text {
		room := max(1, l.Text-l.Measure(mark)-2) // two for the blanks before the mark
		pieces[last] = markup.SplitFirst(pieces[last], room, 1, l.Measure)[0]
	}
	pieces[last] += mark
	return pieces
}

// stale returns the index of the first message whose text is out of date, and the text that it
// should have. n is the number of messages if a new one is needed, and -1 if none is out of date.
// When text moves from the last message to a new one, the new one is sent first: the next edit may
// be more than a second away, and until then no text is missing.
func (c *conversation) stale(ctx context.Context, limits channels.Limits) (n int, text string) {
	p := &c.preview
	n = -1
	err := c.withRecover(ctx, func() error {
		pieces := p.pieces(limits)
		for i, piece := range pieces {
			if i < len(p.ids) && !differ(limits, p.texts[i], piece) {
				continue
			}
			if next := i + 1; next == len(p.ids) && next < len(pieces) &&
				len(piece) < len(p.texts[i]) {
				i, piece = next, pieces[next] // better shown twice for a moment than not at all
			}
			n, text = i, piece
			return nil
		}
		return nil
	})
	p.failed = p.failed || err != nil
	return n, text
}

// differ reports whether two texts look different when they are rendered. Blanks at the end of a
// growing answer, for example, don't show.
func differ(l channels.Limits, a, b string) bool {
	return a != b && (l.Render == nil || a == "" || l.Render(a) != l.Render(b))
}

// showText sets the text of the message with index n. If that fails for another reason than a rate
// limit, nothing more of the answer is shown.
func (c *conversation) showText(ctx context.Context, n int, text string) {
	err := c.withRecover(ctx, func() error { return c.putText(ctx, n, text) })
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		c.a.pause(limit, c.to, c.r.now())
	} else if err != nil {
		c.preview.failed = true
		c.r.log.InfoContext(ctx, "preview given up", "to", c.to.String(), "err", err)
	}
}

// putText makes the calls of showText.
func (c *conversation) putText(ctx context.Context, n int, text string) error {
	p := &c.preview
	if n < len(p.ids) {
		err := c.a.editor.Edit(ctx, c.to, p.ids[n], text)
		if err == nil {
			p.texts[n] = text
		}
		return err
	}
	shows := text
	if p.lost != "" { // an earlier try may have sent the message, with an older text
		shows = ""
	}
	p.lost = cmp.Or(p.lost, bus.NewKey())
	part := bus.Part{Key: p.lost, To: c.to, Text: text}
	if n == 0 {
		part.ReplyTo = p.replyTo
	}
	// It is stored before and after the call, so that the answer finds the message also after a
	// restart in between.
	if err := c.notePreview(ctx); err != nil {
		return err
	}
	id, err := c.a.Channel.Send(ctx, part)
	if err != nil {
		return err
	}
	p.add(id, shows)
	p.lost = ""
	return c.notePreview(ctx)
}

// notePreview stores the messages of the preview.
func (c *conversation) notePreview(ctx context.Context) error {
	p := &c.preview
	return c.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return c.r.outbox.SavePreview(tx, p.stream, bus.Preview{IDs: p.ids, Key: p.lost}, c.r.now())
	})
}

// recent is a set of the streams that were added last. It forgets older ones.
type recent struct {
	set  map[string]bool
	ring []string
	next int
}

// maxRecent is how many streams a recent keeps. A stream is needed only until the progress that was
// published before its end has arrived.
const maxRecent = 4096

func (r *recent) has(stream string) bool { return r.set[stream] }

func (r *recent) add(stream string) {
	if stream == "" || r.set[stream] {
		return
	}
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, stream)
	} else {
		delete(r.set, r.ring[r.next])
		r.ring[r.next] = stream
		r.next = (r.next + 1) % maxRecent
	}
	r.set[stream] = true
}

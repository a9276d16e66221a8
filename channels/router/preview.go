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

// A preview shows an answer while it grows: as the message that will hold it in the end, and,
// once it is longer than a message may be, as several. It may fail at any point; the answer
// comes anyway.
type preview struct {
	messages
	stream  string
	replyTo string
	text    string // newest
	status  string // newest
	ended   bool
	void    bool // ended, and no answer takes its place

	began   time.Time // when the first progress came
	edited  time.Time // when it was last changed
	typed   time.Time // when the typing indicator was last set
	failed  bool      // nothing more is shown
	draft   string    // what is shown as being written, where that is possible
	noDraft bool      // it is not
}

// messages are those that show a preview.
type messages struct {
	ids    []string // platform's
	texts  []string // what they say; "" if an earlier process wrote it
	usable int      // the answer can take the place of that many, the first ones
	lost   string   // key of one more that may have been sent, whose id is not known; or ""

	since time.Time // when nobody looked after them any more; zero while somebody does
}

// noted returns what is noted of a preview.
func noted(p bus.Preview, now time.Time) messages {
	return messages{ids: p.IDs, texts: make([]string, len(p.IDs)), usable: len(p.IDs), lost: p.Key,
		since: now}
}

func (m *messages) add(id, text string) {
	m.ids, m.texts = append(m.ids, id), append(m.texts, text)
	m.usable = len(m.ids)
}

// cut notes that message n is gone. Those after it are of no use then: the answer goes on below.
func (m *messages) cut(n int) { m.usable = n }

// showDelay is how long an answer must grow before it is shown, on platforms where each edit
// costs; typeEvery is how often the typing indicator is renewed.
const (
	showDelay = time.Second
	typeEvery = 4 * time.Second
)

// open reports whether there may be something to do for p.
func (p *preview) open() bool { return p.stream != "" && (!p.ended || p.void) }

// take takes in news. r.mu is held.
func (c *chat) take(news *bus.Progress) {
	p := &c.preview
	if !news.Ended && c.r.over.has(news.Stream) {
		return // it is late: its message is being delivered
	}
	if p.stream != news.Stream {
		if news.Ended {
			return // nothing is shown
		}
		c.keep()
		*p = preview{stream: news.Stream, began: c.r.now(), messages: c.r.kept[news.Stream]}
		delete(c.r.kept, news.Stream)
	}
	p.replyTo, p.ended, p.void = news.ReplyTo, news.Ended, news.Void
	if !news.Ended {
		p.text, p.status = c.r.secrets.Load().grown(news.Text), news.Status
	}
}

// keep ends the preview, and keeps its messages for the answer that is to take their place.
// r.mu is held.
func (c *chat) keep() {
	if len(c.preview.ids) > 0 || c.preview.lost != "" {
		c.preview.since = c.r.now()
		c.r.kept[c.preview.stream] = c.preview.messages
	}
	c.preview = preview{}
}

// takeOver ends the preview of a stream and returns its messages.
func (c *chat) takeOver(stream string) messages {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.preview.stream == stream {
		c.keep()
	}
	m := c.r.kept[stream]
	delete(c.r.kept, stream)
	return m
}

// show brings the preview up to date if it is time, and returns when to look again. work is for
// what is not to be broken off.
func (c *chat) show(ctx, work context.Context) time.Duration {
	if c.preview.void {
		return c.abandon(work)
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
	if n == len(p.ids) { // a new message counts like any other
		early = c.a.reserve(&c.pass, c.to, limits, now)
	}
	if early > 0 {
		return min(wait, early)
	}
	c.showText(work, n, text)
	p.edited = c.r.now() // by the platform's clock it may have come as late as that
	return max(min(wait, limits.EditInterval), time.Millisecond)
}

// showDraft shows the end of the answer as being written, and reports whether that is possible.
func (c *chat) showDraft(ctx context.Context, limits channels.Limits) bool {
	p := &c.preview
	if c.a.drafter == nil || p.noDraft || len(p.ids) > 0 {
		return false
	}
	var pieces []string
	err := c.guard(ctx, func() error { pieces = p.pieces(limits); return nil })
	if err != nil || len(pieces) == 0 {
		p.failed = p.failed || err != nil
		return true
	}
	text := pieces[len(pieces)-1]
	if text == p.draft || c.a.wait(c.to, c.r.now()) > 0 {
		return true
	}
	err = c.guard(ctx, func() error { return c.a.drafter.Draft(ctx, c.to, p.stream, text) })
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

// showTyping renews the typing indicator until there is text, and returns when to look again.
func (c *chat) showTyping(ctx context.Context, now time.Time) time.Duration {
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

// stop ends the preview that was stopped, or is one of those streams, before the next message is
// sent. It returns how long that has to wait for it.
func (c *chat) stop(ctx context.Context, streams []string) time.Duration {
	c.r.mu.Lock()
	p := &c.preview
	for _, s := range streams {
		c.r.over.add(s)
		p.void = p.void || p.stream == s
	}
	p.ended = p.ended || p.void
	c.r.mu.Unlock()
	if p.void {
		if wait := c.abandon(ctx); p.void {
			return wait
		}
	}
	return 0
}

// stoppedMark ends what is left of an answer that was stopped.
const stoppedMark = "… (stopped)"

// abandon ends the preview of an answer that was stopped: its messages stay, without the status
// line and with a mark. It returns when to look again.
func (c *chat) abandon(ctx context.Context) time.Duration {
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

// pieces returns what the messages of p shall say.
func (p *preview) pieces(l channels.Limits) []string {
	pieces := []string{p.text}
	if l.Text > 0 {
		pieces = markup.SplitFirst(p.text, l.Text, maxParts, l.Measure)
	}
	if p.void {
		return p.marked(pieces, l)
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
		return pieces // there is no room
	}
	return append(pieces[:last:last], text)
}

// marked returns the pieces that are shown, with a mark at the end of the last.
func (p *preview) marked(pieces []string, l channels.Limits) []string {
	pieces = slices.Clone(pieces[:min(len(pieces), len(p.ids))])
	last := len(pieces) - 1
	switch {
	case len(p.ids) == 0:
		return nil
	case last < 0: // an earlier process has shown what is not known now
		return []string{stoppedMark}
	}
	mark := " " + stoppedMark
	if text := pieces[last]; strings.HasSuffix(text, "```") || strings.HasSuffix(text, "~~~") {
		mark = "\n\n" + stoppedMark // else the fence would be open
	}
	if l.Text > 0 && l.Measure(pieces[last]+mark) > l.Text {
		room := max(1, l.Text-l.Measure(mark)-2) // blanks at its beginning count, too
		pieces[last] = markup.SplitFirst(pieces[last], room, 1, l.Measure)[0]
	}
	pieces[last] += mark
	return pieces
}

// stale returns the first message that does not say what it shall, and what that is. n is the
// number of messages if it is a new one, and -1 if there is none. What a cut takes from the last
// message is shown in a new one first: the next edit may be more than a second away.
func (c *chat) stale(ctx context.Context, limits channels.Limits) (n int, text string) {
	p := &c.preview
	n = -1
	err := c.guard(ctx, func() error {
		pieces := p.pieces(limits)
		for i, piece := range pieces {
			if i < len(p.ids) && !differ(limits, p.texts[i], piece) {
				continue
			}
			if next := i + 1; next == len(p.ids) && next < len(pieces) &&
				len(piece) < len(p.texts[i]) {
				i, piece = next, pieces[next] // shown twice for a moment, rather than not at all
			}
			n, text = i, piece
			return nil
		}
		return nil
	})
	p.failed = p.failed || err != nil
	return n, text
}

// differ reports whether two texts show differently, as far as rendering tells: blanks at the end
// of an answer that grows, for example, do not show.
func differ(l channels.Limits, a, b string) bool {
	return a != b && (l.Render == nil || a == "" || l.Render(a) != l.Render(b))
}

// showText makes the message with index n say text. After a failure that waiting does not help
// against, nothing more is shown.
func (c *chat) showText(ctx context.Context, n int, text string) {
	err := c.guard(ctx, func() error { return c.putText(ctx, n, text) })
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		c.a.pause(limit, c.to, c.r.now())
	} else if err != nil {
		c.preview.failed = true
		c.r.log.InfoContext(ctx, "preview given up", "to", c.to.String(), "err", err)
	}
}

// putText is the call of showText.
func (c *chat) putText(ctx context.Context, n int, text string) error {
	p := &c.preview
	if n < len(p.ids) {
		err := c.a.editor.Edit(ctx, c.to, p.ids[n], text)
		if err == nil {
			p.texts[n] = text
		}
		return err
	}
	shows := text
	if p.lost != "" { // a message that was sent before may have come of it, with what it said then
		shows = ""
	}
	p.lost = cmp.Or(p.lost, bus.NewKey())
	part := bus.Part{Key: p.lost, To: c.to, Text: text}
	if n == 0 {
		part.ReplyTo = p.replyTo
	}
	// Noted before and after, so that the answer finds it also after a restart in between.
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

func (c *chat) notePreview(ctx context.Context) error {
	p := &c.preview
	return c.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return c.r.outbox.SavePreview(tx, p.stream, bus.Preview{IDs: p.ids, Key: p.lost}, c.r.now())
	})
}

// recent is a set of the newest streams that were added to it. It forgets the others.
type recent struct {
	set  map[string]bool
	ring []string
	next int
}

// maxRecent is how many streams a recent keeps. It is needed for a moment only: until news
// that were published before the end of a stream have come.
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

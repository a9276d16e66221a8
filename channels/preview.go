package channels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/channels/markup"
	"gateway/store"
)

// A preview shows an answer while it grows: as the message that will hold it in the end, and,
// once it is longer than a message may be, as several. It may fail at any point; the answer
// comes anyway.
type preview struct {
	stream  string
	replyTo string
	text    string // newest
	status  string // newest
	ended   bool
	void    bool // ended, and no answer takes its place

	ids    []string  // platform's ids of the messages that show it
	shown  []string  // their texts
	began  time.Time // when the first progress came
	edited time.Time // when it was last changed
	typed  time.Time // when the typing indicator was last set
	failed bool      // nothing more is shown
	noted  bool      // the database knows of it
}

// showDelay is how long an answer must grow before it is shown, on platforms where each edit
// costs; typeEvery is how often the typing indicator is renewed.
const (
	showDelay = time.Second
	typeEvery = 4 * time.Second
)

// update takes in news. Messages that an earlier process has shown are in noted, by stream.
func (p *preview) update(news *bus.Progress, now time.Time, noted map[string][]string) {
	if p.stream != news.Stream {
		ids := noted[news.Stream]
		*p = preview{stream: news.Stream, began: now, ids: ids, noted: len(ids) > 0}
		p.shown = make([]string, len(p.ids))
	}
	p.replyTo, p.ended, p.void = news.ReplyTo, news.Ended, news.Void
	if !news.Ended {
		p.text, p.status = news.Text, news.Status
	}
}

// open reports whether there may be something to do for p.
func (p *preview) open() bool { return p.stream != "" && (!p.ended || p.void) }

// drop forgets the message that shows the part with the given index, and those after it.
func (p *preview) drop(part int) {
	if part < len(p.ids) {
		p.ids, p.shown = p.ids[:part], p.shown[:part]
	}
}

// show brings the preview up to date if it is time, and returns when to look again.
func (c *chat) show(ctx context.Context) time.Duration {
	p := &c.preview
	if p.void {
		return c.abandon(ctx)
	}
	now := c.r.now()
	if c.a.typer != nil && len(p.ids) == 0 && now.Sub(p.typed) >= typeEvery {
		p.typed = now
		c.a.showTyping(ctx, c.to, &c.r.wg)
	}
	if c.a.editor == nil || p.failed || p.text == "" && p.status == "" {
		return typeEvery
	}
	limits := c.a.limits(c.to)
	due := p.edited.Add(limits.EditInterval)
	if p.edited.IsZero() {
		due = p.began.Add(min(showDelay, limits.EditInterval))
	}
	if wait := due.Sub(now); wait > 0 {
		return wait
	}
	wait := c.notBefore.Sub(now)
	if len(p.ids) == 0 && wait <= 0 { // a first message counts like any other
		wait = c.a.reserve(c.to, limits, now)
	}
	if wait > 0 {
		return wait
	}
	p.edited = now
	if err := c.showText(ctx, limits); err != nil {
		if limit, ok := errors.AsType[*RateError](err); ok {
			c.notBefore = now.Add(limit.After)
			return limit.After
		}
		p.failed = true
		c.r.log.InfoContext(ctx, "preview given up", "to", c.to.String(), "err", err)
	}
	return max(limits.EditInterval, time.Millisecond)
}

// abandon leaves the preview of an answer that was stopped as it is, without its status line.
func (c *chat) abandon(ctx context.Context) time.Duration {
	p := &c.preview
	if p.status != "" && len(p.ids) > 0 && !p.failed {
		p.status = ""
		p.text = cmp.Or(p.text, "…")
		if err := c.showText(ctx, c.a.limits(c.to)); err != nil {
			c.r.log.InfoContext(ctx, "preview given up", "to", c.to.String(), "err", err)
		}
	}
	if len(p.ids) > 0 {
		err := c.r.db.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return c.r.outbox.ForgetPreview(tx, p.stream)
		})
		if err != nil {
			c.r.log.ErrorContext(ctx, "outbox not written", "to", c.to.String(), "err", err)
		}
	}
	c.preview = preview{}
	return time.Millisecond
}

// showText makes the platform's messages show the newest text.
func (c *chat) showText(ctx context.Context, limits Limits) error {
	p := &c.preview
	pieces := []string{p.text}
	if limits.Text > 0 {
		pieces = markup.Split(p.text, limits.Text, limits.Measure)
	}
	if p.status != "" {
		pieces = withStatus(pieces, p.status, limits)
	}
	for i, text := range pieces {
		switch {
		case i == len(p.ids):
			id, err := c.a.Channel.Send(ctx, bus.Part{
				Key: fmt.Sprintf("gwp%s-%d", p.stream, i), To: c.to, Text: text, ReplyTo: p.reply(i),
			})
			if err != nil {
				return err
			}
			p.ids, p.shown = append(p.ids, id), append(p.shown, text)
			p.noted = true
			if err := c.savePreview(ctx); err != nil {
				return err
			}
		case p.shown[i] != text:
			if err := c.a.editor.Edit(ctx, c.to, p.ids[i], text); err != nil {
				return err
			}
			p.shown[i] = text
		}
	}
	return nil
}

func (p *preview) reply(part int) string {
	if part == 0 {
		return p.replyTo
	}
	return ""
}

// withStatus adds the status line below the text, if there is room.
func withStatus(pieces []string, status string, l Limits) []string {
	if len(pieces) == 0 || pieces[0] == "" {
		return []string{"_" + status + "_"}
	}
	last := len(pieces) - 1
	text := pieces[last] + "\n\n_" + status + "_"
	if l.Text > 0 && l.Measure(text) > l.Text {
		return pieces
	}
	return append(pieces[:last:last], text)
}

// savePreview notes which messages show the stream, so that the answer finds them also after a
// restart.
func (c *chat) savePreview(ctx context.Context) error {
	return c.r.db.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return c.r.outbox.SavePreview(tx, c.preview.stream, c.preview.ids)
	})
}

// noted reports whether the database knows of a preview of d.
func (c *chat) noted(d *bus.Delivery) bool {
	return d.Message.Stream != "" && c.preview.stream == d.Message.Stream && c.preview.noted
}

// editing reports whether the next part of d takes the place of a message of the preview, and
// its id.
func (c *chat) editing(d *bus.Delivery) (bool, string) {
	s := d.Message.Stream
	if s == "" || c.a.editor == nil {
		return false, ""
	}
	if c.preview.stream != s {
		c.r.mu.Lock()
		noted := c.r.previews[s]
		c.r.mu.Unlock()
		c.preview = preview{stream: s, ended: true, ids: noted, noted: len(noted) > 0,
			shown: make([]string, len(noted))}
	}
	if n := len(d.IDs); n < len(c.preview.ids) {
		return true, c.preview.ids[n]
	}
	return false, ""
}

// edit makes a message of the preview the given part of the answer.
func (c *chat) edit(ctx context.Context, part bus.Part, id string, n int) error {
	if c.preview.shown[n] == part.Text {
		return nil
	}
	err := c.a.editor.Edit(ctx, c.to, id, part.Text)
	if err == nil {
		c.preview.shown[n] = part.Text
	}
	return err
}

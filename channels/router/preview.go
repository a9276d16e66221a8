package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
	"gateway/store/fault"
)

// A preview shows a growing answer in the message that will hold the final answer, or in several
// messages if it is long. A preview may fail at any point; the answer is delivered anyway.
type preview struct {
	messages
	stream  string
	replyTo string
	text    string    // newest text
	status  string    // newest status
	since   time.Time // when the activity in status began, or zero
	elapsed string    // since then, as it is shown
	ended   bool
	stopped bool // ended, and no answer replaces it
	waits   bool // stopped only until somebody has answered

	began   time.Time // when the first progress arrived
	edited  time.Time // when the preview last changed
	typed   time.Time // when the typing indicator was last set
	failed  bool      // show nothing more
	draft   string    // current draft, on channels with drafts
	noDraft bool      // drafts are not possible here
}

// A display shows the previews of a conversation, one after another.
type display struct {
	w  *worker
	r  *Router
	a  *account
	to bus.Address

	preview preview
	others  map[string]preview // unfinished ones that preview has displaced, without their messages
}

// messages are the platform's messages that show a preview.
type messages struct {
	ids    []string  // platform's ids
	texts  []string  // their texts; "" if an earlier process wrote it
	usable int       // how many of them the answer can replace, from the first one
	lost   string    // key of one more message that may exist but whose id is unknown; or ""
	unsent bool      // the message with the key lost does not exist: all attempts have failed
	lostAt time.Time // when the message with the key lost may have been sent

	orphaned time.Time // since when no worker uses them; zero while one does
}

// restoredMessages returns the messages of a preview that an earlier process showed.
func restoredMessages(p bus.Preview, now time.Time) messages {
	return messages{ids: p.IDs, texts: make([]string, len(p.IDs)), usable: len(p.IDs), lost: p.Key,
		lostAt: p.Saved, orphaned: now}
}

func (m *messages) add(id, text string) {
	m.ids, m.texts = append(m.ids, id), append(m.texts, text)
	m.usable = len(m.ids)
}

// dropFrom records that message n is gone. The messages after it can't be used either, because the
// answer continues below them.
func (m *messages) dropFrom(n int) { m.usable = n }

// showDelay is how long an answer grows before it is shown, on platforms that limit edits.
// typeEvery is how often the typing indicator is renewed.
const (
	showDelay = time.Second
	typeEvery = 4 * time.Second
)

// active reports whether p may need work.
func (p *preview) active() bool { return p.stream != "" && (!p.ended || p.stopped) }

// withhold removes from an update what must not be shown. It may take long, so r.mu is not held.
func (v *display) withhold(update *bus.Progress) {
	if !update.Ended {
		secrets := v.r.secrets.Load()
		update.Text = secrets.safePrefix(update.Text)
		update.Status = secrets.safeStatus(update.Status)
	}
}

// applyUpdate applies update, after withhold, to the preview. r.mu is held.
func (v *display) applyUpdate(update *bus.Progress) {
	p := &v.preview
	if !update.Ended && v.r.previews.hasEnded(update.Stream) {
		return // too late: the answer itself is being delivered
	}
	if p.stream != update.Stream {
		_, displaced := v.others[update.Stream]
		if update.Ended && !(displaced && update.Void) && !v.r.previews.stopsKept(update) {
			delete(v.others, update.Stream)
			return // nothing was shown, or the answer replaces it
		}
		v.turnTo(update.Stream)
	}
	p.replyTo, p.ended, p.stopped, p.waits = update.ReplyTo, update.Ended, update.Void, update.Waits
	if !update.Ended {
		p.text, p.status, p.since = update.Text, update.Status, update.Since
	}
}

// turnTo makes the preview of a stream the current one. The intervals between edits and between
// typing indicators apply to the chat, also if several answers grow there at once. r.mu is held.
func (v *display) turnTo(stream string) {
	next, displaced := v.others[stream]
	if delete(v.others, stream); !displaced {
		next = preview{stream: stream, began: v.r.now()}
	}
	if before := v.preview; before.stream != "" && !before.ended {
		next.edited, next.typed = before.edited, before.typed
		if v.others == nil {
			v.others = make(map[string]preview)
		}
		v.others[before.stream] = before
	}
	v.keepPreview()
	next.messages = v.r.previews.kept[stream]
	delete(v.r.previews.kept, stream)
	v.preview = next
}

// keepPreview ends the preview and keeps its messages for the answer that replaces them. r.mu is
// held.
func (v *display) keepPreview() {
	if len(v.preview.ids) > 0 || v.preview.lost != "" {
		v.preview.orphaned = v.r.now()
		v.r.previews.kept[v.preview.stream] = v.preview.messages
	}
	v.preview = preview{}
}

// claimPreview ends the preview of a stream and returns its messages.
func (v *display) claimPreview(stream string) messages {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	if v.preview.stream == stream {
		v.keepPreview()
	}
	m := v.r.previews.kept[stream]
	delete(v.r.previews.kept, stream)
	delete(v.others, stream)
	return m
}

// show updates the preview if that is due, and returns how long to wait before the next call. work
// is the context of calls that ctx must not interrupt.
func (v *display) show(ctx, work context.Context) time.Duration {
	if v.preview.stopped {
		return v.endStopped(work)
	}
	now := v.r.now()
	wait := v.showTyping(ctx, now)
	p := &v.preview
	if !v.a.Streaming || v.a.editor == nil && v.a.drafter == nil || p.failed ||
		p.text == "" && p.status == "" {
		return wait
	}
	p.tick(now)
	limits := v.a.limits(v.to)
	early := max(p.edited.Add(limits.EditInterval).Sub(now),
		p.began.Add(min(showDelay, limits.EditInterval)).Sub(now))
	if early > 0 {
		return min(wait, early)
	}
	if v.showDraft(work, limits) {
		p.edited = v.r.now()
		return max(min(wait, limits.EditInterval), time.Millisecond)
	}
	n, text := v.stale(work, limits)
	if n < 0 || v.a.editor == nil {
		return wait
	}
	early = v.a.wait(v.to, now)
	if n == len(p.ids) { // a new message has its place in the order, and counts towards the limits
		if early = v.w.behind(work, math.MaxInt64); early == 0 {
			early = v.a.reserve(&v.w.reservation, v.to, limits, now)
		}
	}
	if early > 0 {
		return min(wait, early)
	}
	v.showText(work, n, text)
	p.edited = v.r.now() // the platform may have received it only now
	return max(min(wait, limits.EditInterval), time.Millisecond)
}

// showDraft shows the end of the answer as a draft. It reports whether the channel supports drafts
// here.
func (v *display) showDraft(ctx context.Context, limits channels.Limits) bool {
	p := &v.preview
	if v.a.drafter == nil || p.noDraft || len(p.ids) > 0 {
		return false
	}
	var pieces []string
	err := v.w.withRecover(ctx, func() error { pieces = p.pieces(limits); return nil })
	if err != nil || len(pieces) == 0 {
		p.failed = p.failed || err != nil
		return true
	}
	text := pieces[len(pieces)-1]
	if text == p.draft || v.a.wait(v.to, v.r.now()) > 0 {
		return true
	}
	err = v.w.withRecover(ctx, func() error { return v.a.drafter.Draft(ctx, v.to, p.stream, text) })
	if errors.Is(err, channels.ErrRefused) {
		p.noDraft = true
		return false
	}
	v.record(ctx, err)
	p.draft = text
	return true
}

// showTyping renews the typing indicator until there is text, and returns how long to wait before
// the next call.
func (v *display) showTyping(ctx context.Context, now time.Time) time.Duration {
	p := &v.preview
	if v.a.typer == nil || len(p.ids) > 0 {
		return typeEvery
	}
	if wait := p.typed.Add(typeEvery).Sub(now); wait > 0 {
		return wait
	}
	p.typed = now
	if v.a.wait(v.to, now) == 0 {
		v.a.showTyping(ctx, v.r, v.to)
	}
	return typeEvery
}

// stopPreviews ends the preview if it was stopped or belongs to one of the streams. It returns how
// long the next message must wait for that.
func (v *display) stopPreviews(ctx context.Context, streams []string) time.Duration {
	p := &v.preview
	for {
		v.r.mu.Lock()
		for _, s := range streams {
			v.r.previews.end(s)
			_, displaced := v.others[s]
			_, kept := v.r.previews.kept[s]
			if (displaced || kept) && p.stream != s && !p.stopped {
				v.turnTo(s)
			}
			p.stopped = p.stopped || p.stream == s
		}
		p.ended = p.ended || p.stopped
		v.r.mu.Unlock()
		if !p.stopped {
			return 0
		}
		if wait := v.endStopped(ctx); p.stopped {
			return wait
		}
	}
}

// stoppedMark marks the end of a stopped answer.
const stoppedMark = "… (stopped)"

// endStopped ends the preview of a stopped answer. Its messages stay, without the status line and
// with stoppedMark. A draft would disappear, so its text becomes messages. If the answer only
// waits, its messages get no mark, and endStopped removes those that show only a status. It returns
// how long to wait before the next call.
func (v *display) endStopped(ctx context.Context) time.Duration {
	p := &v.preview
	p.status = ""
	if wait := v.findLost(ctx); wait > 0 {
		return wait
	}
	for {
		limits := v.a.limits(v.to)
		n, text := v.stale(ctx, limits)
		if n < 0 || n == len(p.ids) && !p.drafted() || p.failed {
			break
		}
		wait := v.a.wait(v.to, v.r.now())
		if n == len(p.ids) {
			wait = v.a.reserve(&v.w.reservation, v.to, limits, v.r.now())
		}
		if wait > 0 {
			return wait
		}
		v.showText(ctx, n, text)
	}
	noted := len(p.ids) > 0 || p.lost != ""
	if wait := v.removeSurplus(ctx); wait > 0 {
		return wait
	}
	if len(p.ids) > 0 && v.a.finisher != nil {
		v.a.finisher.Finish(ctx, v.to, p.ids, nil)
	}
	if noted {
		err := v.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return v.r.outbox.ForgetPreview(tx, p.stream)
		})
		if err != nil {
			v.r.log.ErrorContext(ctx, "outbox could not be written", "to", v.to.String(), "err", err)
		}
	}
	*p = preview{}
	return time.Millisecond
}

// removeSurplus removes the messages of a waiting answer that show none of its text. It returns how
// long to wait before the next call. A message that can't be removed stays.
func (v *display) removeSurplus(ctx context.Context) time.Duration {
	p := &v.preview
	if !p.waits || v.a.remover == nil {
		return 0
	}
	needed := len(p.ids)
	_ = v.w.withRecover(ctx, func() error { needed = len(p.pieces(v.a.limits(v.to))); return nil })
	for len(p.ids) > needed {
		if wait := v.a.wait(v.to, v.r.now()); wait > 0 {
			return wait
		}
		last := len(p.ids) - 1
		err := v.a.remover.Remove(ctx, v.to, p.ids[last])
		if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
			v.a.pause(limit, v.to, v.r.now())
			continue
		}
		if err != nil {
			v.r.log.InfoContext(ctx, "status not removed", "to", v.to.String(), "err", err)
		}
		fault.Point("removed")
		p.ids, p.texts = p.ids[:last], p.texts[:last]
	}
	return 0
}

// tickEvery is how often the elapsed time of an activity is updated.
const tickEvery = 4 * time.Second

// tick updates the elapsed time of the activity that the status names.
func (p *preview) tick(now time.Time) {
	p.elapsed = ""
	if took := now.Sub(p.since).Truncate(tickEvery); !p.since.IsZero() && took > 0 {
		p.elapsed = fmt.Sprintf(" · %.0f s", took.Seconds())
		if took >= time.Minute {
			p.elapsed = fmt.Sprintf(" · %d min", int(took.Minutes()))
		}
	}
}

// pieces returns the texts that the messages of p should have.
func (p *preview) pieces(l channels.Limits) []string {
	pieces := []string{p.text}
	if l.Text > 0 {
		pieces = markup.SplitFirst(p.text, l.Text, maxParts, l.Measure)
	}
	switch {
	case p.waits && p.text == "":
		return nil
	case p.waits:
		return pieces
	case p.stopped:
		return p.withStopMark(pieces, l)
	case p.status == "":
		return pieces
	}
	status := "_" + p.status + p.elapsed + "_"
	if strings.Contains(p.status, "`") { // a list of calls
		status = p.status + p.elapsed
	}
	if len(pieces) == 0 || pieces[0] == "" {
		return []string{status}
	}
	last := len(pieces) - 1
	text := pieces[last] + "\n\n" + status
	if l.Text > 0 && l.Measure(text) > l.Text {
		return pieces // no room for the status
	}
	return append(pieces[:last:last], text)
}

// drafted reports whether text was shown as a draft.
func (p *preview) drafted() bool { return p.draft != "" && p.text != "" }

// withStopMark returns the shown pieces with stoppedMark after the last.
func (p *preview) withStopMark(pieces []string, l channels.Limits) []string {
	shown := len(p.ids)
	if p.drafted() {
		shown = len(pieces)
	}
	pieces = slices.Clone(pieces[:min(len(pieces), shown)])
	last := len(pieces) - 1
	switch {
	case shown == 0:
		return nil
	case last < 0: // the text of an earlier process is unknown
		return []string{stoppedMark}
	}
	text := pieces[last]
	if l.Text > 0 && l.Measure(markedAsStopped(text)) > l.Text {
		room := max(1, l.Text-l.Measure(stoppedMark)-2) // 2 for the separator before the mark
		text = markup.SplitFirst(text, room, 1, l.Measure)[0]
	}
	pieces[last] = markedAsStopped(text)
	return pieces
}

// markedAsStopped returns text with stoppedMark.
func markedAsStopped(text string) string {
	line := text[strings.LastIndexByte(text, '\n')+1:]
	// On the line of a fence or of the address of a link the mark would break that, and behind a row
	// of a table nobody would see it.
	if strings.HasSuffix(line, "```") || strings.HasSuffix(line, "~~~") ||
		strings.HasSuffix(line, "|") || strings.HasPrefix(line, "[") && strings.Contains(line, "]:") {
		return text + "\n\n" + stoppedMark
	}
	return text + " " + stoppedMark
}

// stale returns the index of the first message whose text is out of date, and its new text. n is
// the number of messages if a new one is needed, and -1 if none is out of date. When text moves
// from the last message to a new one, the new one is sent first. The next edit may be more than a
// second away, and no text should be missing until then.
func (v *display) stale(ctx context.Context, limits channels.Limits) (n int, text string) {
	p := &v.preview
	n = -1
	err := v.w.withRecover(ctx, func() error {
		pieces := p.pieces(limits)
		for i, piece := range pieces {
			if i < len(p.ids) && !differ(limits, p.texts[i], piece) {
				continue
			}
			if next := i + 1; next == len(p.ids) && next < len(pieces) &&
				len(piece) < len(p.texts[i]) {
				i, piece = next, pieces[next] // better shown twice for a moment than missing
			}
			n, text = i, piece
			return nil
		}
		return nil
	})
	p.failed = p.failed || err != nil
	return n, text
}

// differ reports whether two texts differ when rendered. For example, trailing blanks of a growing
// answer are invisible.
func differ(l channels.Limits, a, b string) bool {
	return a != b && (l.Render == nil || a == "" || l.Render(a) != l.Render(b))
}

// showText sets the text of the message with index n.
func (v *display) showText(ctx context.Context, n int, text string) {
	v.record(ctx, v.w.withRecover(ctx, func() error { return v.putText(ctx, n, text) }))
}

// record records the outcome of a call. After an error other than a rate limit nothing more of the
// answer is shown.
func (v *display) record(ctx context.Context, err error) {
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		v.a.pause(limit, v.to, v.r.now())
	} else if err != nil {
		v.preview.failed = true
		v.r.log.InfoContext(ctx, "preview given up", "to", v.to.String(), "err", err)
	}
}

// putText makes the calls of showText.
func (v *display) putText(ctx context.Context, n int, text string) error {
	p := &v.preview
	if n < len(p.ids) {
		err := v.a.editor.Edit(ctx, v.to, p.ids[n], text)
		if err == nil {
			p.texts[n] = text
		}
		return err
	}
	shows := text
	switch {
	case p.lost == "":
		p.lost, p.lostAt, p.unsent = bus.NewKey(), v.r.now(), true
	case v.a.isLate(&p.messages, v.r.now()):
		return errors.New("its message is too old to be edited")
	}
	if !p.unsent { // the message may exist already, with an older text
		shows = ""
	}
	part := bus.Part{Key: p.lost, To: v.to, Text: text}
	if n == 0 {
		part.ReplyTo = p.replyTo
	}
	// Store the preview before and after the call, so that the answer finds the message even after
	// a restart in between.
	if err := v.notePreview(ctx); err != nil {
		return err
	}
	unsent := p.unsent
	p.unsent = false // if Send panics
	id, err := v.a.Channel.Send(ctx, part)
	if err != nil {
		p.unsent = unsent && v.a.sentNothing(err)
		return err
	}
	p.add(id, shows)
	p.lost = ""
	return v.notePreview(ctx)
}

// notePreview stores the messages of the preview.
func (v *display) notePreview(ctx context.Context) error {
	p := &v.preview
	return v.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return v.r.outbox.SavePreview(tx, p.stream, bus.Preview{IDs: p.ids, Key: p.lost}, v.r.now())
	})
}

// maxEnded is the number of remembered streams that have ended. A stream is needed only until all
// progress published before its end has arrived.
const maxEnded = 4096

// hasEnded reports whether a stream has ended or its message was dispatched.
func (p *previews) hasEnded(stream string) bool {
	_, ok := p.ended.Get(stream)
	return ok
}

// stopsKept reports whether an update stops a preview that is kept for its answer, because an
// earlier process has shown it. If the answer only waits, the messages stay as they are: their text
// is unknown.
func (p *previews) stopsKept(update *bus.Progress) bool {
	_, kept := p.kept[update.Stream]
	return kept && update.Void && !update.Waits
}

// end records that a stream has ended, or that its message was dispatched.
func (p *previews) end(stream string) {
	if stream != "" {
		p.ended.Put(stream, struct{}{})
	}
}

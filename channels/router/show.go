package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"gateway/bus"
	"gateway/channels"
	"gateway/store/fault"
)

// errGone reports that a message of the preview can no longer be edited.
var errGone = errors.New("message of the preview is gone")

// withRecover calls f, which handles a message. If f panics, the message counts as refused by the
// platform. Otherwise it would crash this process and each one after it.
func (w *worker) withRecover(ctx context.Context, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.r.log.ErrorContext(ctx, "delivery panicked", "to", w.to.String(),
				"panic", channels.PanicText(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the gateway has a bug: %s", channels.ErrRefused, channels.PanicText(p))
		}
	}()
	return f()
}

// attempt shows the part of d with index n. It returns the id of the message.
func (s *sender) attempt(ctx context.Context, d *bus.Delivery, n int) (id string, err error) {
	s.reserved = s.reserved && n < s.shown.usable
	s.permit = nil // the last attempt has given its own back
	fault.Point("sending")
	err = s.w.withRecover(ctx, func() (err error) {
		id, err = s.showPart(ctx, d, n)
		return err
	})
	s.permit.answer()
	return id, err
}

// showPart shows the part of d with index n. It edits the preview's message with that index if
// there is one, and otherwise sends a new message.
func (s *sender) showPart(ctx context.Context, d *bus.Delivery, n int) (id string, err error) {
	planned := search(ctx, s, s.parts[n])
	part := bus.Part{Key: d.Key(n), To: s.to, Text: planned.text, Buttons: planned.buttons}
	if n == 0 {
		part.ReplyTo = d.Message.ReplyTo
	}
	if planned.file != nil {
		part.File = planned.open(s.r.files)
	}
	late := s.a.isLate(&s.shown, s.r.now())
	if s.shown.lost != "" && !s.shown.unsent && n == len(s.shown.ids) && part.File == nil &&
		len(part.Buttons) == 0 {
		return s.resendLost(ctx, part, late)
	}
	if n >= s.shown.usable {
		return s.send(ctx, part, d)
	}
	id = s.shown.ids[n]
	switch {
	case s.shown.texts[n] == part.Text:
		return id, nil
	case s.shown.texts[n] == "" && late:
		return "", errGone
	}
	err = s.a.editor.Edit(ctx, s.to, id, part.Text)
	switch {
	case errors.Is(err, channels.ErrRefused):
		return "", errGone
	case errors.Is(err, channels.ErrUncertain):
		return "", errors.New(err.Error()) // an edit can be repeated safely
	}
	if err == nil {
		s.shown.texts[n] = part.Text
	}
	return id, err
}

// send sends a part as a new message. If an earlier attempt may have sent it, and the platform may
// have forgotten the key since, send looks for that message first.
func (s *sender) send(
	ctx context.Context, part bus.Part, d *bus.Delivery,
) (id string, err error) {
	now := s.r.now()
	doubt := !s.uncertainSince.IsZero()
	if f := s.a.finder; f != nil && doubt && now.Sub(s.uncertainSince) >= f.KeyTime() {
		last, err := s.r.outbox.LastSent(s.r.db.Read(ctx), d)
		if err == nil {
			known := slices.Concat(d.IDs, s.shown.ids, last)
			id, err = f.Find(ctx, part, known, s.uncertainSince)
		}
		if err != nil || id != "" {
			return id, err
		}
	}
	if !s.a.deduplicates {
		if s.permit, err = s.a.window.enter(ctx); err != nil {
			return "", err
		}
	}
	id, err = s.a.Channel.Send(ctx, part)
	_, limited := errors.AsType[*channels.RateError](err)
	if err != nil && !limited && s.uncertainSince.IsZero() {
		s.uncertainSince = now
	}
	return id, err
}

// removeRest removes the remaining messages of the preview if the answer is shorter. It returns an
// error only if it must be called again.
func (s *sender) removeRest(ctx context.Context, used []string) error {
	for _, id := range s.shown.ids {
		if s.a.remover == nil || slices.Contains(used, id) {
			continue
		}
		err := s.a.remover.Remove(ctx, s.to, id)
		if _, ok := errors.AsType[*channels.RateError](err); ok {
			return err
		}
		if err != nil && !errors.Is(err, channels.ErrRefused) {
			s.r.log.WarnContext(ctx, "rest of a preview could not be removed", "to", s.to.String(), "id", id,
				"err", err)
		}
	}
	return nil
}

package router

import (
	"context"
	"errors"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// The id of a preview's message is lost if the platform's reply to Send is, or if the process ends
// before it has stored the id. The key of the message is known.

// lostTime is how long a message whose id was lost can be edited. WhatsApp ignores edits after 20
// minutes.
const lostTime = 15 * time.Minute

// isLate reports whether a message whose id was lost can no longer be edited, although the
// platform still knows its key.
func (a *account) isLate(m *messages, now time.Time) bool {
	return a.deduplicates && !m.unsent && now.Sub(m.lostAt) > lostTime
}

// knowsKeys reports whether the platform returns the id of the existing message if Send repeats its
// key, at least for some time.
func (a *account) knowsKeys() bool { return a.deduplicates || a.finder != nil }

// sentNothing reports whether a call of Send that failed with err has certainly sent nothing. If
// the platform knows keys, err does not say that, because Send can be repeated.
func (a *account) sentNothing(err error) bool {
	return !a.knowsKeys() && !errors.Is(err, channels.ErrUncertain)
}

// resendLost sends a part whose message may already exist, as a message of the preview whose id was
// lost. It uses that message's key: a platform that knows the key returns the id of the existing
// message, which is then edited to the text of the part. If it is too late for that, resendLost
// returns errGone, and removeRest removes the message.
func (s *sender) resendLost(ctx context.Context, part bus.Part, late bool) (id string, err error) {
	text := part.Text
	if part.Key = s.shown.lost; late {
		part.Text = "…" // people see it for a moment if the message does not exist
	}
	if id, err = s.a.Channel.Send(ctx, part); err != nil {
		return "", err
	}
	s.shown.lost = ""
	if late {
		s.shown.add(id, "")
		return "", errGone
	}
	err = s.a.editor.Edit(ctx, s.to, id, text)
	if err == nil || errors.Is(err, channels.ErrRefused) {
		return id, nil
	}
	s.shown.add(id, "") // for the next attempt
	if errors.Is(err, channels.ErrUncertain) {
		err = errors.New(err.Error())
	}
	return "", err
}

// findLost finds the message whose id was lost, if the platform knows its key: otherwise nobody
// could remove or mark it. It returns how long to wait before the next call.
func (v *display) findLost(ctx context.Context) time.Duration {
	p := &v.preview
	for p.lost != "" && v.a.knowsKeys() {
		wait := v.a.reserve(&v.w.reservation, v.to, v.a.limits(v.to), v.r.now())
		if wait > 0 {
			return wait
		}
		p.failed = false
		// A message that exists keeps its text. Otherwise this creates it.
		v.showText(ctx, len(p.ids), stoppedMark)
		if p.failed {
			break
		}
	}
	return 0
}

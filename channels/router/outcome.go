package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
	"gateway/store/fault"
)

// recordSent records that the next part of d was sent, with the id of its message. The table lacks
// it until the next save.
func (s *sender) recordSent(ctx context.Context, d *bus.Delivery, id string) {
	fault.Point("sent")
	s.permit.record(d, id)
	fault.Point("recorded")
	s.w.recordReply(ctx)
	s.uncertainSince = time.Time{}
	d.IDs = append(d.IDs, id)
	d.Attempts, d.Crashes, d.Error, s.sending = 0, 0, "", false
}

// finish ends d after all its parts were sent.
func (s *sender) finish(ctx context.Context, d *bus.Delivery, start time.Time) (over bool) {
	if err := s.removeRest(ctx, d.IDs); err != nil {
		return s.failed(ctx, d, err)
	}
	d.State = bus.Sent
	if _, err := s.save(ctx, d); err != nil {
		return false
	}
	fault.Point("delivered")
	id := d.IDs[len(d.IDs)-1]
	if s.a.finisher != nil {
		s.a.finisher.Finish(ctx, s.to, d.IDs, d.Message.Answers)
	}
	s.a.marks.answered(s.to, d.Message.Answers, s.r.now())
	s.r.count(s.to.Account, func(s *Stats) { s.Sent.Add(1) })
	for _, l := range s.r.listeners {
		l.Delivered(d.Message)
	}
	// answers connects this log line with those of the received messages.
	s.r.log.InfoContext(ctx, "message sent", "to", s.to.String(), "id", id,
		"answers", d.Message.Answers, "took", s.r.now().Sub(start))
	return true
}

// failed records a failed attempt at d and sets the time of the next one. over reports that there
// will be none.
func (s *sender) failed(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	now := s.r.now()
	if !s.lastTry.IsZero() { // otherwise it was the first attempt since the start
		d.Tried += min(now.Sub(s.lastTry), s.lastWait+slackTime)
	}
	wait := time.Duration(0)
	d.State, d.Error, d.Crashes, s.sending = bus.Waiting, err.Error(), 0, false
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		wait = limit.After
		s.a.pause(limit, s.to, now)
		s.w.recordReply(ctx)
	} else {
		if errors.Is(err, channels.ErrUncertain) {
			s.r.uncertain(ctx, d)
		}
		d.Attempts++
		wait = backoff(d.Attempts)
		s.retryAt = now.Add(wait)
		if errors.Is(err, channels.ErrRefused) {
			s.w.recordReply(ctx)
		} else if s.w.recordNoReply(ctx, err) {
			// The breaker decides who tries next. With few conversations, one must be ready for that.
			s.retryAt = now.Add(min(wait, lastProbe+probePoll))
		}
	}
	s.lastTry, s.lastWait = now, min(wait, maxCounted)
	if errors.Is(err, channels.ErrRefused) || d.Tried >= maxTried {
		return s.giveUp(ctx, d, err)
	}
	ok, failed := s.save(ctx, d)
	if failed != nil {
		return false
	}
	if !ok { // a person dropped it and needs no notice
		return true
	}
	s.r.log.WarnContext(ctx, "message not sent yet", "to", s.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", wait, "err", err)
	return false
}

// giveUp makes d a dead letter because of err, removes the reactions from the messages that d
// answers, and tells people that no answer will come. over reports that this was stored.
func (s *sender) giveUp(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	d.State, d.Error = bus.Dead, err.Error()
	var notices []bus.OutboundMessage
	pointless, failed := s.r.notices.isPointless(ctx, d)
	switch {
	case pointless:
		d.State = bus.Dropped
	case d.Message.Leave == nil && failed == nil:
		notices, failed = s.r.notices.forGivenUp(ctx, d)
	}
	if failed != nil {
		s.r.log.ErrorContext(ctx, "a message was given up, and nobody could be told",
			"to", s.to.String(), "id", d.ID, "err", failed)
	}
	ok, failed := s.save(ctx, d, notices...)
	if failed != nil || !ok {
		return failed == nil
	}
	s.a.marks.answered(s.to, d.Message.Answers, s.r.now())
	if d.State == bus.Dead {
		s.r.count(s.to.Account, func(s *Stats) { s.Dead.Add(1) })
		s.r.log.ErrorContext(ctx, "message given up: see gateway outbox list",
			"to", s.to.String(), "id", d.ID, "err", err)
	} else {
		s.r.log.WarnContext(ctx, "message dropped: it is a notice, or its group was left",
			"to", s.to.String(), "id", d.ID, "err", err)
	}
	return true
}

// backoff returns how long to wait after a number of failed attempts. The time doubles with each
// attempt and varies by a quarter, so that chats that failed together are not retried together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}

// save stores the progress of d, and notices about it. ok is false if that failed and must be
// retried, or if a person has dropped d.
func (s *sender) save(
	ctx context.Context, d *bus.Delivery, notices ...bus.OutboundMessage,
) (ok bool, err error) {
	err = s.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		if s.crashed { // if a power loss undid its success, that would count as one more crash
			tx.WaitForDisk()
		}
		ok, err = s.r.outbox.Save(tx, d, s.r.now())
		if err == nil && ok {
			err = s.r.notices.put(tx, s.to, notices)
		}
		if err == nil {
			err = s.r.notices.saveLeave(tx, d, ok)
		}
		over := !ok || d.State == bus.Sent || d.State == bus.Dead || d.State == bus.Dropped
		if err == nil && over && d.Message.Stream != "" {
			err = s.r.outbox.ForgetPreview(tx, d.Message.Stream)
		}
		return err
	})
	if err != nil {
		s.r.log.ErrorContext(ctx, "outbox could not be written",
			"to", s.to.String(), "id", d.ID, "err", err)
		s.retryAt = s.r.now().Add(firstRetry)
		return false, err
	}
	s.permit.saved()
	s.permit.free()
	return ok, nil
}

// markSending records in the table that d is being sent. ok is as in save.
func (s *sender) markSending(ctx context.Context, d *bus.Delivery) (ok bool, err error) {
	d.State = bus.Sending
	ok, err = s.save(ctx, d)
	s.sending = ok
	return ok, err
}

// markWaiting records in the table that d is waiting again.
func (s *sender) markWaiting(ctx context.Context, d *bus.Delivery) {
	if !s.sending {
		return
	}
	d.State = bus.Waiting
	if _, err := s.save(ctx, d); err == nil { // otherwise a crash counts as an attempt
		s.sending = false
	}
}

package router

import (
	"context"
	"errors"
	"fmt"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
	"gateway/store/fault"
)

// leaveGroup makes the next attempt of s at d, whose message leaves a group. over is as in
// [sender.try]. A second attempt does no harm, so the outcome of an interrupted one is not
// uncertain.
func leaveGroup(ctx context.Context, s *sender, d *bus.Delivery) (over bool) {
	if !s.sending {
		if ok, err := s.markSending(ctx, d); !ok {
			return err == nil
		}
	}
	fault.Point("leaving")
	err := s.w.withRecover(ctx, func() error {
		leaver, ok := s.a.Channel.(channels.Leaver)
		if !ok {
			return fmt.Errorf("%w: groups can't be left here", channels.ErrRefused)
		}
		return leaver.Leave(ctx, d.Message.Leave.ID)
	})
	if errors.Is(err, channels.ErrUncertain) {
		err = errors.New(err.Error())
	}
	if err != nil {
		return s.failed(ctx, d, err)
	}
	fault.Point("left")
	s.w.recordReply(ctx)
	d.State, d.Attempts, d.Crashes, d.Error = bus.Sent, 0, 0, ""
	if _, err := s.save(ctx, d); err != nil {
		return false
	}
	s.r.log.InfoContext(ctx, "group left", "group", s.to.String(), "id", d.ID)
	return true
}

// saveLeave stores the outcome of d if its message leaves a group. open is false if a person has
// dropped d; the account may have left the group nevertheless.
func (n *notices) saveLeave(tx *store.Tx, d *bus.Delivery, open bool) error {
	if d.Message.Leave == nil || d.State != bus.Sent && (d.State != bus.Dead || !open) {
		return nil
	}
	return n.groups.Leave(tx, d)
}

// isPointless reports whether nobody has to handle the loss of d: it is a notice, or it went to a
// group that the account has left.
func (n *notices) isPointless(ctx context.Context, d *bus.Delivery) (bool, error) {
	if d.Message.Notice || d.Message.Leave != nil || n.groups == nil {
		return d.Message.Notice, nil
	}
	return n.groups.HasLeft(n.db.Read(context.WithoutCancel(ctx)), d.Message.To)
}

package telegram

import (
	"context"
	"encoding/json"
	"time"

	"gateway/channels"
)

// SetStall sets after how long without progress a transfer is given up.
func (c *Channel) SetStall(d time.Duration) { c.stall = d }

// Translate returns what c makes of updates, as Run does.
func (c *Channel) Translate(ctx context.Context, updates ...string) channels.Batch {
	me := user{ID: 7000000001, Bot: true, First: "Gateway", Username: "gateway_bot"}
	var raw []json.RawMessage
	for _, u := range updates {
		raw = append(raw, json.RawMessage(u))
	}
	b, _ := newReceiver(c, me, bare{}).translate(ctx, raw)
	return b
}

// SetAnswer sets how long it may take to tell Telegram that a press was noticed.
func (c *Channel) SetAnswer(d time.Duration) { c.answer = d }

// ErrStalled is the cause when a transfer is given up.
var ErrStalled = errStalled

// bare is an intake that hides no panic.
type bare struct{ channels.Intake }

func (bare) Recover(_ context.Context, f func()) bool { f(); return true }

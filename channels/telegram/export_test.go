package telegram

import (
	"context"
	"encoding/json"
	"time"

	"gateway/channels"
)

// SetStall sets how long a transfer may make no progress before it is given up.
func (c *Channel) SetStall(d time.Duration) { c.stall = d }

// Translate translates updates as Run does.
func (c *Channel) Translate(ctx context.Context, updates ...string) channels.Batch {
	me := user{ID: 7000000001, Bot: true, First: "Gateway", Username: "gateway_bot"}
	var raw []json.RawMessage
	for _, u := range updates {
		raw = append(raw, json.RawMessage(u))
	}
	b, _ := newReceiver(c, me, panickingIntake{}).translate(ctx, raw)
	return b
}

// SetAnswer sets the time limit for telling Telegram that a press was noticed.
func (c *Channel) SetAnswer(d time.Duration) { c.answer = d }

// SetInspect sets the time between two looks at the webhook.
func (c *Channel) SetInspect(d time.Duration) { c.inspect = d }

// panickingIntake is an intake that lets panics pass.
type panickingIntake struct{ channels.Intake }

func (panickingIntake) Recover(_ context.Context, f func()) bool { f(); return true }

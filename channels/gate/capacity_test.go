package gate_test

import (
	"fmt"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

// The reply to a dropped message is not lost if it could not be stored at the first attempt.
func TestDropIsToldAfterFailure(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		atDoor(t, func(d *gateFixture) {
			p := gate.Policy{Access: gate.Open, PerMinute: 1}
			if full {
				err := d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
					_, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1
							FROM n WHERE i < 50000)
						INSERT INTO inbox (account, chat, thread, message, state, body, received_ms)
						SELECT 'tg', 'many', '', 'm' || i, 'waiting', '{}', 0 FROM n`)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			} else {
				d.publish(p, message("first", "ann", "hello"))
			}
			d.exec("CREATE TRIGGER broken BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'no'); END")
			late := channels.Batch{Messages: []bus.InboundMessage{message("late", "ann", "hello")}}
			in := d.gate.Intake("tg", p)
			if err := in.Publish(d.t.Context(), late); err == nil {
				t.Fatal("Publish = nil, want an error")
			}
			d.exec("DROP TRIGGER broken")
			for i := range 3 {
				if err := in.Publish(d.t.Context(), late); err != nil {
					t.Fatal(err)
				}
				late.Messages[0].ID = fmt.Sprint("later", i)
			}
			if told := d.outboxed("chat of ann"); len(told) != 1 {
				t.Errorf("full %v: ann was told %+v, want one message", full, told)
			}
		})
	}
}

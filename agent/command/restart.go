package command

import (
	"context"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/store"
)

// Migration creates the table of this package.
var Migration = store.Migration{Package: "restart", Steps: []string{`
CREATE TABLE restarts (
	account  TEXT NOT NULL,
	chat     TEXT NOT NULL,
	thread   TEXT NOT NULL,
	asked_ms BIGINT NOT NULL,
	PRIMARY KEY (account, chat, thread)
);`}}

// A Restart restarts the gateway, for /restart.
type Restart struct {
	// Check returns why the gateway could not start again, as a sentence for people, or "". It may
	// take some time.
	Check func() string

	// Begin makes the gateway stop as on a signal, and start again. It returns at once. Further
	// calls have no effect.
	Begin func()
}

const (
	sayRestarting = "Restarting. Open work continues afterwards; I tell you here when I am back."
	sayNoRestart  = "I can't restart myself on this system. The person who runs me has to do it."
)

// restart answers /restart. The request is stored with the answer. The next process therefore finds
// the command answered and does not restart again.
func (d decisions) restart(ctx context.Context, r *Request) (Reply, error) {
	if d.Restart == nil {
		return Reply{Text: sayNoRestart}, nil
	}
	if why := d.Restart.Check(); why != "" {
		return Reply{Text: why + " I go on as I am."}, nil
	}
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		if err := r.audit(tx, "restarted", ""); err != nil {
			return Reply{}, err
		}
		return Reply{Text: sayRestarting}, askRestart(tx, r.Message.From, d.Now())
	}, d.Restart.Begin)
}

// TellRestarted tells the people who asked for a restart that the gateway is back.
func (c *Commands) TellRestarted(ctx context.Context) error {
	return c.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		// The requests go in the transaction that sends the messages, so nobody is told twice.
		list, err := takeRestarts(tx)
		now := c.Now()
		for i := 0; i < len(list) && err == nil; i++ {
			took := max(now.Sub(list[i].asked), 0) // the system clock may have been set back
			text := fmt.Sprintf("I am back: %s %s, after %s.", c.Name, c.Version,
				took.Round(time.Second))
			err = c.Outbox.Put(tx, bus.OutboundMessage{To: list[i].to, Text: text}, now)
		}
		return err
	})
}

// A restartRequest is the request of a person who waits to hear that the gateway is back. It is a
// row, so that the next process can tell them even if this one is killed.
type restartRequest struct {
	to    bus.Address
	asked time.Time
}

// askRestart stores a request. Of several requests in one chat the first counts.
func askRestart(tx *store.Tx, to bus.Address, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO restarts (account, chat, thread, asked_ms)
		VALUES ($1, $2, $3, $4) ON CONFLICT (account, chat, thread) DO NOTHING`,
		to.Account, to.Chat, to.Thread, now.UnixMilli())
	return store.Wrap(err, "ask for a restart")
}

// takeRestarts removes all requests and returns them, oldest first.
func takeRestarts(tx *store.Tx) ([]restartRequest, error) {
	read := func(scan store.Scan, r *restartRequest) error {
		var asked int64
		err := scan(&r.to.Account, &r.to.Chat, &r.to.Thread, &asked)
		r.asked = time.UnixMilli(asked)
		return err
	}
	list, err := store.Collect(tx, "read restarts", read,
		"SELECT account, chat, thread, asked_ms FROM restarts ORDER BY asked_ms")
	if err == nil && len(list) > 0 {
		_, err = tx.Exec("DELETE FROM restarts")
	}
	return list, store.Wrap(err, "command: take requests to restart")
}

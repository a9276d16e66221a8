package supervisor

import (
	"context"
	"time"

	"gateway/channels"
	"gateway/store"
)

// An AccountState is the last recorded state of an account.
type AccountState struct {
	Account string
	State   string    // a few words, or a sentence that says what happened and what to do
	Since   time.Time // when it was last connected or disconnected
	Event   time.Time // when the channel last published something; zero: never
}

// States returns the recorded states by account.
func States(q store.Queryer) (map[string]AccountState, error) {
	states := make(map[string]AccountState)
	err := store.Each(q, "supervisor: read states", func(scan store.Scan) error {
		var a AccountState
		var since, event int64
		err := scan(&a.Account, &a.State, &since, &event)
		a.Since = time.UnixMilli(since)
		if event > 0 {
			a.Event = time.UnixMilli(event)
		}
		states[a.Account] = a
		return err
	}, "SELECT account, state, since_ms, event_ms FROM accounts")
	return states, err
}

// noteInterval is the time between two records of the last event. notePause is how long a new state
// waits before it is recorded, in case another one follows immediately.
const (
	noteInterval = 2 * time.Second
	notePause    = 100 * time.Millisecond
)

// noteStates records the account's state in the database for other processes, until ctx is done.
func (s *Supervisor) noteStates(ctx context.Context) {
	var noted AccountState
	tick := time.NewTicker(noteInterval)
	defer tick.Stop()
	for more := true; more; {
		select {
		case <-s.entered:
			more = channels.Sleep(ctx, notePause)
		case <-tick.C:
		case <-ctx.Done():
			more = false
		}
		s.mu.Lock()
		now := AccountState{s.name, s.text, s.since, s.event}
		s.mu.Unlock()
		if now == noted {
			continue
		}
		event := int64(0)
		if !now.Event.IsZero() {
			event = now.Event.UnixMilli()
		}
		err := s.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO accounts (account, state, since_ms, event_ms)
				VALUES ($1, $2, $3, $4) ON CONFLICT (account) DO UPDATE SET state = excluded.state,
					since_ms = excluded.since_ms, event_ms = max(event_ms, excluded.event_ms)`,
				s.name, now.State, now.Since.UnixMilli(), event)
			return err
		})
		if err != nil {
			s.log.WarnContext(ctx, "state could not be recorded", "err", err)
			continue
		}
		noted = now
	}
}

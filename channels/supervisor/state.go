package supervisor

import (
	"context"
	"fmt"
	"time"

	"gateway/channels"
	"gateway/store"
)

// An AccountState is how an account was when it was last noted.
type AccountState struct {
	Account string
	State   string    // a few words, or what happened and what to do
	Since   time.Time // when that began
	Event   time.Time // when the platform delivered something for the last time; zero for never
}

// States returns the noted states by account.
func States(q store.Queryer) (map[string]AccountState, error) {
	rows, err := q.Query("SELECT account, state, since_ms, event_ms FROM accounts")
	if err != nil {
		return nil, fmt.Errorf("supervisor: read states: %w", err)
	}
	defer rows.Close()
	states := make(map[string]AccountState)
	for rows.Next() {
		var a AccountState
		var since, event int64
		if err := rows.Scan(&a.Account, &a.State, &since, &event); err != nil {
			return nil, fmt.Errorf("supervisor: read states: %w", err)
		}
		a.Since = time.UnixMilli(since)
		if event > 0 {
			a.Event = time.UnixMilli(event)
		}
		states[a.Account] = a
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("supervisor: read states: %w", err)
	}
	return states, nil
}

// noteEvery is how soon it is noted that something came, and notePause how soon a state that
// follows on another one is.
const (
	noteEvery = 2 * time.Second
	notePause = 100 * time.Millisecond
)

// note keeps the account's state in the database, for those who look at it from outside, until
// ctx ends.
func (s *Supervisor) note(ctx context.Context) {
	var noted AccountState
	tick := time.NewTicker(noteEvery)
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
			s.log.WarnContext(ctx, "state not noted", "err", err)
			continue
		}
		noted = now
	}
}

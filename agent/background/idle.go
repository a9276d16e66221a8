package background

import (
	"context"
	"time"

	"gateway/session"
	"gateway/store"
)

// An IdleSweep adds tasks that make notes of idle conversations. All its fields are required.
type IdleSweep struct {
	DB       *store.DB
	Settings Settings
	Now      func() time.Time

	tasks Store
}

// maxIdle is the maximum number of conversations per transaction.
const maxIdle = 100

func (i *IdleSweep) add(ctx context.Context) error {
	after := i.Settings.Background().IdleAfter
	if after <= 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	keys, err := session.Idle(i.DB.Read(ctx), i.Now().Add(-after), maxIdle)
	if err != nil || len(keys) == 0 {
		return err
	}
	return i.DB.Tx(ctx, func(tx *store.Tx) error {
		for _, key := range keys {
			if err := i.addFor(tx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// addFor adds the task for a session, unless it is the session of a sub-agent or a job: their work
// is over.
func (i *IdleSweep) addFor(tx *store.Tx, key session.Key) error {
	if err := session.MarkTidied(tx, key); err != nil {
		return err
	}
	s, err := session.ReadSummary(tx, key)
	if err != nil {
		return err
	}
	if s.Scope == "" || !key.IsConversation() {
		return nil
	}
	work := Work{Kind: Idle, Scope: s.Scope, Session: key.String()}
	return i.tasks.Put(tx, Task{Work: work}, i.Now())
}

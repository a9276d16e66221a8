package gate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
	"gateway/store/fault"
)

// Intake returns the Publisher for the channel of an account. p applies until [Gate.SetPolicy]
// replaces it.
func (g *Gate) Intake(account string, p Policy) channels.Publisher {
	g.SetPolicy(account, p)
	return &intake{g, account, g.Stats(account)}
}

type intake struct {
	gate    *Gate
	account string
	stats   *Stats
}

// Identify implements [channels.Publisher].
func (in *intake) Identify(ctx context.Context, id string) error {
	g := in.gate
	var before string
	err := g.db.Tx(ctx, func(tx *store.Tx) error {
		before = ""
		err := tx.QueryRow("SELECT platform FROM bots WHERE account = $1", in.account).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) || before == id {
			return err
		}
		_, err = tx.Exec(`INSERT INTO bots (account, platform) VALUES ($1, $2)
			ON CONFLICT (account) DO UPDATE SET platform = excluded.platform`, in.account, id)
		if err != nil || before == "" {
			return err
		}
		if err := bus.ReplaceAccount(tx, in.account); err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM places WHERE account = $1 AND place = ''", in.account)
		return err
	})
	if err != nil {
		return fmt.Errorf("gate: identify %s: %w", in.account, err)
	}
	if before != "" && before != id {
		g.log.WarnContext(ctx, "the account has changed, for example by "+
			"another token: it starts without a history, and sends what is waiting",
			"account", in.account, "before", before, "now", id)
	}
	return nil
}

// Cursors implements [channels.Publisher].
func (in *intake) Cursors(ctx context.Context) (map[string]string, error) {
	cursors := make(map[string]string)
	err := store.Each(in.gate.db.Read(ctx), "gate: cursors of "+in.account,
		func(scan store.Scan) error {
			var place, cursor string
			err := scan(&place, &cursor)
			cursors[place] = cursor
			return err
		}, "SELECT place, cursor FROM places WHERE account = $1", in.account)
	return cursors, err
}

// Recover implements [channels.Publisher].
func (in *intake) Recover(ctx context.Context, f func()) (ok bool) {
	ok = in.survive(ctx, "update skipped: the channel panicked", f)
	if !ok {
		in.stats.Skipped.Add(1)
	}
	return ok
}

// survive calls f. If f panics, survive logs the panic with a message and returns false.
func (in *intake) survive(ctx context.Context, message string, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			in.gate.log.ErrorContext(ctx, message, "account", in.account,
				"panic", channels.PanicText(p), "stack", string(debug.Stack()))
			ok = false
		}
	}()
	f()
	return true
}

// Publish implements [channels.Publisher]. If the gate panics, Publish stores each message by
// itself, and skips those with which the gate panics again. Otherwise the platform would deliver
// them again and crash the next process, too.
func (in *intake) Publish(ctx context.Context, b channels.Batch) (err error) {
	const message = "the gate panicked: it tries each message of the batch by itself"
	if in.survive(ctx, message, func() { err = in.publish(ctx, b) }) {
		return err
	}
	var singles []channels.Batch
	for i := range b.Joined {
		singles = append(singles, channels.Batch{Joined: b.Joined[i : i+1]})
	}
	for i := range b.Messages {
		singles = append(singles, channels.Batch{Messages: b.Messages[i : i+1]})
	}
	for _, one := range singles {
		one.Migrated, one.Unanswered, one.Hold = b.Migrated, b.Unanswered, b.Hold
		if in.Recover(ctx, func() { err = in.publish(ctx, one) }); err != nil {
			return err
		}
	}
	// The panic may have come after the messages were stored.
	in.gate.inbox.Wake()
	if err := in.releaseSingly(ctx, b.Release); err != nil {
		return err
	}
	// The cursor must pass the skipped messages.
	b.Messages, b.Joined, b.Release, b.Keep = nil, nil, nil, true
	return in.publish(ctx, b)
}

// releaseSingly releases the held messages that release returns, each by itself. Those with which
// the gate panics stay held.
func (in *intake) releaseSingly(
	ctx context.Context, release func([]bus.InboundMessage) []bus.InboundMessage,
) (err error) {
	tried := make(map[int64]bool) // by Origin.Held
	for next := release != nil; next && err == nil; {
		next = false
		one := func(held []bus.InboundMessage) []bus.InboundMessage {
			for _, m := range release(held) {
				if !tried[m.Origin.Held] {
					next, tried[m.Origin.Held] = true, true
					return []bus.InboundMessage{m}
				}
			}
			return nil
		}
		in.Recover(ctx, func() { err = in.publish(ctx, channels.Batch{Release: one}) })
	}
	return err
}

// publish stores b in one transaction, and then passes on the texts for senders who get no reply in
// the chat.
func (in *intake) publish(ctx context.Context, b channels.Batch) error {
	b.Migrated = in.gate.moves.unstored(in.account, b.Migrated)
	unanswered := make(map[string]string)
	list, err := in.decideAll(ctx, b, unanswered)
	if err != nil {
		return err
	}
	// Without a row there is nothing to store: the cursor only concerns stored messages.
	if len(list) > 0 || len(b.Migrated) > 0 || b.Forget || b.Keep || b.Release != nil {
		if err := in.storeBatch(ctx, b, list, unanswered); err != nil {
			return err
		}
	}
	if b.Unanswered != nil {
		for id, text := range unanswered {
			b.Unanswered(id, text)
		}
	}
	return nil
}

// storeBatch stores the outcome of b. list has the messages of b that need a row. storeBatch may
// change unanswered, as save does.
func (in *intake) storeBatch(
	ctx context.Context, b channels.Batch, list []decided, unanswered map[string]string,
) error {
	g, stored := in.gate, false
	defer func() {
		if !stored {
			undoAll(list)
		}
	}()
	now := g.now()
	var fresh []bus.InboundMessage
	var sent replies
	// Only the acknowledgement to the platform must wait for the disk, not the dispatcher.
	err := g.db.TxEarly(ctx, func(tx *store.Tx) error {
		err := in.saveMigrations(tx, b.Migrated)
		if err != nil {
			return err
		}
		if fresh, sent, err = g.save(tx, list, b.Hold, now, unanswered); err != nil {
			return err
		}
		if fresh, err = in.release(tx, b, fresh, now); err != nil {
			return err
		}
		if b.Forget {
			return in.dropCursor(tx, b.CursorKey, b.Cursor)
		}
		return in.saveCursor(tx, b.CursorKey, b.Cursor)
	}, func() { in.announce(b, fresh) })
	if err != nil {
		return err
	}
	stored = true
	if !b.Hold {
		in.countRepeated(ctx, list, fresh)
	}
	if sent.codes > 0 {
		g.log.InfoContext(ctx, "strangers got a pairing code: see gateway people list",
			"account", in.account, "strangers", sent.codes)
	}
	if sent.dropped > 0 {
		g.log.InfoContext(ctx, "people were told that their messages were dropped",
			"account", in.account, "messages", sent.dropped)
	}
	return nil
}

// release puts the held messages that b releases into the inbox. It appends them to fresh. It sets
// aside held messages that can't be read.
func (in *intake) release(
	tx *store.Tx, b channels.Batch, fresh []bus.InboundMessage, now time.Time,
) ([]bus.InboundMessage, error) {
	if b.Release == nil {
		return fresh, nil
	}
	list, err := bus.TakeHeld(tx, in.account, b.Release)
	bad, ok := store.RowErrors(err)
	if !ok {
		return fresh, err
	}
	err = nil
	for i := 0; i < len(bad) && err == nil; i++ {
		err = in.gate.inbox.SetAside(tx, bad[i].ID)
		tx.After(func() { in.gate.log.Error("row set aside", "err", bad[i]) })
	}
	for i := 0; i < len(list) && err == nil; i++ {
		fresh, err = admit(tx, in.gate.inbox, list[i], fresh, now)
	}
	return fresh, err
}

// announce counts the messages of b that are new in the inbox, tells the listeners about them, and
// wakes the inbox.
func (in *intake) announce(b channels.Batch, fresh []bus.InboundMessage) {
	g := in.gate
	fault.Point("accepted")
	if len(b.Migrated) > 0 {
		g.expire()
		g.moves.markStored(in.account, b.Migrated)
	}
	if len(fresh) == 0 {
		return
	}
	in.stats.Received.Add(int64(len(fresh)))
	g.backlog.add(len(fresh))
	overheard := func(m bus.InboundMessage) bool { return m.VoiceState == bus.Overheard }
	certain := fresh
	if slices.ContainsFunc(fresh, overheard) {
		certain = slices.DeleteFunc(slices.Clone(fresh), overheard)
	}
	for _, l := range g.listeners {
		l.Admitted(certain) // before an answer can exist
	}
	g.inbox.Wake()
}

// countRepeated counts the messages that were already in the inbox. A platform delivers a message
// again if it missed our acknowledgement.
func (in *intake) countRepeated(ctx context.Context, list []decided, fresh []bus.InboundMessage) {
	type key struct {
		from bus.Address
		id   string
	}
	stored := make(map[key]bool, len(fresh))
	for i := range fresh {
		stored[key{fresh[i].From, fresh[i].ID}] = true
	}
	for i := range list {
		d := &list[i]
		if d.decision != admitted || stored[key{d.From, d.ID}] {
			continue
		}
		in.stats.Repeated.Add(1)
		in.gate.log.DebugContext(ctx, "message dropped: it is already in the inbox",
			"from", d.From.String(), "id", d.ID)
	}
}

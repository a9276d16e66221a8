package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// Who asks for it is forgotten: transcripts, memory, files, and who they are. What is rows goes in
// the command's own transaction, but for what is still to be sent to them; the rest is a chore.

// erased is what is left to be erased of a person or a room.
type erased struct {
	Scopes []memory.Scope `json:"scopes"` // the first is that of the chore
	Chats  []bus.Address  `json:"chats"`  // without threads
	Inbox  int64          `json:"inbox"`  // up to here is theirs
	Outbox int64          `json:"outbox"` // likewise
	Person int64          `json:"person"`
	Files  bool           `json:"files"` // are gone
	Swept  []bus.Address  `json:"swept"` // chats of which the bus has nothing any more
	Sent   bool           `json:"sent"`  // was the last message, and the bus has nothing of them
}

// A Keeper has something of its own about people, beside the gateway's data. It may be used by
// several goroutines.
type Keeper interface {
	// Erase deletes that about chats, and about the people behind direct ones. It may be called
	// again.
	Erase(ctx context.Context, chats []string) error
}

// An erasure erases all that is known of the sender of a command: it implements
// [command.Erasure].
type erasure struct {
	d       *Dispatcher
	command bus.Received
	stop    *stopping
	keys    []session.Key // that were erased
}

// Erase implements [command.Erasure].
func (e *erasure) Erase(tx *store.Tx, answer bus.OutboundMessage) error {
	d, m := e.d, e.command.Message
	stopped, err := e.stop.End(tx)
	if err != nil {
		return err
	}
	s := scopeOf(m)
	left := erased{Scopes: []memory.Scope{s}, Chats: []bus.Address{chatOf(m.From)},
		Inbox: e.command.Seq, Person: m.Person}
	if e.keys, err = d.eraseRows(tx, &left); err != nil {
		return err
	}
	answer.Answers, answer.Stops = append(answer.Answers, stopped.Answers...), stopped.Streams
	if left.Outbox, err = d.Outbox.Add(tx, answer, d.opts.Now()); err != nil {
		return err
	}
	work := background.Work{Kind: background.Erase, Scope: s, Ref: e.command.Seq}
	return d.chores.Put(tx, background.Task{Work: work, State: jsonOf(left)}, d.opts.Now())
}

// Cancel implements [command.Erasure].
func (e *erasure) Cancel() {
	e.stop.Cancel()
	e.d.letGo(e.keys)
}

// Forget erases all of a scope, as /forget does for a person. The rows go at once, files and the
// rest with the chores of whichever gateway runs on the same data.
func (d *Dispatcher) Forget(ctx context.Context, s memory.Scope) error {
	return d.tx(ctx, func(tx *store.Tx) error {
		left := erased{Scopes: []memory.Scope{s}, Person: s.Person()}
		var err error
		if left.Inbox, err = d.Inbox.Newest(tx); err != nil {
			return err
		}
		if left.Outbox, err = d.Outbox.Newest(tx); err != nil {
			return err
		}
		if _, err := d.eraseRows(tx, &left); err != nil {
			return err
		}
		work := background.Work{Kind: background.Erase, Scope: s, Ref: left.Inbox}
		return d.chores.Put(tx, background.Task{Work: work, State: jsonOf(left)}, d.opts.Now())
	})
}

// eraseRows deletes the rows of a person or a room, and notes where else there is something. It
// returns the sessions that there were.
func (d *Dispatcher) eraseRows(tx *store.Tx, left *erased) ([]session.Key, error) {
	if left.Person != 0 { // there may be chats in which no turn ever ran
		chats, err := d.Inbox.DirectChats(tx, left.Person)
		if err != nil {
			return nil, err
		}
		for _, a := range chats {
			left.addChat(a)
		}
	}
	var jobs schedule.Store // also for the command line, where nothing is scheduled
	keys, err := d.theirs(tx, left)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := d.eraseSession(tx, key); err != nil {
			return nil, err
		}
	}
	for _, s := range left.Scopes {
		if err := d.Memory.In(s).Erase(tx); err != nil {
			return nil, err
		}
		if err := d.chores.Drop(tx, s); err != nil {
			return nil, err
		}
		if err := jobs.EraseScope(tx, s); err != nil {
			return nil, err
		}
	}
	for _, a := range left.Chats { // nothing of that is to be answered any more
		if err := d.Inbox.DropAll(tx, a, left.Inbox); err != nil {
			return nil, err
		}
		if err := jobs.EraseChat(tx, a); err != nil {
			return nil, err
		}
	}
	if err := jobs.ErasePerson(tx, left.Person); err != nil {
		return nil, err
	}
	if err := d.opts.Usage.Erase(tx, budget.Spender{Person: left.Person}); err != nil {
		return nil, err
	}
	return keys, d.opts.Forget(tx, left.Person, left.Chats)
}

// theirs returns the sessions of left's scopes and chats, and adds what scopes and chats those
// have.
func (d *Dispatcher) theirs(tx *store.Tx, left *erased) (keys []session.Key, err error) {
	add := func(found []session.Key, err error) error {
		for i := 0; i < len(found) && err == nil; i++ {
			if !slices.Contains(keys, found[i]) {
				keys = append(keys, found[i])
				err = d.addPlaces(tx, found[i], left)
			}
		}
		return err
	}
	for scopes, chats := 0, 0; scopes < len(left.Scopes) || chats < len(left.Chats); {
		if scopes < len(left.Scopes) {
			s := left.Scopes[scopes]
			scopes++
			merging, err := d.chores.Merging(tx, s)
			if err == nil {
				left.addScopes(merging...)
				err = add(d.sessions.OfScope(tx, s))
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := add(d.sessions.OfChat(tx, left.Chats[chats])); err != nil {
			return nil, err
		}
		chats++
	}
	return keys, nil
}

// addPlaces adds the chat of a session, and its scope: it may be that of the chat still, from
// before the person was known, or of another person whom they were linked with.
func (d *Dispatcher) addPlaces(tx *store.Tx, key session.Key, left *erased) error {
	a, _, err := d.sessions.Address(tx, key)
	if err != nil {
		return err
	}
	left.addChat(a)
	s, err := d.sessions.Summary(tx, key)
	if err != nil || s.Scope == "" {
		return err
	}
	if follows, err := d.follows(tx, s.Scope, left.Scopes[0]); err != nil || !follows {
		return err
	}
	left.addScopes(s.Scope)
	return nil
}

func (left *erased) addChat(a bus.Address) {
	if a = chatOf(a); !slices.Contains(left.Chats, a) {
		left.Chats = append(left.Chats, a)
	}
}

func (left *erased) addScopes(list ...memory.Scope) {
	for _, s := range list {
		if !slices.Contains(left.Scopes, s) {
			left.Scopes = append(left.Scopes, s)
		}
	}
}

// chatOf returns the chat of an address, all its threads together.
func chatOf(a bus.Address) bus.Address { return bus.Address{Account: a.Account, Chat: a.Chat} }

func (d *Dispatcher) eraseSession(tx *store.Tx, key session.Key) error {
	t, err := d.sessions.RunningTurn(tx, key)
	if err != nil {
		return err
	}
	if t != nil { // of another platform: its writes are refused from now on
		if err := d.endStopped(tx, t, new(command.Stopped), false); err != nil {
			return err
		}
	}
	if err := d.sessions.Erase(tx, key); err != nil {
		return err
	}
	if err := d.questions.Erase(tx, string(key)); err != nil {
		return err
	}
	return d.opts.Usage.Erase(tx, budget.Spender{Session: string(key)})
}

// letGo ends what works for sessions that were erased, and what is known of them in memory.
func (d *Dispatcher) letGo(keys []session.Key) {
	for _, key := range keys {
		d.cancelStopped(key, true, nil)
		d.recent.drop(key)
		d.mu.Lock()
		delete(d.modes, key)
		delete(d.models, key)
		d.mu.Unlock()
	}
}

// eraseWait is how soon it is looked again whether the last message was sent.
const eraseWait = 5 * time.Second

// eraseRest deletes the files of a scope and, once the last message was sent, what the bus and the
// accounts have of its chats, and then all that is left of deleted rows.
func (d *Dispatcher) eraseRest(ctx context.Context, c *background.Task) (outcome, error) {
	var left erased
	if err := json.Unmarshal(c.State, &left); err != nil {
		return outcome{}, fmt.Errorf("agent: erase %s: %w", c.Scope, err)
	}
	if err := d.settleErased(ctx); err != nil {
		return outcome{}, err
	}
	if !left.Files { // once: those that come while something is still to be sent are others
		if err := d.eraseFiles(ctx, &left); err != nil {
			return outcome{}, err
		}
		left.Files = true
	}
	if !left.Sent {
		var err error
		if left.Sent, err = d.eraseBus(ctx, &left); err != nil {
			return outcome{}, err
		}
		// An account that has just sent a message works with the keys of who gets it, and takes its
		// marks from what was answered.
		if !left.Sent || len(d.keepers(&left)) > 0 {
			return outcome{again: d.opts.Now().Add(eraseWait), state: jsonOf(left)}, nil
		}
	}
	chats := make(map[string][]string)
	for _, a := range left.Chats {
		chats[a.Account] = append(chats[a.Account], a.Chat)
	}
	for account, k := range d.keepers(&left) {
		if err := k.Erase(ctx, chats[account]); err != nil {
			return outcome{}, err
		}
	}
	left.Chats, left.Swept = nil, nil // else the chore itself would be the last trace
	err := d.tx(ctx, func(tx *store.Tx) error { return d.chores.Save(tx, c, jsonOf(left)) })
	if err != nil {
		return outcome{}, err
	}
	return outcome{}, d.DB.Shred(ctx)
}

// keepers returns what keeps something of left's chats on their accounts.
func (d *Dispatcher) keepers(left *erased) map[string]Keeper {
	list := make(map[string]Keeper)
	for _, a := range left.Chats {
		if k := d.opts.Keeper(a.Account); k != nil {
			list[a.Account] = k
		}
	}
	return list
}

// eraseBus deletes what the bus has of the chats, and reports whether that is all of it: what is
// still to be sent stays until it was, unless nobody will ever send it, and its chat with it.
func (d *Dispatcher) eraseBus(ctx context.Context, left *erased) (done bool, err error) {
	var chats []bus.Address
	err = d.tx(ctx, func(tx *store.Tx) error {
		done, chats = true, nil
		for _, a := range left.Chats {
			if slices.Contains(left.Swept, a) {
				continue
			}
			if !d.opts.Served(a.Account) {
				if err := d.Outbox.DropAll(tx, a, left.Outbox); err != nil {
					return err
				}
			}
			open, err := d.Outbox.Owes(tx, a, left.Outbox)
			if err != nil {
				return err
			}
			if open {
				done = false
			} else {
				chats = append(chats, a)
			}
		}
		return nil
	})
	if err != nil || len(chats) == 0 {
		return done, err
	}
	if err := d.erasePages(ctx, chats, left.Outbox, d.Outbox.Erase); err != nil {
		return false, err
	}
	if err := d.erasePages(ctx, chats, left.Inbox, d.Inbox.Erase); err != nil {
		return false, err
	}
	left.Swept = append(left.Swept, chats...)
	return done, nil
}

// erasePages calls erase for chats and page after page of a table, up to an id, a transaction for
// each page.
func (d *Dispatcher) erasePages(ctx context.Context, chats []bus.Address, upTo int64,
	erase func(tx *store.Tx, a bus.Address, after, upTo int64) (int64, error),
) error {
	for after := int64(0); after < upTo; {
		if err := ctx.Err(); err != nil {
			return err
		}
		fault.Point("erasing")
		var next int64
		err := d.tx(ctx, func(tx *store.Tx) (err error) {
			for i := 0; i < len(chats) && err == nil; i++ {
				next, err = erase(tx, chats[i], after, upTo)
			}
			return err
		})
		if err != nil {
			return err
		}
		after = next
	}
	return nil
}

// settleErased deletes the rows of memory and transcripts that erasing has made unreachable, in
// many short transactions. It does nothing if there are none.
func (d *Dispatcher) settleErased(ctx context.Context) error {
	if err := d.Memory.Settle(ctx); err != nil {
		return err
	}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := d.tx(ctx, func(tx *store.Tx) (err error) {
			more, err = d.sessions.Settle(tx)
			return err
		})
		if err != nil {
			return err
		}
		fault.Point("erasing")
	}
	return nil
}

func (d *Dispatcher) eraseFiles(ctx context.Context, left *erased) error {
	for _, s := range left.Scopes {
		if d.Documents != nil {
			if err := d.tree(s).Remove(ctx); err != nil {
				return err
			}
		}
		if err := d.Memory.EraseFiles(ctx, s); err != nil {
			return err
		}
	}
	if d.Media == nil {
		return nil
	}
	for _, a := range left.Chats {
		if err := d.Media.Erase(a); err != nil {
			return err
		}
	}
	return nil
}

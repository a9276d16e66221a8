package background

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gateway/agent/audit"
	"gateway/agent/budget"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// An Eraser deletes people and groups: transcripts, memory, files, and their registration.
// [Eraser.Rows] deletes the rows immediately, except those of messages that are still to be sent.
// Background tasks of the kind [Erase] delete the rest. Rows needs only DB, Inbox, Outbox, Memory,
// Ledger, People and Now.
type Eraser struct {
	DB       *store.DB
	Inbox    *bus.Inbox
	Outbox   *bus.Outbox
	Memory   *memory.Memory
	Ledger   *budget.Ledger
	Versions *Versions
	Media    Media // nil: no files
	People   People
	Accounts Accounts
	Now      func() time.Time

	// ReloadChoices reads again what people have chosen for conversations, because another process
	// may have erased some of it.
	ReloadChoices func(q store.Queryer) error

	tasks Store
}

// An Erasure lists the data of a person or a room that is still to be erased.
type Erasure struct {
	Scopes []memory.Scope `json:"scopes"` // the first is the scope of the task
	Chats  []bus.Address  `json:"chats"`  // without threads
	Inbox  int64          `json:"inbox"`  // their messages in the inbox have ids up to this one
	Outbox int64          `json:"outbox"` // the same for the outbox
	Person int64          `json:"person"`
	Files  bool           `json:"files"` // the files are deleted
	Swept  []bus.Address  `json:"swept"` // chats without rows in the bus
	Usage  []session.Key  `json:"usage"` // sessions whose usage counts are still to be erased
	Sent   bool           `json:"sent"`  // the last message is sent, and the bus has no rows of theirs

	// Dropped has the From and the ID of messages that get no answer. What the accounts show on them
	// is still to be taken back.
	Dropped []bus.InboundMessage `json:"dropped,omitempty"`
}

// Forget erases a scope, as /forget does for a person. It deletes the rows immediately. The gateway
// that runs on the same data deletes the files and the rest in the background.
func (e *Eraser) Forget(ctx context.Context, s memory.Scope) error {
	return commit(ctx, e.DB, func(tx *store.Tx) error {
		left := Erasure{Scopes: []memory.Scope{s}, Person: s.Person()}
		var err error
		if left.Inbox, err = e.Inbox.Newest(tx); err != nil {
			return err
		}
		if left.Outbox, err = e.Outbox.Newest(tx); err != nil {
			return err
		}
		if _, err := e.Rows(tx, &left); err != nil {
			return err
		}
		return e.Add(tx, &left)
	})
}

// Add adds the task that erases the rest.
func (e *Eraser) Add(tx *store.Tx, left *Erasure) error {
	work := Work{Kind: Erase, Scope: left.Scopes[0], Ref: left.Inbox}
	return e.tasks.Put(tx, Task{Work: work, State: jsonOf(left)}, e.Now())
}

// Rows deletes the rows of a person or a room and records in left what else must be erased. It
// returns the keys of their sessions.
func (e *Eraser) Rows(tx *store.Tx, left *Erasure) ([]session.Key, error) {
	keys, err := e.Find(tx, left)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := e.eraseSession(tx, key, left); err != nil {
			return nil, err
		}
	}
	for _, s := range left.Scopes {
		if err := e.Memory.In(s).Erase(tx); err != nil {
			return nil, err
		}
		if err := e.tasks.Drop(tx, s); err != nil {
			return nil, err
		}
		if err := schedule.EraseScope(tx, s); err != nil {
			return nil, err
		}
	}
	for _, a := range left.Chats { // messages from these chats must not be answered any more
		dropped, err := e.Inbox.DropAll(tx, a, left.Inbox)
		if err != nil {
			return nil, err
		}
		left.addDropped(dropped)
		if err := schedule.EraseChat(tx, a); err != nil {
			return nil, err
		}
		who, err := bus.DirectSender(tx, a)
		if err == nil && who.ID != "" {
			err = audit.EraseSender(tx, a.Account, who.ID)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, person := range left.People() {
		if err := schedule.ErasePerson(tx, person); err != nil {
			return nil, err
		}
		if err := audit.Erase(tx, person, nil); err != nil {
			return nil, err
		}
	}
	if err := audit.Erase(tx, 0, left.Chats); err != nil {
		return nil, err
	}
	left.Usage = keys
	for _, who := range left.spenders() {
		if err := e.Ledger.Erase(tx, who); err != nil {
			return nil, err
		}
	}
	return keys, e.People.Forget(tx, left.Person, left.Chats)
}

// People returns the numbers of the person, also those from before they were linked with others.
func (left *Erasure) People() (list []int64) {
	if left.Person != 0 {
		list = append(list, left.Person)
	}
	for _, s := range left.Scopes {
		if id := s.Person(); id != 0 && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// Find returns the sessions of left's person, scopes and chats, and adds the scopes and chats of
// those sessions to left. It treats people who were linked with the person as the same person. Find
// changes nothing in the database, and needs only Inbox and People.
func (e *Eraser) Find(q store.Queryer, left *Erasure) (keys []session.Key, err error) {
	if err := e.addFormerIDs(q, left); err != nil {
		return nil, err
	}
	add := func(found []session.Key, err error) error {
		for i := 0; i < len(found) && err == nil; i++ {
			if !slices.Contains(keys, found[i]) {
				keys = append(keys, found[i])
				err = e.addPlaces(q, found[i], left)
			}
		}
		return err
	}
	for _, id := range left.People() { // there may be chats and choices without any turn
		chats, err := bus.DirectChats(q, id)
		for _, a := range chats {
			left.addChat(a)
		}
		if err == nil {
			err = add(session.OfPerson(q, id))
		}
		if err != nil {
			return nil, err
		}
	}
	for scopes, chats := 0, 0; scopes < len(left.Scopes) || chats < len(left.Chats); {
		if scopes < len(left.Scopes) {
			s := left.Scopes[scopes]
			scopes++
			merging, err := e.tasks.Merging(q, s)
			if err == nil {
				left.addScopes(merging...)
				err = add(session.OfScope(q, s))
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := add(session.OfChat(q, left.Chats[chats])); err != nil {
			return nil, err
		}
		chats++
	}
	return keys, nil
}

// addFormerIDs adds the scopes of the people who were linked with left's person.
func (e *Eraser) addFormerIDs(q store.Queryer, left *Erasure) error {
	if left.Person == 0 {
		return nil
	}
	former, err := e.People.FormerIDs(q, left.Person)
	for _, id := range former {
		left.addScopes(memory.OfPerson(id))
	}
	return err
}

// addPlaces adds the chat of a session and its scope to left. The session may still have an older
// scope: that of the chat, from before the person was known, or that of another person with whom
// they were linked.
func (e *Eraser) addPlaces(q store.Queryer, key session.Key, left *Erasure) error {
	left.addChat(key.Conversation)
	s, err := session.ReadSummary(q, key)
	if err != nil || s.Scope == "" {
		return err
	}
	if follows, err := follows(q, e.People, s.Scope, left.Scopes[0]); err != nil || !follows {
		return err
	}
	left.addScopes(s.Scope)
	return nil
}

func (left *Erasure) addChat(a bus.Address) {
	if a = ChatOf(a); a.Chat != "" && !slices.Contains(left.Chats, a) {
		left.Chats = append(left.Chats, a)
	}
}

func (left *Erasure) addScopes(list ...memory.Scope) {
	for _, s := range list {
		if !slices.Contains(left.Scopes, s) {
			left.Scopes = append(left.Scopes, s)
		}
	}
}

// ChatOf returns a without its thread: the address of the whole chat.
func ChatOf(a bus.Address) bus.Address { return bus.Address{Account: a.Account, Chat: a.Chat} }

// eraseSession deletes a session. A turn that runs in it ends first, and its later writes fail.
func (e *Eraser) eraseSession(tx *store.Tx, key session.Key, left *Erasure) error {
	t, err := session.RunningTurn(tx, key)
	if err == nil && t != nil {
		err = e.endTurn(tx, t, left)
	}
	if err != nil {
		return err
	}
	if err := session.Erase(tx, key); err != nil {
		return err
	}
	return question.Erase(tx, key.String())
}

// addDropped adds messages of people that get no answer to left.
func (left *Erasure) addDropped(list []bus.Received) {
	for _, r := range list {
		if m := &r.Message; m.Origin.Kind == bus.Person {
			left.Dropped = append(left.Dropped, bus.InboundMessage{From: m.From, ID: m.ID})
		}
	}
}

// spenders returns the sessions and people whose usage is erased.
func (left *Erasure) spenders() (list []budget.Spender) {
	for _, key := range left.Usage {
		list = append(list, budget.Spender{Session: key})
	}
	for _, person := range left.People() {
		list = append(list, budget.Spender{Person: person})
	}
	return list
}

// endTurn ends a turn and the messages that it has claimed.
func (e *Eraser) endTurn(tx *store.Tx, t *session.Turn, left *Erasure) error {
	taken, err := e.Inbox.ClaimedBy(tx, t.ID)
	if err != nil {
		return err
	}
	left.addDropped(taken)
	for _, r := range taken {
		if run := r.Message.Origin.Run; run != 0 {
			if err := schedule.StopRun(tx, run, e.Now()); err != nil {
				return err
			}
		}
	}
	if err := question.VoidAll(tx, t.ID); err != nil {
		return err
	}
	if err := session.EndTurn(tx, t, session.Stopped, e.Now()); err != nil {
		return err
	}
	return e.Inbox.Finish(tx, t.ID)
}

// eraseWait is the time between two checks whether the last message was sent.
const eraseWait = 5 * time.Second

// Do deletes the files of a scope. Once the last message was sent, it deletes the rows of its chats
// in the bus and the data of the accounts about them, and then the remaining rows.
func (e *Eraser) Do(ctx context.Context, t *Task) (Outcome, error) {
	var left Erasure
	if err := json.Unmarshal(t.State, &left); err != nil {
		return Outcome{}, fmt.Errorf("background: erase %s: %w", t.Scope, err)
	}
	if len(left.Dropped) > 0 {
		e.Accounts.Dropped(left.Dropped)
		left.Dropped = nil
	}
	if err := e.Settle(ctx); err != nil {
		return Outcome{}, err
	}
	if !left.Files { // only once: files that arrive later belong to someone else
		if err := e.eraseOnce(ctx, t, &left); err != nil {
			return Outcome{}, err
		}
	}
	if !left.Sent {
		var err error
		if left.Sent, err = e.eraseBus(ctx, &left); err != nil {
			return Outcome{}, err
		}
		// An account needs its own data, such as the recipient's keys, until it has sent the last
		// message.
		if !left.Sent || len(e.externalStores(&left)) > 0 {
			return Outcome{ContinueAt: e.Now().Add(eraseWait), State: jsonOf(left)}, nil
		}
	}
	chats := make(map[string][]string)
	for _, a := range left.Chats {
		chats[a.Account] = append(chats[a.Account], a.Chat)
	}
	for account, k := range e.externalStores(&left) {
		if err := k.Erase(ctx, chats[account]); err != nil {
			return Outcome{}, err
		}
	}
	left.Chats, left.Swept = nil, nil // so that the task itself is not the last trace
	if err := e.save(ctx, t, &left); err != nil {
		return Outcome{}, err
	}
	return Outcome{}, e.DB.Shred(ctx)
}

// eraseOnce deletes the files, and the usage of tasks that were under way when the rows were
// deleted. They have ended, because tasks of one scope run one after another. It also removes the
// choices from memory.
func (e *Eraser) eraseOnce(ctx context.Context, t *Task, left *Erasure) error {
	err := e.ReloadChoices(e.DB.Read(ctx))
	if err == nil {
		err = e.eraseFiles(ctx, left)
	}
	if err != nil {
		return err
	}
	for _, who := range left.spenders() {
		err := commit(ctx, e.DB, func(tx *store.Tx) error { return e.Ledger.Erase(tx, who) })
		if err != nil {
			return err
		}
	}
	left.Files, left.Usage = true, nil
	return e.save(ctx, t, left)
}

// save stores the rest of an erasure.
func (e *Eraser) save(ctx context.Context, t *Task, left *Erasure) error {
	return commit(ctx, e.DB, func(tx *store.Tx) error { return e.tasks.Save(tx, t, jsonOf(left)) })
}

// externalStores returns the external stores of the accounts of left's chats, by account.
func (e *Eraser) externalStores(left *Erasure) map[string]ExternalStore {
	list := make(map[string]ExternalStore)
	for _, a := range left.Chats {
		if k := e.Accounts.ExternalStore(a.Account); k != nil {
			list[a.Account] = k
		}
	}
	return list
}

// eraseBus deletes the rows of the chats in the bus. It reports whether no row is left. Messages
// still to be sent, and their chats, stay until they are sent or can never be sent.
func (e *Eraser) eraseBus(ctx context.Context, left *Erasure) (done bool, err error) {
	var chats []bus.Address
	err = commit(ctx, e.DB, func(tx *store.Tx) error {
		done, chats = true, nil
		for _, a := range left.Chats {
			if slices.Contains(left.Swept, a) {
				continue
			}
			if !e.Accounts.Served(a.Account) {
				if _, err := e.Outbox.DropAll(tx, a, left.Outbox); err != nil {
					return err
				}
			}
			open, err := e.Outbox.HasUnsent(tx, a, left.Outbox)
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
	if err := e.erasePages(ctx, chats, left.Outbox, e.Outbox.Erase); err != nil {
		return false, err
	}
	if err := e.erasePages(ctx, chats, left.Inbox, e.Inbox.Erase); err != nil {
		return false, err
	}
	left.Swept = append(left.Swept, chats...)
	return done, nil
}

// erasePages calls erase for the chats and for each page of a table up to the id upTo, in a
// transaction for each page.
func (e *Eraser) erasePages(ctx context.Context, chats []bus.Address, upTo int64,
	erase func(tx *store.Tx, a bus.Address, after, upTo int64) (int64, error),
) error {
	for after := int64(0); after < upTo; {
		if err := ctx.Err(); err != nil {
			return err
		}
		fault.Point("erasing")
		var next int64
		err := commit(ctx, e.DB, func(tx *store.Tx) error {
			next = upTo
			for _, a := range chats {
				at, err := erase(tx, a, after, upTo)
				if err != nil {
					return err
				}
				// The page of a later chat is longer, because it lacks the rows deleted before.
				next = min(next, at)
			}
			return nil
		})
		if err != nil {
			return err
		}
		after = next
	}
	return nil
}

func (e *Eraser) eraseFiles(ctx context.Context, left *Erasure) error {
	for _, s := range left.Scopes {
		if e.Versions.Documents != nil {
			if err := e.Versions.Tree(s).Remove(ctx); err != nil {
				return err
			}
		}
		if err := e.Memory.EraseFiles(ctx, s); err != nil {
			return err
		}
	}
	if e.Media == nil {
		return nil
	}
	for _, a := range left.Chats {
		if err := e.Media.Erase(a); err != nil {
			return err
		}
	}
	return nil
}

// Settle deletes the rows of memory and transcripts that were made unreachable, in many short
// transactions. Without such rows it does nothing.
func (e *Eraser) Settle(ctx context.Context) error {
	if err := e.Memory.FinishDetached(ctx); err != nil {
		return err
	}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := commit(ctx, e.DB, func(tx *store.Tx) (err error) {
			more, err = session.DeleteErased(tx)
			return err
		})
		if err != nil {
			return err
		}
		fault.Point("erasing")
	}
	return nil
}

// Scopes returns all scopes that the task erases.
func (*Eraser) Scopes(t *Task) []memory.Scope {
	var left Erasure
	if json.Unmarshal(t.State, &left) != nil { // Do reports the error
		return []memory.Scope{t.Scope}
	}
	return left.Scopes
}

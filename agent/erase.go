package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/agent/chore"
	"gateway/agent/usage"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// Who asks for it is forgotten: transcripts, memory, files, and who they are. What is rows goes in
// the command's own transaction, but for what is still to be sent to them; the rest is a chore.

// erased is what is left to be erased of a scope.
type erased struct {
	Chats  []bus.Address `json:"chats"`
	Inbox  int64         `json:"inbox"`  // up to here is theirs
	Outbox int64         `json:"outbox"` // likewise
	Person int64         `json:"person"`
}

const sayForget = "This erases all that I know of you: our conversations in direct chats, on all " +
	"your platforms, your files, what I remember, and who you are to me. What you said in groups " +
	"stays theirs. It can't be taken back, and afterwards you are a stranger.\n\n" +
	"To do it, send `/forget me now`. `gateway memory export` can save a copy first."

// forget answers /forget.
func (d *Dispatcher) forget(c *call) (Say, error) {
	switch words := strings.Join(strings.Fields(strings.ToLower(c.args)), " "); {
	case c.message.Group:
		return Say{Text: "Please write that to me in a direct chat."}, nil
	case words == "me now":
		return d.forgetNow(c)
	case words == "me":
		return Say{Text: sayForget, Buttons: []bus.Button{
			{Label: "Erase everything", Text: "/forget me now"}}}, nil
	}
	return Say{Text: "`/forget me` erases all that I know of you. To have a single fact forgotten, " +
		"just tell me."}, nil
}

func (d *Dispatcher) forgetNow(c *call) (Say, error) {
	if _, err := d.end(c); err != nil {
		return Say{}, err
	}
	s := scopeOf(c.message)
	left := erased{Chats: []bus.Address{c.message.From}, Inbox: c.seq, Person: c.message.Person}
	if err := d.eraseRows(c.tx, s, &left); err != nil {
		return Say{}, err
	}
	var err error
	if left.Outbox, err = d.Outbox.Newest(c.tx); err != nil {
		return Say{}, err
	}
	left.Outbox += forgetAnswers
	work := chore.Work{Kind: chore.Erase, Scope: s, Ref: c.seq}
	err = d.chores.Put(c.tx, chore.Chore{Work: work, State: jsonOf(left)}, d.opts.Now())
	if err != nil {
		return Say{}, err
	}
	stop := c.after
	c.after = func() {
		stop()
		d.recent.drop(c.key)
		d.ringChores()
	}
	return Say{Text: "I have forgotten you. It takes a moment until the last traces are gone."}, nil
}

// Forget erases all of a scope, as /forget does for a person. The rows go at once, files and the
// rest with the chores of whichever gateway runs on the same data.
func (d *Dispatcher) Forget(ctx context.Context, s memory.Scope) error {
	return d.tx(ctx, func(tx *store.Tx) error {
		left := erased{Person: s.Person()}
		err := d.eraseRows(tx, s, &left)
		if err == nil {
			left.Inbox, err = d.Inbox.Newest(tx)
		}
		if err == nil {
			left.Outbox, err = d.Outbox.Newest(tx)
		}
		if err != nil {
			return err
		}
		work := chore.Work{Kind: chore.Erase, Scope: s, Ref: left.Inbox}
		return d.chores.Put(tx, chore.Chore{Work: work, State: jsonOf(left)}, d.opts.Now())
	})
}

// forgetAnswers is how many messages the command itself puts into the outbox.
const forgetAnswers = 1

// eraseRows deletes the rows of a scope, and notes its chats.
func (d *Dispatcher) eraseRows(tx *store.Tx, s memory.Scope, left *erased) error {
	keys, err := d.sessions.OfScope(tx, s)
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, ok, err := d.sessions.Address(tx, key)
		if err != nil {
			return err
		}
		if ok && !slices.Contains(left.Chats, a) {
			left.Chats = append(left.Chats, a)
		}
		if err := d.eraseSession(tx, key, left.Person); err != nil {
			return err
		}
	}
	if err := d.Memory.In(s).Erase(tx); err != nil {
		return err
	}
	if err := d.chores.Drop(tx, s); err != nil {
		return err
	}
	return d.opts.Forget(tx, left.Person)
}

func (d *Dispatcher) eraseSession(tx *store.Tx, key session.Key, person int64) error {
	t, err := d.sessions.RunningTurn(tx, key)
	if err != nil {
		return err
	}
	if t != nil { // of another platform: its writes are refused from now on
		if err := d.endStopped(&call{tx: tx}, t); err != nil {
			return err
		}
	}
	if err := d.sessions.Erase(tx, key); err != nil {
		return err
	}
	if err := d.questions.Erase(tx, string(key)); err != nil {
		return err
	}
	return d.opts.Usage.Erase(tx, usage.Spender{Session: string(key), Person: person})
}

// eraseWait is how soon it is looked again whether the last message was sent.
const eraseWait = 5 * time.Second

// eraseRest deletes the files of a scope and, once the last message was sent, what the bus has of
// its chats, and then all that is left of deleted rows.
func (d *Dispatcher) eraseRest(ctx context.Context, c *chore.Chore) (outcome, error) {
	var left erased
	if err := json.Unmarshal(c.State, &left); err != nil {
		return outcome{}, fmt.Errorf("agent: erase %s: %w", c.Scope, err)
	}
	if err := d.eraseFiles(ctx, c.Scope, &left); err != nil {
		return outcome{}, err
	}
	done := true
	err := d.tx(ctx, func(tx *store.Tx) error {
		done = true
		for _, a := range left.Chats {
			sent, err := d.Outbox.Erase(tx, a, left.Outbox)
			if err != nil {
				return err
			}
			if done = done && sent; !sent {
				continue
			}
			if err := d.Inbox.Erase(tx, a, left.Inbox); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return outcome{}, err
	case !done:
		return outcome{again: d.opts.Now().Add(eraseWait), state: c.State}, nil
	}
	return outcome{}, d.DB.Shred(ctx)
}

func (d *Dispatcher) eraseFiles(ctx context.Context, s memory.Scope, left *erased) error {
	if d.Documents != nil {
		if err := d.tree(s).Remove(ctx); err != nil {
			return err
		}
	}
	if err := d.Memory.EraseFiles(ctx, s); err != nil || d.Media == nil {
		return err
	}
	for _, a := range left.Chats {
		if err := d.Media.Erase(a); err != nil {
			return err
		}
	}
	return nil
}

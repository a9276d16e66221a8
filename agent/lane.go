package agent

import (
	"context"
	"fmt"
	"runtime/debug"

	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// Commands run beside the goroutine that hands messages out, each on a goroutine of its own. What
// comes meanwhile in the same conversation, from its sub-agents and jobs as well, waits in a lane.
// So the order of the conversation stays, and no other conversation waits.

// A lane is a conversation with a command under way. Only the goroutine that hands messages out
// uses lanes.
type lane struct {
	command bus.Received
	waiting []handed // what came after the command
}

// A handed is a message that is handed out, and how many may wait in its session.
type handed struct {
	message bus.Received
	bound   int
}

// An answered is a command that is done.
type answered struct {
	session session.Key
	after   func() // what it leaves to the goroutine that hands messages out; or nil
	err     error  // the store's loss
}

// maxCommands is how many commands run at once; the others wait for those.
const maxCommands = 64

// enter has a command answered in a lane of its own.
func (d *Dispatcher) enter(
	ctx context.Context, key session.Key, r bus.Received, name, args string,
) {
	d.lanes[key] = &lane{command: r}
	waiting := d.pending(key)
	go func() { // leaveLanes waits for it
		d.commandSlots <- struct{}{}
		after, err := d.runCommand(ctx, r, waiting, name, args)
		<-d.commandSlots
		d.answeredC <- answered{key, after, err}
	}()
}

// leave ends the lane of a command that is done, and hands out what waited in it.
func (d *Dispatcher) leave(ctx, work context.Context, a answered) error {
	if a.err != nil {
		return a.err
	}
	if a.after != nil {
		a.after()
	}
	waiting := d.lanes[a.session].waiting
	delete(d.lanes, a.session)
	for _, h := range waiting { // after the next command the rest waits in the lane of that
		if err := d.handOut(ctx, work, h.message, h.bound); err != nil {
			return err
		}
	}
	return nil
}

// leaveLanes waits for the commands under way. What waits for them is left to the next process.
func (d *Dispatcher) leaveLanes() {
	for len(d.lanes) > 0 {
		a := <-d.answeredC
		if a.after != nil && a.err == nil {
			a.after()
		}
		delete(d.lanes, a.session)
	}
}

// runCommand runs a command, and tells the sender if it has failed. An error is the store's loss.
func (d *Dispatcher) runCommand(
	ctx context.Context, r bus.Received, waiting []bus.Received, name, args string,
) (after func(), err error) {
	fault.Hold(ctx, "command/"+name)
	after, err = d.command(ctx, r, waiting, name, args)
	if err == nil || store.IsLost(err) {
		return after, err
	}
	return nil, d.apologise(ctx, r, err)
}

// apologise tells the sender of a message that it was not handed out because of an error. What it
// returns is the store's loss.
func (d *Dispatcher) apologise(ctx context.Context, r bus.Received, cause error) error {
	d.opts.Logger.ErrorContext(ctx, "message not handed out", "seq", r.Seq, "err", cause)
	err := d.tx(ctx, func(tx *store.Tx) error {
		ok, err := d.Inbox.Answer(tx, r.Seq)
		if err != nil || !ok {
			return err
		}
		return d.Outbox.Put(tx, reply(r.Message, sayBroken), d.opts.Now())
	})
	return d.survive(ctx, "message not answered", err)
}

// command answers r in one transaction. It waits for neither a turn nor a slot. after is what is to
// be done on the goroutine that hands messages out.
func (d *Dispatcher) command(
	ctx context.Context, r bus.Received, waiting []bus.Received, name, args string,
) (after func(), err error) {
	defer func() {
		if p := recover(); p != nil {
			d.opts.Logger.ErrorContext(ctx, "command panicked", "command", name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()), "panics", d.panics.Add(1))
			after, err = nil, fmt.Errorf("command %s: %w", name, errPanic)
		}
	}()
	known := d.lookup(name, r.Message.Role)
	looking := call{name: name, args: args, message: r.Message, key: session.KeyOf(r.Message.From),
		seq: r.Seq, waiting: waiting}
	if known.look != nil {
		if err := known.look(d, ctx, &looking); err != nil {
			return nil, fmt.Errorf("command %s: %w", name, err)
		}
	}
	err = d.tx(ctx, func(tx *store.Tx) error {
		after = nil
		ok, err := d.Inbox.Answer(tx, r.Seq)
		if err != nil || !ok {
			return err
		}
		c := looking
		c.tx = tx
		say, err := known.run(d, &c)
		if err != nil {
			return err
		}
		after = c.after
		if say.Later {
			return nil
		}
		out := reply(r.Message, say.Text)
		out.Buttons = say.Buttons
		out.Answers, out.Stops = append(out.Answers, c.stopped...), c.streams
		return d.Outbox.Put(tx, out, d.opts.Now())
	})
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	return after, nil
}

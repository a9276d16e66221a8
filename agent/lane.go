package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"gateway/agent/command"
	"gateway/agent/turn"
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
	err     error // the store's loss
}

// maxCommands is how many commands run at once; the others wait for those.
const maxCommands = 64

// lanes are the conversations with a command under way. Only the goroutine that hands messages out
// uses them.
type lanes struct {
	list     map[session.Key]*lane
	answered chan answered // the commands that are done
	slots    chan struct{} // a command holds one
}

func newLanes() lanes {
	return lanes{make(map[session.Key]*lane), make(chan answered), make(chan struct{}, maxCommands)}
}

// enter has a command answered by run in a lane of its own.
func (l *lanes) enter(key session.Key, r bus.Received, run func() error) {
	l.list[key] = &lane{command: r}
	go func() { // wait waits for it
		l.slots <- struct{}{}
		err := run()
		<-l.slots
		l.answered <- answered{key, err}
	}()
}

// join has h wait for the command in a lane. It reports false if there is none.
func (l *lanes) join(key session.Key, h handed) bool {
	lane, ok := l.list[key]
	if ok {
		lane.waiting = append(lane.waiting, h)
	}
	return ok
}

// leave ends the lane of a command that is done, and returns what waited in it.
func (l *lanes) leave(key session.Key) []handed {
	waiting := l.list[key].waiting
	delete(l.list, key)
	return waiting
}

// wait waits for the commands under way. What waits for them is left to the next process.
func (l *lanes) wait() {
	for len(l.list) > 0 {
		a := <-l.answered
		delete(l.list, a.session)
	}
}

// hold adds the messages that are in lanes.
func (l *lanes) hold(messages map[int64]bool) {
	for _, lane := range l.list {
		messages[lane.command.Seq] = true
		for _, h := range lane.waiting {
			messages[h.message.Seq] = true
		}
	}
}

// leaveLane hands out what waited for a command that is done. While the process ends the command
// may not be done: then the next process answers it before what waited.
func (d *Dispatcher) leaveLane(ctx, work context.Context, a answered) error {
	waiting := d.lanes.leave(a.session)
	if a.err != nil || ctx.Err() != nil {
		return a.err
	}
	for _, h := range waiting { // after the next command the rest waits in the lane of that
		if err := d.handOut(ctx, work, h.message, h.bound); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a command, and tells the sender if it has failed. A command that has failed
// because the process ends is left to the next one. An error is the store's loss.
func (d *Dispatcher) runCommand(ctx context.Context, r bus.Received) error {
	err := d.command(ctx, r)
	switch {
	case err == nil || store.IsLost(err):
		return err
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	}
	return d.apologise(ctx, r, err)
}

// command runs a command. A panic is a failure like any other.
func (d *Dispatcher) command(ctx context.Context, r bus.Received) (err error) {
	name, _ := command.Parse(r.Message)
	defer func() {
		if p := recover(); p != nil {
			d.opts.Logger.ErrorContext(ctx, "command panicked", "command", name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()), "panics", d.env.Counters.Panics.Add(1))
			err = fmt.Errorf("command %s has panicked", name)
		}
	}()
	fault.Hold(ctx, "command/"+name)
	return d.commands.Run(ctx, r)
}

// apologise tells the sender of a message that it was not handed out because of an error. What it
// returns is the store's loss.
func (d *Dispatcher) apologise(ctx context.Context, r bus.Received, cause error) error {
	d.opts.Logger.ErrorContext(ctx, "message not handed out", "seq", r.Seq, "err", cause)
	err := d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		ok, err := d.Inbox.Answer(tx, r.Seq)
		if err != nil || !ok {
			return err
		}
		return d.Outbox.Put(tx, reply(r.Message, turn.SayBroken), d.opts.Now())
	})
	return survive(ctx, d.opts.Logger, "message not answered", err)
}

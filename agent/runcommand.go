package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"gateway/agent/command"
	"gateway/agent/pool"
	"gateway/agent/turn"
	"gateway/agent/voice"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// leaveLane hands out the messages that waited for a finished command or a voice message. If the
// process is stopping and the command could not finish, the next process answers it before those
// messages.
func (d *Dispatcher) leaveLane(ctx, work context.Context, done command.Done) error {
	waiting := d.lanes.Leave(done)
	if done.Err != nil || ctx.Err() != nil {
		return done.Err
	}
	for _, q := range waiting { // after the next command, the remaining messages wait in its lane
		if err := d.route(ctx, work, q.Message, q.Bound); err != nil {
			return err
		}
	}
	return nil
}

// transcribe transcribes a voice message, which may turn out to be a command: see
// [voice.Transcriber.Transcribe]. After a failure the message stays in the inbox, and
// recoverPending hands it out again. An error means that the store is lost.
func (d *Dispatcher) transcribe(
	ctx, reading context.Context, r bus.Received,
) (*bus.Received, error) {
	s := d.pool.Config()
	heard, err := d.transcriber.Transcribe(ctx, reading, r,
		voice.Settings{Names: s.Names, Cost: s.SpeechCost})
	return heard, store.LogUnlessLost(ctx, d.opts.Logger, "voice message not heard", err)
}

// runCommand runs a command and tells the sender if it failed. If it failed because the process is
// stopping, it is left to the next process. An error means that the store is lost.
func (d *Dispatcher) runCommand(ctx context.Context, r bus.Received) error {
	if r.Crashes >= turn.MaxCrashes {
		return d.reportFailure(ctx, r, turn.SayGaveUp, errCrashes)
	}
	err := d.counted(ctx, r)
	switch {
	case err == nil || store.IsLost(err):
		return err
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	}
	return d.reportFailure(ctx, r, turn.SayBroken, err)
}

// errCrashes reports a command that has crashed several processes.
var errCrashes = errors.New("processes crash while they run the command")

// counted runs a command. For some time after a crash it records that first, so that a crash counts
// against the command, as it does against messages whose turns begin. A command that was under way
// in several crashes is tried alone.
func (d *Dispatcher) counted(ctx context.Context, r bus.Received) (err error) {
	if d.opts.Now().Before(d.env.CountUntil) {
		err := d.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return d.Inbox.MarkStarted(tx, []bus.Received{r})
		})
		if err != nil {
			return err
		}
	}
	if !pool.IsSuspect(r) {
		return d.command(ctx, r)
	}
	failed := d.Life.Try(ctx, pool.TrialOf(session.Of(r.Message)), func() { err = d.command(ctx, r) })
	return cmp.Or(err, failed)
}

// command runs a command. It returns a panic as an error.
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

// reportFailure tells the sender of a message that it could not be handled, because of the error
// cause. It returns an error only if the store is lost.
func (d *Dispatcher) reportFailure(
	ctx context.Context, r bus.Received, say string, cause error,
) error {
	d.opts.Logger.ErrorContext(ctx, "message not handed out", "seq", r.Seq, "err", cause)
	err := d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		ok, err := d.Inbox.Answer(tx, r.Seq)
		if err != nil || !ok {
			return err
		}
		return d.Outbox.Put(tx, pool.Reply(r.Message, say), d.opts.Now())
	})
	return store.LogUnlessLost(ctx, d.opts.Logger, "message not answered", err)
}

package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/agent/llm/llmtest"
	"gateway/agent/turn"
	"gateway/bus"
)

// A slow command delays only later messages in its own conversation, which stay in order.
func TestSlowCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("hello b"), llmtest.Say("hello a"))
		w.opts.Commands = []command.Command{slowCommand(release)}
		w.start()
		w.say("a", "/slow")
		w.put(w.message("a", "hello"), w.message("a", "/queue"), w.message("b", "hello"),
			w.message("b", "/queue followup"))
		w.settle()
		if got := w.texts("a"); len(got) != 0 {
			t.Errorf("a was told %q while its command runs", got)
		}
		got := w.texts("b")
		slices.Sort(got) // a command waits for no turn, so either answer may be the first
		wantLines(t, "answers", got, []string{
			"The queue mode of this conversation is now followup.", "hello b"})
		close(release)
		w.wantQuiet()
		if got := w.texts("a"); len(got) != 3 || got[0] != "slow" {
			t.Errorf("a was told %q, want the answer to its command first", got)
		}
	})
}

// When the gateway ends, it waits for the running command. It leaves the messages behind the
// command to the next process.
func TestSlowCommandAtTheEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.opts.Commands = []command.Command{slowCommand(release)}
		w.start()
		w.say("a", "/slow")
		w.put(w.message("a", "hello"))
		w.settle()
		time.AfterFunc(time.Second, func() { close(release) })
		w.must(w.stop())
		wantLines(t, "answers", w.texts("a"), []string{"slow"})
		w.model.Queue(llmtest.Say("hello a"))
		w.start()
		w.wantQuiet()
		wantLines(t, "answers", w.texts("a"), []string{"slow", "hello a"})
	})
}

// Messages that wait behind a running command are not recovered as if they were lost.
func TestSlowCommandIsRecovered(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("hello a"))
		w.opts.Commands = []command.Command{slowCommand(release)}
		w.start()
		w.say("a", "/slow")
		w.put(w.message("a", "hello"))
		w.sleep(3 * recoveryInterval)
		if got := w.texts("a"); len(got) != 0 {
			t.Errorf("a was told %q while its command runs", got)
		}
		close(release)
		w.wantQuiet()
		wantLines(t, "answers", w.texts("a"), []string{"slow", "hello a"})
	})
}

// If the end of the process interrupts a command, no failure is reported. The next process
// answers the command before the messages behind it.
func TestInterruptedCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first := true
		w.opts.Commands = []command.Command{{Name: "slow", MinRole: bus.Guest,
			Run: func(ctx context.Context, _ *command.Request) (command.Reply, error) {
				if first {
					<-ctx.Done()
				}
				return command.Reply{Text: "slow"}, ctx.Err()
			}}}
		w.start()
		w.say("a", "/slow")
		w.put(w.message("a", "hello"))
		w.settle()
		w.must(w.stop())
		wantLines(t, "answers of the first process", w.texts("a"), nil)
		first = false
		w.model.Queue(llmtest.Say("hello a"))
		w.start()
		w.wantQuiet()
		wantLines(t, "answers", w.texts("a"), []string{"slow", "hello a"})
	})
}

// A command that runs longer than its deadline fails, and the messages behind it are answered.
func TestCommandDeadline(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Commands = []command.Command{{Name: "stuck", MinRole: bus.Guest,
			Run: func(ctx context.Context, _ *command.Request) (command.Reply, error) {
				<-ctx.Done()
				return command.Reply{}, ctx.Err()
			}}}
		w.model.Queue(llmtest.Say("hello a"))
		w.start()
		w.say("a", "/stuck")
		w.put(w.message("a", "hello"))
		w.sleep(command.Deadline + time.Second)
		w.wantQuiet()
		wantLines(t, "answers", w.texts("a"), []string{turn.SayBroken, "hello a"})
	})
}

// slowCommand returns /slow, which waits until release is closed.
func slowCommand(release <-chan struct{}) command.Command {
	return command.Command{Name: "slow", MinRole: bus.Guest,
		Run: func(context.Context, *command.Request) (command.Reply, error) {
			<-release
			return command.Reply{Text: "slow"}, nil
		}}
}

// texts returns the texts of the messages to a chat.
func (w *world) texts(chat string) (list []string) {
	w.t.Helper()
	for _, m := range w.outbox(chat) {
		list = append(list, m.Text)
	}
	return list
}

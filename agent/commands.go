package agent

import (
	"context"
	"fmt"
	"strings"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Command is one that people may send to the agent.
type Command struct {
	Name string // without "/"
	Help string // one line
	run  func(d *Dispatcher, c *call) (say string, err error)
}

// Commands returns the commands in the order of /help.
func Commands() []Command {
	return []Command{
		{"help", "what I can do", (*Dispatcher).help},
		{"status", "model, usage, queue and channels", (*Dispatcher).status},
		{"stop", "end the running answer and discard what waits", (*Dispatcher).stop},
		{"new", "begin a new conversation", (*Dispatcher).reset},
		{"queue", "what happens to messages during an answer: " +
			"steer, followup, collect or interrupt", (*Dispatcher).queue},
	}
}

// A call is a command under way, in a transaction of its own.
type call struct {
	name, args string
	message    bus.InboundMessage
	key        session.Key
	waiting    []bus.Received // messages of the session that no turn has taken yet
	tx         *store.Tx

	// after is what is to be done once the transaction is committed; it may
	// be tried more than once, so that it must not do such things itself.
	after func()
}

// parseCommand returns the name and arguments of the command that text is, or "". A path
// such as /etc/hosts is none.
func parseCommand(text string) (name, args string) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "/")
	if !ok {
		return "", ""
	}
	name = rest
	if end := strings.IndexAny(rest, " \n\t\r"); end >= 0 {
		name, args = rest[:end], strings.TrimSpace(rest[end:])
	}
	name = strings.ToLower(name)
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", ""
	}
	return name, args
}

// command answers r in one transaction. It runs in the order of the messages, and waits
// for neither a turn nor a slot.
func (d *Dispatcher) command(ctx context.Context, r bus.Received, name, args string) error {
	run := (*Dispatcher).unknown
	for _, known := range Commands() {
		if known.Name == name || known.Name == "help" && name == startCommand {
			run = known.run
		}
	}
	key := session.KeyOf(r.Message.From)
	waiting := d.pending(key)
	var after func()
	err := d.tx(ctx, func(tx *store.Tx) error {
		after = nil
		ok, err := d.Inbox.Answer(tx, r.Seq)
		if err != nil || !ok {
			return err
		}
		c := &call{name: name, args: args, message: r.Message, key: key, waiting: waiting, tx: tx}
		say, err := run(d, c)
		if err != nil {
			return err
		}
		after = c.after
		return d.Outbox.Put(tx, reply(r.Message, say), d.opts.Now())
	})
	if err != nil {
		return fmt.Errorf("command %s: %w", name, err)
	}
	if after != nil {
		after()
	}
	return nil
}

// startCommand is what Telegram sends when a person opens the chat for the first time.
const startCommand = "start"

func (d *Dispatcher) help(c *call) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "I am %s. Write to me and I answer; these commands I know:\n\n", d.opts.Name)
	for _, known := range Commands() {
		fmt.Fprintf(&b, "- `/%s`: %s\n", known.Name, known.Help)
	}
	return b.String(), nil
}

func (d *Dispatcher) unknown(c *call) (string, error) {
	var names []string
	for _, known := range Commands() {
		names = append(names, known.Name)
	}
	if near := tool.Nearest(c.name, names); near != "" {
		return fmt.Sprintf("I don't know `/%s`. Did you mean `/%s`? See `/help`.", c.name, near), nil
	}
	return fmt.Sprintf("I don't know `/%s`. See `/help` for the commands that I know.", c.name), nil
}

func (d *Dispatcher) queue(c *call) (string, error) {
	if c.args == "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Sprintf("The queue mode is %s. Change it with `/queue steer`, `/queue followup`, "+
			"`/queue collect` or `/queue interrupt`.", d.mode(c.key)), nil
	}
	mode, err := ParseMode(c.args)
	if err != nil {
		return "There is no such queue mode. Use `steer`, `followup`, `collect` or `interrupt`.", nil
	}
	err = d.sessions.SetQueueMode(c.tx, c.message.From, string(mode), d.opts.Now())
	if err != nil {
		return "", err
	}
	c.after = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.modes[c.key] = mode
	}
	return fmt.Sprintf("The queue mode of this conversation is now %s.", mode), nil
}

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/suggest"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Command is one that people may send to the agent.
type Command struct {
	Name  string   // without "/"
	Help  string   // one line; "" for a command that only buttons send
	Least bus.Role // who may use it: this role and those above

	// Answer runs it in a transaction, which may be tried more than once.
	Answer func(tx *store.Tx, m bus.InboundMessage, args string) (Say, error)

	run func(d *Dispatcher, c *call) (Say, error) // instead of Answer

	// look, if there is one, runs before the transaction, for what is no database work: files, and
	// what a mutex guards. Whoever has the mutex may wait for a transaction.
	look func(d *Dispatcher, ctx context.Context, c *call) error
}

// A Say is what a command answers.
type Say struct {
	Text    string // Markdown
	Buttons []bus.Button

	// Later says that a chore answers, or that the command has done so itself.
	Later bool
}

// Commands returns the dispatcher's own commands in the order of /help.
func Commands() []Command {
	return []Command{
		{Name: "help", Help: "what I can do", Least: bus.Guest, run: (*Dispatcher).help},
		{Name: "status", Help: "model, usage, queue and channels", Least: bus.User,
			look: (*Dispatcher).lookAtStatus, run: (*Dispatcher).sayLooked},
		{Name: "stop", Help: "end the running answer and discard what waits", Least: bus.Guest,
			look: (*Dispatcher).lookAtWork, run: (*Dispatcher).stop},
		{Name: "new", Help: "begin a new conversation", Least: bus.User, run: (*Dispatcher).reset},
		{Name: "queue", Help: "what happens to messages during an answer: " +
			"steer, followup, collect or interrupt", Least: bus.User,
			look: (*Dispatcher).lookAtMode, run: (*Dispatcher).queue},
		{Name: "model", Help: "which language model answers here", Least: bus.User,
			look: (*Dispatcher).lookAtModel, run: (*Dispatcher).chooseModel},
		{Name: "compact", Help: "make notes of the older part of this conversation", Least: bus.User,
			run: (*Dispatcher).compactNow},
		{Name: "memory", Help: "what I know for longer than this conversation", Least: bus.User,
			look: (*Dispatcher).lookAtMemory, run: (*Dispatcher).sayMemory},
		{Name: "history", Help: "my notes of earlier conversations", Least: bus.User,
			run: (*Dispatcher).sayHistory},
		{Name: "skills", Help: "what I can follow step by step", Least: bus.User,
			look: (*Dispatcher).lookAtSkills, run: (*Dispatcher).saySkills},
		{Name: "dream", Help: "turn what is new into lasting memory", Least: bus.User,
			run: (*Dispatcher).dreamNow},
		{Name: "dream-log", Help: "how my memory has changed", Least: bus.User,
			look: (*Dispatcher).lookAtChanges, run: (*Dispatcher).sayLooked},
		{Name: "dream-restore", Help: "take a change of my memory back", Least: bus.User,
			run: (*Dispatcher).dreamRestore},
		{Name: "forget", Help: "erase what I know of you", Least: bus.User,
			look: (*Dispatcher).lookAtWork, run: (*Dispatcher).forget},
		{Name: "jobs", Help: "what I do at set times", Least: bus.User,
			run: (*Dispatcher).listJobs},
		{Name: "remind", Help: "remind you of something in 20m, tomorrow 9:00, every 2h …",
			Least: bus.User, run: (*Dispatcher).remind},
		{Name: "timezone", Help: "the time zone that I think in", Least: bus.User,
			run: (*Dispatcher).timezone},
		{Name: "usage", Help: "tokens and money used, and their limits", Least: bus.User,
			run: (*Dispatcher).usage},
		{Name: "approve", Help: "let me do what I have asked for", Least: bus.User,
			run: (*Dispatcher).approve},
		{Name: "deny", Help: "don't let me do what I have asked for", Least: bus.User,
			run: (*Dispatcher).deny},
		{Name: "answer", Least: bus.Guest, run: (*Dispatcher).answer},
		{Name: "halt", Help: "call no model and use no tool anywhere", Least: bus.Admin,
			run: (*Dispatcher).haltAll},
		{Name: "resume", Help: "go on after a halt", Least: bus.Admin, run: (*Dispatcher).resume},
		{Name: "restart", Help: "end, and start again", Least: bus.Admin,
			look: (*Dispatcher).lookAtRestart, run: (*Dispatcher).restart},
	}
}

// A call is a command under way, in a transaction of its own.
type call struct {
	name, args string
	message    bus.InboundMessage
	key        session.Key
	waiting    []bus.Received // messages of the session that no turn has taken yet
	tx         *store.Tx
	seq        int64    // of the message in the inbox
	looked     string   // what its look has found
	work       work     // likewise
	stopped    []string // platform's ids of the messages that it leaves without another answer
	streams    []string // previews of the answers that it has stopped
	again      bool     // runs that it ends begin anew

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

// commandOf returns the command that m is, or "". What the agent writes to itself is none, nor is
// what somebody has forwarded: others have written that.
func commandOf(m bus.InboundMessage) (name, args string) {
	if m.Origin.Kind != bus.Person || m.Forwarded != "" {
		return "", ""
	}
	return parseCommand(m.Text)
}

// lookup returns the command with a name for somebody of a role, as one that has a run.
func (d *Dispatcher) lookup(name string, role bus.Role) Command {
	if name == startCommand {
		name = "help"
	}
	name = strings.ReplaceAll(name, "_", "-") // for platforms whose commands have no "-"
	i := slices.IndexFunc(d.commands, func(c Command) bool { return c.Name == name })
	switch {
	case i < 0:
		return Command{run: (*Dispatcher).unknown}
	case !role.AtLeast(d.commands[i].Least):
		least := d.commands[i].Least
		return Command{run: func(*Dispatcher, *call) (Say, error) {
			return Say{Text: fmt.Sprintf("Only who is %s or more may use `/%s`.", article(least), name)}, nil
		}}
	case d.commands[i].run != nil:
		return d.commands[i]
	}
	answer := d.commands[i].Answer
	return Command{run: func(_ *Dispatcher, c *call) (Say, error) {
		return answer(c.tx, c.message, c.args)
	}}
}

// article returns a role with its article.
func article(r bus.Role) string {
	if r == bus.Admin || r == bus.Owner {
		return "an " + string(r)
	}
	return "a " + string(r)
}

// startCommand is what Telegram sends when a person opens the chat for the first time.
const startCommand = "start"

func (d *Dispatcher) help(c *call) (Say, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "I am %s. Write to me and I answer; these commands I know:\n\n", d.opts.Name)
	for _, known := range d.commands {
		if c.message.Role.AtLeast(known.Least) && known.Help != "" {
			fmt.Fprintf(&b, "- `/%s`: %s\n", known.Name, known.Help)
		}
	}
	return Say{Text: b.String()}, nil
}

func (d *Dispatcher) unknown(c *call) (Say, error) {
	var names []string
	for _, known := range d.commands {
		names = append(names, known.Name)
	}
	if meant := suggest.Name(c.name, names); meant != "" {
		return Say{Text: fmt.Sprintf("I don't know `/%s`. Did you mean `/%s`? See `/help`.",
			c.name, meant)}, nil
	}
	return Say{Text: fmt.Sprintf("I don't know `/%s`. See `/help` for the commands that I know.",
		c.name)}, nil
}

// queueButtons change the queue mode.
var queueButtons = []bus.Button{
	{Label: "Steer", Text: "/queue steer"}, {Label: "Follow up", Text: "/queue followup"},
	{Label: "Collect", Text: "/queue collect"}, {Label: "Interrupt", Text: "/queue interrupt"},
}

// lookAtMode finds out the queue mode of the conversation.
func (d *Dispatcher) lookAtMode(_ context.Context, c *call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.looked = string(d.mode(c.key))
	return nil
}

func (d *Dispatcher) queue(c *call) (Say, error) {
	if c.args == "" {
		return Say{Text: fmt.Sprintf("What comes while I answer is handled by the queue mode, "+
			"which is %s now. Change it:", c.looked), Buttons: queueButtons}, nil
	}
	mode, err := ParseMode(c.args)
	if err != nil {
		return Say{Text: "There is no such queue mode. Use `steer`, `followup`, `collect` or " +
			"`interrupt`."}, nil
	}
	err = d.sessions.SetQueueMode(c.tx, c.message.From, string(mode), d.opts.Now())
	if err != nil {
		return Say{}, err
	}
	c.after = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.modes[c.key] = mode
	}
	return Say{Text: fmt.Sprintf("The queue mode of this conversation is now %s.", mode)}, nil
}

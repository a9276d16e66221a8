// Package command answers the slash commands that people send in a chat.
//
// [Commands] is the registry: [Commands.Run] answers one message. A command runs on its own
// goroutine beside the dispatcher, with a deadline, so it may read files and wait: only its own
// conversation waits for it. It reaches running turns only through [Sessions].
//
// A command is answered exactly once. Its changes, its answer and the end of its message in the
// inbox are one transaction: see [Request.Commit]. If the process ends before that, the message
// stays in the inbox and the next process answers it.
//
// Tables: restarts.
package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"gateway/agent/budget"
	"gateway/agent/schedule"
	"gateway/agent/suggest"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// Deadline is how long a command may take before it fails.
const Deadline = time.Minute

// A Command is a slash command that people may send to the agent.
type Command struct {
	Name    string   // without "/"
	Help    string   // one line; "" for a command that only buttons send
	MinRole bus.Role // the lowest role that may use it

	// Run answers a request. It returns the reply, or the result of [Request.Commit]. If ctx is
	// done, it should return an error.
	Run func(ctx context.Context, r *Request) (Reply, error)
}

// A Reply is the answer to a command.
type Reply struct {
	Text    string // Markdown; "": no reply, because a background task answers
	Buttons []bus.Button

	Answers []string // platform's ids of further messages that this reply answers
	Stops   []string // previews of the answers that the command has ended
}

// A DB is the part of a [store.DB] that commands use.
type DB interface {
	Tx(ctx context.Context, fn func(tx *store.Tx) error) error
	Read(ctx context.Context) store.Queryer
}

// Deps are the dependencies of commands. Documents, Skills, Jobs and Restart may be nil: their
// commands then say that the feature is missing.
type Deps struct {
	DB         DB
	Inbox      *bus.Inbox
	Outbox     *bus.Outbox
	Memory     *memory.Memory
	Documents  *document.Documents
	Skills     *skills.Library
	Jobs       *schedule.Scheduler
	Budget     *budget.Ledger
	Restart    *Restart
	Sessions   Sessions
	Background Background

	Name     string // the agent's name
	Version  string
	Location *time.Location // of dates
	Now      func() time.Time
}

// Commands is the registry of commands. Its methods are safe for concurrent use.
type Commands struct {
	*Deps
	list []Command
}

// New returns a registry with the built-in commands and more.
func New(deps Deps, more ...Command) *Commands {
	c := &Commands{Deps: &deps}
	c.list = append(builtin(c), more...)
	return c
}

// List returns the built-in commands in the order of /help. They can't be run.
func List() []Command { return builtin(&Commands{Deps: new(Deps)}) }

// builtin returns the built-in commands, in the order of /help and of docs/commands.md.
func builtin(c *Commands) []Command {
	conversation, knowledge := conversation{c.Deps}, knowledge{c.Deps}
	jobs, decisions := jobs{c.Deps}, decisions{c.Deps}
	return []Command{
		{"help", "what I can do", bus.Guest, c.help},
		{"status", "model, usage, queue and channels", bus.User, conversation.status},
		{"stop", "end the running answer and discard what waits", bus.Guest, conversation.stop},
		{"new", "begin a new conversation", bus.User, conversation.reset},
		{"queue", "what happens to messages during an answer: " +
			"steer, followup, collect or interrupt", bus.User, conversation.queue},
		{"model", "which language model answers here", bus.User, conversation.chooseModel},
		{"think", "how long the model thinks before it answers: off, low or high", bus.User,
			conversation.think},
		{"voice", "whether I answer with voice messages, too: never, always or auto", bus.User,
			conversation.voice},
		{"activity", "how much of my work I show before the answer: off, compact or full", bus.User,
			conversation.activity},
		{"compact", "shorten this conversation: its older part becomes notes", bus.User,
			knowledge.compact},
		{"memory", "what I know about you", bus.User, knowledge.show},
		{"history", "my notes of earlier conversations", bus.User, knowledge.history},
		{"skills", "instructions that I can follow", bus.User, knowledge.skills},
		{"dream", "save what I learned recently", bus.User, knowledge.dream},
		{"dream-log", "how my memory has changed", bus.User, knowledge.changes},
		{"dream-restore", "undo a change of my memory", bus.User, knowledge.restore},
		{"export", "everything that I have stored about you, as a file", bus.User,
			knowledge.export},
		{"forget", "delete what I know about you", bus.User, knowledge.forget},
		{"jobs", "reminders and jobs", bus.User, jobs.list},
		{"remind", "remind you of something in 20m, tomorrow 9:00, every 2h …", bus.User,
			jobs.remind},
		{"timezone", "the time zone of this conversation", bus.User, jobs.timezone},
		{"usage", "tokens and money used, and their limits", bus.User, conversation.usage},
		{"context", "what fills the context window of the model here", bus.User, conversation.context},
		{"approve", "let me do what I have asked for", bus.User, decisions.approve},
		{"deny", "don't let me do what I have asked for", bus.User, decisions.deny},
		{"answer", "", bus.Guest, decisions.answer},
		{"halt", "emergency stop: pause everything for everybody", bus.Admin, decisions.halt},
		{"resume", "continue after /halt", bus.Admin, decisions.resume},
		{"audit", "who has approved, let in, halted or changed what", bus.Admin, decisions.audit},
		{"restart", "restart the gateway", bus.Admin, decisions.restart},
	}
}

// A Request is a command that a person has sent.
type Request struct {
	Name, Args string
	Message    bus.InboundMessage
	Seq        int64       // of Message in the inbox
	Session    session.Key // of the conversation

	deps      *Deps
	committed bool // by Commit, after which Run must not store a reply
}

// errAnswered reports that the message of a request is no longer in the inbox.
var errAnswered = errors.New("the command is answered already")

// Commit runs fn in the transaction that stores fn's reply and marks the message as answered. fn
// may run more than once and must change nothing but the database. The functions in after have all
// other effects. Commit calls them in order, once the transaction is committed.
func (r *Request) Commit(
	ctx context.Context, fn func(tx *store.Tx) (Reply, error), after ...func(),
) (reply Reply, err error) {
	err = r.deps.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		ok, err := r.deps.Inbox.Answer(tx, r.Seq)
		if err == nil && !ok {
			err = errAnswered
		}
		if err != nil {
			return err
		}
		reply, err = fn(tx)
		if err != nil || reply.Text == "" {
			return err
		}
		return r.deps.Outbox.Put(tx, r.answer(reply), r.deps.Now())
	})
	if err != nil {
		return Reply{}, err
	}
	r.committed = true
	for _, effect := range after {
		effect()
	}
	return reply, nil
}

// answer returns the message that carries a reply. In a group it quotes the command.
func (r *Request) answer(reply Reply) bus.OutboundMessage {
	m := r.Message
	out := bus.OutboundMessage{To: m.From, Text: reply.Text, Buttons: reply.Buttons,
		Answers: append([]string{m.ID}, reply.Answers...), Stops: reply.Stops}
	if m.Group {
		out.ReplyTo = m.ID
	}
	return out
}

// scope returns the scope of the memory that the command concerns.
func (r *Request) scope() memory.Scope { return memory.ScopeOf(r.Message) }

// Parse returns the name and the arguments of the command in m, or "" if m is not a command.
// Messages that the agent wrote to itself, forwarded messages and literal messages are not
// commands.
func Parse(m bus.InboundMessage) (name, args string) {
	if m.Origin.Kind != bus.Person || m.Forwarded != "" || m.Literal {
		return "", ""
	}
	return parse(m.Text)
}

// parse returns the name and the arguments of the command in text, or "" if there is none. A path
// such as /etc/hosts is not a command.
func parse(text string) (name, args string) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "/")
	if !ok {
		return "", ""
	}
	if strings.TrimLeftFunc(rest, unicode.IsSpace) != rest {
		return "", ""
	}
	name, args = FirstWord(rest)
	name = strings.ToLower(name)
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", ""
	}
	return name, args
}

// Run answers a message that is a command. It does not wait for a turn or a model. After an error
// the message stays in the inbox, unless the command was committed. A spoken command that might do
// harm is only repeated, to be confirmed in writing.
func (c *Commands) Run(ctx context.Context, received bus.Received) error {
	m := received.Message
	name, args := Parse(m)
	r := &Request{Name: name, Args: args, Message: m, Seq: received.Seq,
		Session: session.Of(m), deps: c.Deps}
	limited, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	k := c.find(name, m.Role)
	if m.VoiceState == bus.SpokenCommand && k.Name != "" && !runsAtOnce(name, args) {
		k.Run = confirm
	}
	reply, err := k.Run(limited, r)
	if err == nil && !r.committed {
		_, err = r.Commit(ctx, func(*store.Tx) (Reply, error) { return reply, nil })
	}
	if err != nil && !errors.Is(err, errAnswered) {
		return fmt.Errorf("command %s: %w", name, err)
	}
	return nil
}

// startCommand is what Telegram sends when a person opens the chat for the first time.
const startCommand = "start"

// find returns the command with the given name for a person with the given role. A command that is
// unknown or not allowed has no name; it only answers so.
func (c *Commands) find(name string, role bus.Role) Command {
	if name == startCommand {
		name = "help"
	}
	name = strings.ReplaceAll(name, "_", "-") // for platforms that don't allow "-" in commands
	i := slices.IndexFunc(c.list, func(k Command) bool { return k.Name == name })
	if i < 0 {
		return Command{Run: c.unknown}
	}
	if least := c.list[i].MinRole; !role.AtLeast(least) {
		return Command{Run: func(context.Context, *Request) (Reply, error) {
			return Reply{Text: fmt.Sprintf("Only %s can use `/%s`.", rolesFrom(least), name)}, nil
		}}
	}
	return c.list[i]
}

func (c *Commands) help(_ context.Context, r *Request) (Reply, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "I am %s. Write to me and I answer. I know these commands:\n\n", c.Name)
	for _, known := range c.list {
		if r.Message.Role.AtLeast(known.MinRole) && known.Help != "" {
			fmt.Fprintf(&b, "- `/%s`: %s\n", known.Name, known.Help)
		}
	}
	return Reply{Text: b.String()}, nil
}

func (c *Commands) unknown(_ context.Context, r *Request) (Reply, error) {
	var names []string
	for _, known := range c.list {
		names = append(names, known.Name)
	}
	if meant := suggest.Name(r.Name, names); meant != "" {
		return Reply{Text: fmt.Sprintf("I don't know `/%s`. Did you mean `/%s`? See `/help`.",
			r.Name, meant)}, nil
	}
	return Reply{Text: fmt.Sprintf("I don't know `/%s`. See `/help` for the commands that I know.",
		r.Name)}, nil
}

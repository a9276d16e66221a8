package command

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// conversation has the commands about the conversation itself.
type conversation struct{ *Deps }

// status answers /status.
func (c conversation) status(ctx context.Context, r *Request) (Reply, error) {
	info, err := session.ReadInfo(c.DB.Read(ctx), r.Session)
	if err != nil {
		return Reply{}, err
	}
	s, err := c.Sessions.Status(ctx, r.Session, r.Message)
	if err != nil {
		return Reply{}, err
	}
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "- %s: %s\n", what, fmt.Sprintf(format, args...))
	}
	version := c.Version
	if version == "development" {
		version = "(development build)"
	}
	line("Gateway", "%s %s, running for %s", c.Name, version, s.Uptime)
	if s.Persona != "" {
		line("Persona", "%s", s.Persona)
	}
	line("Model", "%s", s.Model)
	if m := c.Sessions.Models(r.Session, r.Message); m.Effort != llm.EffortDefault {
		note := ""
		if !slices.Contains(m.Efforts, m.Effort) {
			note = " (not supported by this model)"
		}
		line("Thinking", "%s%s", m.Effort, note)
	}
	line("Tokens", "%d in (%d cached), %d out", info.Usage.Input, info.Usage.Cached, info.Usage.Output)
	if info.Cost > 0 {
		line("Cost", "$%.4f", info.Cost)
	}
	line("Context", "%d %% full, %d of %d tokens", 100*info.Context/max(s.Context, 1), info.Context,
		s.Context)
	line("Queue", "%s, %d waiting", s.Mode, s.Waiting)
	line("Busy", "%s, %d of %d model calls", background.Count(s.Busy, "conversation"), s.Calls,
		s.Slots)
	for _, text := range s.Lines {
		b.WriteString(text + "\n")
	}
	return Reply{Text: b.String()}, nil
}

// stop answers /stop. One transaction ends the running turn with the steps that it has completed
// and drops the waiting messages, so that no part of them runs later.
func (c conversation) stop(ctx context.Context, r *Request) (Reply, error) {
	// A guest must not end the work of others.
	extent, say := Everything, sayStopped
	if !r.Message.Role.AtLeast(bus.User) {
		extent, say = Own, sayStoppedOwn
	}
	stop := c.Sessions.Stop(r.Message, extent)
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		stopped, err := stop.End(tx)
		return stopped.reply(r, say(&stopped)), err
	}, stop.Cancel)
}

// sayStopped is the reply to a user, who may end all that belongs to the conversation.
func sayStopped(s *Stopped) string {
	if s.Nothing() {
		return "There is nothing to stop."
	}
	say := "Stopped"
	if s.Tasks > 0 {
		say += ", with " + background.Count(s.Tasks, "sub-agent")
	}
	if s.Jobs > 0 {
		say += ", with " + background.Count(s.Jobs, "job")
	}
	if s.Discarded > 0 {
		say += ", and discarded " + background.Count(s.Discarded, "waiting message")
	}
	return say + "."
}

// sayStoppedOwn is the reply to a guest.
func sayStoppedOwn(s *Stopped) string {
	say := "There is nothing of yours to stop."
	switch {
	case s.Turn && s.Discarded > 0:
		return "Stopped, and discarded " + background.Count(s.Discarded, "waiting message") + "."
	case s.Turn:
		return "Stopped."
	case s.Discarded > 0:
		say = "I have discarded " + background.Count(s.Discarded, "waiting message") + " of yours."
	}
	if s.Running {
		say += " The answer under way is not only yours: a user of this gateway can stop it."
	}
	return say
}

// reset answers /new. It stops the running turn, and the next prompt begins with the next message.
// Background work is not part of the conversation and continues.
func (c conversation) reset(ctx context.Context, r *Request) (Reply, error) {
	stop := c.Sessions.Stop(r.Message, Foreground)
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		stopped, err := stop.End(tx)
		if err == nil {
			// This must come before Reset, which moves the beginning of the prompt behind the
			// messages to archive.
			err = c.Background.Archive(tx, r.Session)
		}
		if err == nil {
			err = session.Reset(tx, r.Session, c.Now())
		}
		say := "A new conversation begins."
		if stopped.Discarded > 0 {
			say += fmt.Sprintf(" I have discarded %s.",
				background.Count(stopped.Discarded, "waiting message"))
		}
		return stopped.reply(r, say), err
	}, stop.Cancel, c.Background.Wake)
}

// queueHelp explains the queue modes.
const queueHelp = "- steer: I read it at my next step\n- followup: I answer it afterwards\n" +
	"- collect: I answer all that came at once, afterwards\n" +
	"- interrupt: I drop the answer and begin with the new message"

// queueModes are the names of the queue modes. queueButtons set the mode.
var (
	queueModes   = []string{"steer", "followup", "collect", "interrupt"}
	queueButtons = []bus.Button{
		{Label: "Steer", Text: "/queue steer"}, {Label: "Follow up", Text: "/queue followup"},
		{Label: "Collect", Text: "/queue collect"}, {Label: "Interrupt", Text: "/queue interrupt"},
	}
)

// queue answers /queue [MODE|default].
func (c conversation) queue(ctx context.Context, r *Request) (Reply, error) {
	mode := strings.ToLower(r.Args)
	switch {
	case mode == "":
		return Reply{Text: fmt.Sprintf("The queue mode is %s. It says what happens to a message "+
			"that comes while I answer:\n\n%s", c.Sessions.Mode(r.Session), queueHelp),
			Buttons: queueButtons}, nil
	case mode == defaultWord:
		return c.choose(ctx, r, session.QueueMode, "",
			"The queue mode of this conversation is up to the configuration again.")
	case !slices.Contains(queueModes, mode):
		return Reply{Text: "There is no such queue mode. Use `steer`, `followup`, `collect`, " +
			"`interrupt` or `default`."}, nil
	}
	return c.choose(ctx, r, session.QueueMode, mode,
		fmt.Sprintf("The queue mode of this conversation is now %s.", mode))
}

// choose stores a choice for a conversation, which applies from its next turn on, and replies say.
func (c conversation) choose(
	ctx context.Context, r *Request, what session.Choice, value, say string,
) (Reply, error) {
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		return Reply{Text: say}, session.SetChoice(tx, r.Session, what, value, c.Now())
	}, func() { c.Sessions.Choose(r.Session, what, value) })
}

// usage answers /usage. The limits of the day concern everybody, so only admins see their amounts.
func (c conversation) usage(ctx context.Context, r *Request) (Reply, error) {
	info, err := session.ReadInfo(c.DB.Read(ctx), r.Session)
	if err != nil {
		return Reply{}, err
	}
	m := r.Message
	who := budget.Spender{Session: r.Session, Person: m.Person, Sender: senderID(m)}
	lines, err := c.Budget.Today(c.DB.Read(ctx), who)
	if err != nil {
		return Reply{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "- This conversation, in all: %d tokens in (%d cached), %d out, $%.4f\n",
		info.Usage.Input, info.Usage.Cached, info.Usage.Output, info.Cost)
	limits := c.Budget.Limits()
	for _, kind := range []string{"session", "person", "day"} {
		var used budget.Amount
		if i := slices.IndexFunc(lines, func(l budget.Line) bool { return l.Kind == kind }); i >= 0 {
			used = budget.Amount{Tokens: lines[i].Usage.Input + lines[i].Usage.Output,
				Cost: lines[i].Cost}
		}
		limit, bounded := limits[kind]
		switch {
		case kind != "day" || m.Role.AtLeast(bus.Admin):
			fmt.Fprintf(&b, "- %s today: %s\n", usageNames[kind], limit.Used(used))
		case bounded: // only admins see the usage of others
			fmt.Fprintf(&b, "- %s today: %.0f %% of the limit for everybody\n", usageNames[kind],
				100*limit.Part(used))
		}
	}
	if limit, ok := limits["turn"]; ok {
		b.WriteString("- One answer at most: " + limitOf(limit) + "\n")
	}
	return Reply{Text: b.String()}, nil
}

var usageNames = map[string]string{
	"session": "This conversation", "person": "You", "day": "Everybody",
}

// limitOf describes a limit of one answer: in tokens, in dollars, or both.
func limitOf(l budget.Limit) string {
	var parts []string
	if l.Tokens > 0 {
		parts = append(parts, strconv.Itoa(l.Tokens)+" tokens")
	}
	if l.Dollars > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", l.Dollars))
	}
	return strings.Join(parts, ", ")
}

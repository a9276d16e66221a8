package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/audit"
	"gateway/agent/command"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/markup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

// NamesOwner reports whether the configuration names an owner, or may do so once its mistakes are
// corrected. If it names none, the first approved person becomes the owner.
func NamesOwner(cfg *config.Config) bool {
	if cfg.IsMistaken("channels") {
		return true
	}
	for _, c := range cfg.Channels {
		if c.Enabled && len(c.Owners) > 0 {
			return true
		}
	}
	return false
}

// IsListedOwner reports whether the configuration makes a sender an owner, regardless of the role
// in the database: everybody in owners, and the person at the terminal.
func IsListedOwner(cfg *config.Config, account, sender string) bool {
	c, ok := cfg.Channels[account]
	return ok && c.Enabled && slices.Contains(newPolicy(cfg, account).Owners, sender)
}

// accessCommands returns the commands that decide who may talk to the agent. changed is called
// after a command that may have changed that. owned says whether the configuration names an
// owner.
func accessCommands(g *gate.Gate, owned bool) []command.Command {
	return []command.Command{
		{Name: "whoami", Help: "who you are to me", Least: bus.Guest, Run: whoami},
		{Name: "pair", Help: "let somebody in by their code", Least: bus.Admin,
			Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
				return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) {
					tx.After(g.Invalidate)
					return letIn(tx, r, owned)
				})
			}},
		{Name: "group", Help: "in which groups I answer, and to what", Least: bus.Admin,
			Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
				return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) {
					tx.After(g.Invalidate)
					return decideGroup(tx, r, g.Names)
				})
			}},
		{Name: "activation", Help: "what I answer in this group: mention or always", Least: bus.Admin,
			Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
				return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) {
					tx.After(g.Invalidate)
					return activate(tx, r)
				})
			}},
	}
}

// whoami runs /whoami.
func whoami(_ context.Context, r *command.Request) (command.Reply, error) {
	m := r.Message
	var b strings.Builder
	fmt.Fprintf(&b, "- Account: `%s`\n- Your id: `%s`\n", m.From.Account, m.Sender.ID)
	if m.Person != 0 {
		fmt.Fprintf(&b, "- Person: %d\n", m.Person)
	}
	fmt.Fprintf(&b, "- Role: %s\n- This chat: `%s`", m.Role, m.From.Chat)
	if m.From.Thread != "" {
		fmt.Fprintf(&b, ", thread `%s`", m.From.Thread)
	}
	return command.Reply{Text: b.String()}, nil
}

// letIn runs /pair. If owned is false and an owner sends /pair, for example at the terminal, the
// first approved person becomes the owner, as with "gateway people approve".
func letIn(tx *store.Tx, r *command.Request, owned bool) (command.Reply, error) {
	people, now, args := gate.People{}, time.Now(), r.Args
	word, code, _ := strings.Cut(args, " ")
	switch {
	case args == "":
		return pendingReply(tx, now)
	case strings.EqualFold(word, "deny"):
		p, err := people.Deny(tx, code, now)
		if errors.Is(err, gate.ErrNoPairing) {
			return command.Reply{Text: sayNoPairing}, nil
		}
		if err == nil {
			err = audit.Add(tx, audit.Of(r.Message, "turned away", p.Account+"/"+p.Sender), now)
		}
		return command.Reply{Text: fmt.Sprintf("%s was turned away and gets no further code. "+
			"On the gateway's machine `gateway people undeny %s %s` takes that back.",
			nameOf(p.Name, p.Sender), p.Account, p.Sender)}, err
	}
	p, chat, err := people.Approve(tx, args, owned || r.Message.Role != bus.Owner, now)
	if errors.Is(err, gate.ErrNoPairing) {
		return command.Reply{Text: sayNoPairing}, nil
	}
	if err == nil {
		err = audit.Add(tx, LetIn(audit.Of(r.Message, "", ""), p), now)
	}
	if err == nil {
		err = bus.NewOutbox().Put(tx, Welcome(chat), now)
	}
	return command.Reply{
		Text: fmt.Sprintf("%s can now talk to me (role: %s).", nameOf(p.Name, p.Sender), p.Role)}, err
}

// LetIn returns e as the audit entry for the approval of p.
func LetIn(e audit.Entry, p gate.Person) audit.Entry {
	e.Action, e.Whom = "let in as "+string(p.Role), p.ID
	e.About = strings.TrimSpace(display.OneLine(p.Name) + " " + p.Account + "/" + p.Sender)
	return e
}

// nameOf returns the name of somebody as Markdown, or the platform's id if the name is empty.
func nameOf(name, sender string) string {
	if name = display.OneLine(name); name == "" {
		return "`" + sender + "`"
	}
	return markup.Literal(name)
}

const sayNoPairing = "There is no such pairing code, or it has expired. /pair shows who is waiting."

// pendingReply lists the people who wait for approval.
func pendingReply(tx *store.Tx, now time.Time) (command.Reply, error) {
	list, err := gate.People{}.Pending(tx, now)
	if err != nil || len(list) == 0 {
		return command.Reply{Text: "Nobody is waiting to be let in."}, err
	}
	reply := command.Reply{Text: "These people want to talk to me:\n\n"}
	for _, p := range list {
		reply.Text += fmt.Sprintf("- `%s` on %s, code `%s`\n", p.Sender, p.Account, p.Code)
		reply.Buttons = append(reply.Buttons,
			bus.Button{Label: "Let in " + p.Code, Text: "/pair " + p.Code})
	}
	return reply, nil
}

// Welcome returns the message to a person who was approved.
func Welcome(chat bus.Address) bus.OutboundMessage {
	return bus.OutboundMessage{To: chat, Text: "Welcome, you are in! What can I do for you?"}
}

// groupSays explains each state of a group to people.
var groupSays = map[gate.GroupState]string{
	gate.GroupAsked:   "not decided, so I ignore it",
	gate.GroupMention: "I answer messages that address me",
	gate.GroupAlways:  "I answer all messages",
	gate.GroupIgnored: "I ignore it",

	gate.GroupListedMention: "if the configuration lists it, I answer messages that address me",
	gate.GroupListedAlways:  "if the configuration lists it, I answer all messages",
}

// sayNamed explains why the agent goes on answering in a group that somebody wanted to ignore.
const sayNamed = "I go on answering, because the configuration names it: remove its id from " +
	"`groups` first"

// decideGroup runs /group [mention|always|ignore N]. named reports whether the configuration names
// a group.
func decideGroup(
	tx *store.Tx, r *command.Request, named func(account, chat string) bool,
) (command.Reply, error) {
	word, number, _ := strings.Cut(r.Args, " ")
	state := gate.GroupState(strings.ToLower(word))
	if r.Args == "" {
		return groupsReply(tx, named)
	}
	if !state.Answers() && state != gate.GroupIgnored {
		return command.Reply{Text: "Use `/group mention N`, `/group always N` or `/group ignore N`. " +
			"`/group` shows the numbers."}, nil
	}
	id, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		id = 0
	}
	before, err := gate.Groups{}.Decide(tx, id, state)
	if errors.Is(err, gate.ErrNoGroup) {
		return command.Reply{Text: "There is no group with this number. `/group` shows them."}, nil
	}
	if err == nil {
		err = audit.Add(tx, groupEntry(r, before, state), time.Now())
	}
	if err == nil && state.Answers() && !before.State.Answers() {
		err = bus.NewOutbox().Put(tx, helloGroup(before, state), time.Now())
	}
	if err == nil && state == gate.GroupIgnored && named(before.Account, before.Chat) {
		return command.Reply{Text: "The group " + groupName(before) + ": " + sayNamed + "."}, nil
	}
	return command.Reply{Text: fmt.Sprintf("The group %s: %s from now on.", groupName(before),
		groupSays[state])}, err
}

// groupEntry returns the audit entry for a decision about a group.
func groupEntry(r *command.Request, g gate.Group, s gate.GroupState) audit.Entry {
	return audit.Of(r.Message, "group set to "+string(s), g.Title+" "+g.Account+"/"+g.Chat)
}

// helloGroup returns the agent's first message in an approved group.
func helloGroup(g gate.Group, s gate.GroupState) bus.OutboundMessage {
	text := "Hello! I answer here when somebody mentions me or replies to me."
	if s == gate.GroupAlways {
		text = "Hello! I answer here from now on."
	}
	return bus.OutboundMessage{To: bus.Address{Account: g.Account, Chat: g.Chat}, Text: text}
}

// groupsReply lists the groups that were approved, ignored or that wait for a decision.
func groupsReply(
	tx *store.Tx, named func(account, chat string) bool,
) (command.Reply, error) {
	list, err := gate.Groups{}.List(tx)
	if err != nil || len(list) == 0 {
		return command.Reply{Text: "Nobody has written to me in a group that is not listed, and " +
			"nothing was decided about one."}, err
	}
	reply := command.Reply{Text: "Groups, besides those in the configuration:\n\n"}
	for _, g := range list {
		says := groupSays[g.State]
		if g.State == gate.GroupIgnored && named(g.Account, g.Chat) {
			says = sayNamed
		}
		reply.Text += fmt.Sprintf("- %d: %s on %s: %s\n", g.ID, groupName(g), g.Account, says)
		if g.State == gate.GroupAsked && reply.Buttons == nil {
			reply.Buttons = gate.GroupButtons(g.ID)
		}
	}
	if reply.Buttons != nil {
		reply.Text += "\nThe buttons are for the first that is not decided."
	}
	return reply, nil
}

// groupName returns the name of a group as people read it.
func groupName(g gate.Group) string {
	if g.Title == "" {
		return "`" + g.Chat + "`"
	}
	return markup.Literal(g.Title) + " (`" + g.Chat + "`)"
}

// activate runs /activation [mention|always].
func activate(tx *store.Tx, r *command.Request) (command.Reply, error) {
	m := r.Message
	state := gate.GroupState(strings.ToLower(r.Args))
	switch {
	case !m.Group:
		return command.Reply{Text: "`/activation` is for groups. Here I answer everything."}, nil
	case !state.Answers():
		return command.Reply{Text: "What should I answer in this group?", Buttons: []bus.Button{
			{Label: "When mentioned", Text: "/activation mention"},
			{Label: "Everything", Text: "/activation always"}}}, nil
	}
	g := gate.Group{Account: m.From.Account, Chat: m.From.Chat, Title: m.ChatTitle, State: state}
	err := gate.Groups{}.Activate(tx, g, time.Now())
	if err == nil {
		err = audit.Add(tx, groupEntry(r, g, state), time.Now())
	}
	return command.Reply{Text: "In this group " + groupSays[state] + " from now on."}, err
}

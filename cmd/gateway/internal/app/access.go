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
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/markup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// HasOwner reports whether the configuration names an owner, or may do so once its mistakes are
// corrected. If it names none, the first approved person becomes the owner.
func HasOwner(cfg *config.Config) bool {
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

// accessCommands returns the commands that decide who may talk to the agent, and where. l leaves
// groups. owned says whether the configuration in force names an owner.
func accessCommands(g *gate.Gate, l leaver, owned func() bool) []command.Command {
	// changing returns the function of a command that changes who may talk to the agent, or where.
	changing := func(
		do func(*store.Tx, *command.Request) (command.Reply, error),
	) func(context.Context, *command.Request) (command.Reply, error) {
		return func(ctx context.Context, r *command.Request) (command.Reply, error) {
			return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) {
				// The gate caches who may write. It must forget that only after the commit, since
				// it would otherwise read the earlier rows again.
				tx.After(g.Invalidate)
				return do(tx, r)
			})
		}
	}
	decide := changing(func(tx *store.Tx, r *command.Request) (command.Reply, error) {
		return decideGroup(tx, r, g)
	})
	return []command.Command{
		{Name: "whoami", Help: "who you are to me", MinRole: bus.Guest, Run: whoami},
		{Name: "pair", Help: "let somebody in by their code", MinRole: bus.Admin,
			Run: changing(func(tx *store.Tx, r *command.Request) (command.Reply, error) {
				return approvePairing(tx, r, owned())
			})},
		{Name: "group", Help: "in which groups I answer, and to what", MinRole: bus.Admin,
			Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
				if word, group := command.FirstWord(r.Args); strings.EqualFold(word, "leave") {
					return l.leave(ctx, r, group)
				}
				return decide(ctx, r)
			}},
		{Name: "activation", Help: "what I answer in this group: mention or always", MinRole: bus.Admin,
			Run: changing(activate)},
	}
}

// whoami runs /whoami.
func whoami(_ context.Context, r *command.Request) (command.Reply, error) {
	m := r.Message
	var b strings.Builder
	// The configuration expects these ids, and people copy them from here.
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

// approvePairing runs /pair. If owned is false and an owner sends /pair, for example at the
// terminal, the first approved person becomes the owner, as with "gateway people approve".
func approvePairing(tx *store.Tx, r *command.Request, owned bool) (command.Reply, error) {
	people, now, args := gate.People{}, time.Now(), r.Args
	word, code := command.FirstWord(args)
	switch {
	case args == "":
		return pendingReply(tx, now)
	case strings.EqualFold(word, "deny"):
		p, err := people.Deny(tx, code, now)
		if errors.Is(err, gate.ErrNoPairing) {
			return command.Reply{Text: sayNoPairing}, nil
		}
		if err == nil {
			err = audit.Add(tx, audit.NewEntry(r.Message, "turned away", p.Account+"/"+p.Sender), now)
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
		err = audit.Add(tx, ApprovalEntry(audit.NewEntry(r.Message, "", ""), p), now)
	}
	if err == nil {
		err = bus.NewOutbox().Put(tx, Welcome(chat), now)
	}
	return command.Reply{
		Text: fmt.Sprintf("%s can now talk to me (role: %s).", nameOf(p.Name, p.Sender), p.Role)}, err
}

// ApprovalEntry returns e as the audit entry for the approval of p.
func ApprovalEntry(e audit.Entry, p gate.Person) audit.Entry {
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
	gate.GroupLeaving: "I am leaving it, and ignore it until then",
	gate.GroupLeft:    "I have left it",

	gate.GroupListedMention: "if the configuration lists it, I answer messages that address me",
	gate.GroupListedAlways:  "if the configuration lists it, I answer all messages",
}

// sayNamed explains why the agent goes on answering in a group that somebody wanted to ignore.
const sayNamed = "I still answer there, because the configuration names it: remove its id from " +
	"`groups` first"

// decideGroup runs /group [mention|always|ignore N]. It answers mistakes with a reply, not with an
// error.
func decideGroup(tx *store.Tx, r *command.Request, access *gate.Gate) (command.Reply, error) {
	word, number := command.FirstWord(r.Args)
	state := gate.GroupState(strings.ToLower(word))
	if r.Args == "" {
		return groupsReply(tx, access)
	}
	if !state.Answers() && state != gate.GroupIgnored {
		return command.Reply{Text: "Use `/group mention N`, `/group always N`, `/group ignore N` or " +
			"`/group leave N`. `/group` shows the numbers."}, nil
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		// No group has the number 0, so Decide reports that there is none.
		id = 0
	}
	before, err := gate.Groups{}.Decide(tx, id, state)
	if errors.Is(err, gate.ErrNoGroup) {
		return command.Reply{Text: "There is no group with this number. `/group` shows them."}, nil
	}
	if err == nil {
		err = audit.Add(tx, groupEntry(r, before, state), time.Now())
	}
	var dropped []bus.Delivery
	if err == nil {
		// A decision to leave the group may still wait in the outbox. The new decision replaces it.
		dropped, err = access.CancelLeaving(tx, before)
	}
	// A group in which the agent answered already needs no greeting.
	if err == nil && state.Answers() && !before.State.Answers() {
		err = bus.NewOutbox().Put(tx, groupWelcome(before, state), time.Now())
	}
	// The configuration overrides this decision, and people must know that.
	if err == nil && state == gate.GroupIgnored && access.Names(before.Account, before.Chat) {
		return command.Reply{Text: "The group " + groupName(before) + ": " + sayNamed + "." +
			stayText(dropped)}, nil
	}
	text := fmt.Sprintf("The group %s: %s from now on.", groupName(before), groupSays[state])
	return command.Reply{Text: text + stayText(dropped)}, err
}

// stayText explains that decisions to leave groups were dropped.
func stayText(dropped []bus.Delivery) (text string) {
	for i := range dropped {
		l := dropped[i].Message.Leave
		// The platform may have got this request already.
		if dropped[i].State == bus.Sending {
			text += fmt.Sprintf(" I was just leaving %s, so I may be gone already. Then please add me "+
				"again.", l.Name)
			continue
		}
		text += fmt.Sprintf(" I don't leave %s.", l.Name)
		if len(l.Chats) > 1 {
			text += " Earlier decisions about its other channels apply again."
		}
	}
	return text
}

// groupEntry returns the audit entry for a decision about a group.
func groupEntry(r *command.Request, g gate.Group, s gate.GroupState) audit.Entry {
	return audit.NewEntry(r.Message, "group set to "+string(s), g.Title+" "+g.Account+"/"+g.Chat)
}

// groupWelcome returns the agent's first message in an approved group.
func groupWelcome(g gate.Group, s gate.GroupState) bus.OutboundMessage {
	text := "Hello! I answer here when somebody mentions me or replies to me."
	if s == gate.GroupAlways {
		text = "Hello! I answer here from now on."
	}
	return bus.OutboundMessage{To: bus.Address{Account: g.Account, Chat: g.Chat}, Text: text}
}

// groupsReply lists the groups that were approved, ignored or that wait for a decision.
func groupsReply(tx *store.Tx, access *gate.Gate) (command.Reply, error) {
	list, err := gate.Groups{}.List(tx)
	if err != nil || len(list) == 0 {
		return command.Reply{Text: "I know no groups besides those in the configuration."}, err
	}
	reply := command.Reply{Text: "Groups, besides those in the configuration:\n\n"}
	for _, g := range list {
		says := groupSays[g.State]
		switch {
		case g.State == gate.GroupIgnored && access.Names(g.Account, g.Chat):
			says = sayNamed
		case g.State == gate.GroupLeft && access.IsConfigured(g.Account, g.Chat):
			says += ". " + gate.StillListedText(g.Chat)
		}
		reply.Text += fmt.Sprintf("- %d: %s on %s: %s\n", g.ID, groupName(g), g.Account, says)
		// A reply has one set of buttons, which name one group.
		if g.State == gate.GroupAsked && reply.Buttons == nil {
			reply.Buttons = gate.GroupButtons(g.ID)
		}
	}
	if reply.Buttons != nil {
		reply.Text += "\nThe buttons are for the first group without a decision."
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
	ok, err := gate.Groups{}.Activate(tx, g, time.Now())
	if err != nil || !ok { // nothing is said in a group that is left
		return command.Reply{}, err
	}
	err = audit.Add(tx, groupEntry(r, g, state), time.Now())
	return command.Reply{Text: "In this group " + groupSays[state] + " from now on."}, err
}

// A leaver runs /group leave.
type leaver struct {
	gate     *gate.Gate
	db       *store.DB
	channels map[string]channels.Channel // by account
}

// A departure is what an account leaves: a group, or all groups of a server.
type departure struct {
	bus.Leave
	groups []gate.Group // the group of the command first, then others that people know
	listed []string     // ids of those that the configuration lists
}

// leave runs /group leave [GROUP [SERVER]]. GROUP is the number, the id or the title of a group; ""
// means the group of the command. SERVER confirms that the server with this id is left.
func (l leaver) leave(ctx context.Context, r *command.Request, args string) (command.Reply, error) {
	group, reply, err := l.find(ctx, r.Message, args)
	// A title can contain spaces, so all words are taken for a group first. If there is none, the
	// last word is the id of a server.
	server := ""
	if last := strings.LastIndex(args, " "); reply != "" && last > 0 && err == nil {
		server = args[last+1:]
		group, reply, err = l.find(ctx, r.Message, strings.TrimSpace(args[:last]))
	}
	if err != nil || reply != "" {
		return command.Reply{Text: reply}, err
	}
	ch, ok := l.channels[group.Account].(channels.Leaver)
	pending, err := l.gate.Leaving(l.db.Read(ctx), group)
	switch {
	case err != nil:
		return command.Reply{}, err
	case !ok:
		return command.Reply{Text: fmt.Sprintf("I can't leave groups of `%s`.", group.Account)}, nil
	case len(pending) > 0:
		return command.Reply{Text: "I am leaving the group " + groupName(group) + " already."}, nil
	}
	d := departure{Leave: bus.Leave{ID: group.Chat, Name: "the group " + groupName(group)},
		groups: []gate.Group{group}}
	// On Discord an account can't leave a channel, only its server.
	if finder, ok := ch.(channels.ServerFinder); ok {
		reply, err := l.confirm(ctx, finder, &d, server)
		if err != nil || reply.Text != "" {
			return reply, err
		}
	}
	for _, g := range d.groups {
		if l.gate.IsConfigured(g.Account, g.Chat) {
			d.listed = append(d.listed, g.Chat)
		}
	}
	return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) { return l.start(tx, r, d) })
}

// find returns the group that a person means. If there is none, reply says so. A number of a group
// comes before an id or a title.
func (l leaver) find(
	ctx context.Context, m bus.InboundMessage, which string,
) (_ gate.Group, reply string, err error) {
	list, err := gate.Groups{}.List(l.db.Read(ctx))
	if err != nil {
		return gate.Group{}, "", err
	}
	here := gate.Group{Account: m.From.Account, Chat: m.From.Chat, Title: m.ChatTitle}
	var found []gate.Group
	for _, g := range list {
		switch {
		case which == strconv.FormatInt(g.ID, 10):
			return g, "", nil
		case which == "" && g.Account == here.Account && g.Chat == here.Chat, which == g.Chat,
			which != "" && strings.EqualFold(which, g.Title):
			found = append(found, g)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], "", nil
	case len(found) > 1:
		return here, "Several groups have this name. `/group` shows their numbers.", nil
	// The group of the command need not be in the table, for example if only the configuration
	// lists it.
	case m.Group && (which == "" || which == here.Chat):
		return here, "", nil
	case which != "":
		found, err = l.findUndecided(ctx, which)
		if i := slices.IndexFunc(found, func(g gate.Group) bool {
			return g.Account == here.Account && g.Chat == which
		}); i >= 0 {
			found = found[i : i+1]
		}
	}
	switch {
	case err != nil:
		return here, "", err
	case len(found) == 1:
		return found[0], "", nil
	case len(found) > 1:
		return here, "Several groups have this name. Send `/group leave` in the one that you mean.", nil
	case which == "":
		return here, "Which one? Use `/group leave N`. `/group` shows the numbers.", nil
	}
	return here, "There is no such group. `/group` shows them.", nil
}

// maxSearched is the maximum number of conversations among which a group is searched.
const maxSearched = 1000

// findUndecided returns the groups with an id or a title that are not in the table: those that the
// configuration names, and those in which the agent has answered.
func (l leaver) findUndecided(ctx context.Context, which string) (found []gate.Group, err error) {
	q := l.db.Read(ctx)
	list, err := session.List(q, maxSearched)
	for i := 0; i < len(list) && err == nil; i++ {
		a := list[i].Key.Conversation
		if a.Thread = ""; a.Chat == "" || which != a.Chat && !strings.EqualFold(which, list[i].Title) ||
			slices.ContainsFunc(found, func(g gate.Group) bool { return g.Is(a) }) {
			continue
		}
		group, title := false, ""
		if group, title, err = bus.GroupTitle(q, a); group {
			found = append(found, gate.Group{Account: a.Account, Chat: a.Chat, Title: title})
		}
	}
	for account := range config.Sorted(l.channels) {
		a := bus.Address{Account: account, Chat: which}
		if l.gate.Names(account, which) &&
			!slices.ContainsFunc(found, func(g gate.Group) bool { return g.Is(a) }) {
			found = append(found, gate.Group{Account: account, Chat: which})
		}
	}
	return found, err
}

// confirm completes d for the server of its group. If confirmed is not the server's id, the reply
// asks the person for a confirmation. If the server can't be left now, the reply says why.
// Otherwise the reply is empty.
func (l leaver) confirm(
	ctx context.Context, finder channels.ServerFinder, d *departure, confirmed string,
) (command.Reply, error) {
	group := d.groups[0]
	server, err := finder.Server(ctx, group.Chat)
	// The id of a server is a decimal number, so no other word can confirm.
	_, garbled := strconv.ParseUint(confirmed, 10, 64)
	switch {
	case err != nil && garbled == nil: // the question has named the server
		d.ID, d.Name = confirmed, "the server `"+confirmed+"`"
		return command.Reply{}, nil
	case errors.Is(err, channels.ErrRefused):
		return command.Reply{Text: "I have no access to the channel " + groupName(group) + " (any " +
			"more), so I can't tell which server it belongs to. Please remove me in the settings of " +
			"the server."}, nil
	case err != nil:
		return command.Reply{Text: "I can only leave the whole server of the channel, and can't find " +
			"out now which one that is. Please try again later."}, nil
	}
	d.ID, d.Name = server.ID, "the server "+markup.Literal(server.Name)
	others, err := l.otherGroups(ctx, group, server)
	if err != nil || confirmed == server.ID {
		d.groups = append(d.groups, others...)
		return command.Reply{}, err
	}
	text := fmt.Sprintf("I can only leave %s as a whole, with all its channels.", d.Name)
	var used []string
	// The warning names only channels in which the agent answers.
	for _, g := range others {
		if g.State.Answers() || l.gate.Names(g.Account, g.Chat) {
			used = append(used, markup.Literal("#"+server.Groups[g.Chat]))
		}
	}
	if len(used) > 0 {
		text += " There I also answer in " + strings.Join(used, ", ") + "."
	}
	which := strconv.FormatInt(group.ID, 10)
	// A group that is not in the table has no number.
	if group.ID == 0 {
		which = group.Chat
	}
	return command.Reply{Text: text + " Shall I leave it?", Buttons: []bus.Button{{
		Label: "Leave the server " + plaintext.Shorten(server.Name, 40),
		Text:  "/group leave " + which + " " + server.ID}}}, nil
}

// otherGroups returns the groups of a server besides group that owners have decided about or that
// the configuration names.
func (l leaver) otherGroups(
	ctx context.Context, group gate.Group, server channels.Server,
) ([]gate.Group, error) {
	list, err := gate.Groups{}.List(l.db.Read(ctx))
	known := make(map[string]gate.Group)
	for _, g := range list {
		if g.Account == group.Account {
			known[g.Chat] = g
		}
	}
	var others []gate.Group
	for chat, title := range config.Sorted(server.Groups) {
		g, ok := known[chat]
		if !ok {
			g = gate.Group{Account: group.Account, Chat: chat,
				Title: server.Name + " / #" + title}
		}
		if chat != group.Chat && (ok || l.gate.Names(g.Account, chat)) {
			others = append(others, g)
		}
	}
	return others, err
}

// start stores the decision to leave. Nothing is said in the group.
func (l leaver) start(
	tx *store.Tx, r *command.Request, d departure,
) (reply command.Reply, err error) {
	m := r.Message
	// The outcome can't be told in a group that the account leaves, so the owners get it.
	d.Tell = []bus.Address{m.From}
	if m.Group {
		d.Tell, err = gate.OwnerChats(tx, l.gate)
	}
	if err == nil {
		err = audit.Add(tx, groupEntry(r, d.groups[0], gate.GroupLeaving), time.Now())
	}
	if err != nil {
		return reply, err
	}
	dropped, err := l.gate.StartLeaving(tx, d.groups, d.Leave)
	if slices.ContainsFunc(d.groups, func(g gate.Group) bool {
		// The chat of the command can have moved since the group was stored, as on Telegram.
		return g.Account == m.From.Account && (g.Chat == m.From.Chat || g.Chat == m.PreviousChat)
	}) {
		return reply, err
	}
	reply.Text = "I leave " + d.Name + " and tell you when that is done."
	if dropped > 0 {
		reply.Text += fmt.Sprintf(" Dropped messages that were still to be sent there: %d.", dropped)
	}
	if len(d.listed) > 0 {
		reply.Text += " " + gate.StillListedText(d.listed...)
	}
	return reply, err
}

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/agent/command"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/markup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

// NamesOwner reports whether the configuration names an owner, or might without its mistakes.
// If it does not, the first person who is approved becomes the owner.
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

// IsListedOwner reports whether the configuration makes somebody an owner, whatever role the
// database has: those in owners, and whoever sits at the terminal.
func IsListedOwner(cfg *config.Config, account, sender string) bool {
	c, ok := cfg.Channels[account]
	return ok && c.Enabled && slices.Contains(newPolicy(c).Owners, sender)
}

// accessCommands are the commands about who may speak. changed is called after each of them that
// may have changed that. owned says that the configuration names an owner.
func accessCommands(changed func(), owned bool) []command.Command {
	return []command.Command{
		{Name: "whoami", Help: "who you are to me", Least: bus.Guest, Run: whoami},
		{Name: "pair", Help: "let somebody in by their code", Least: bus.Admin,
			Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
				return r.Commit(ctx, func(tx *store.Tx) (command.Reply, error) {
					tx.After(changed)
					return letIn(tx, r, owned)
				})
			}},
	}
}

// whoami answers /whoami.
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

// letIn answers /pair. The first person becomes the owner, as with "gateway people approve", if
// whoever has sent this is one: at the terminal, where there need not be another yet.
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
		return command.Reply{Text: fmt.Sprintf("%s was turned away and gets no further code. "+
			"On the gateway's machine `gateway people undeny %s %s` takes that back.",
			nameOf(p.Name, p.Sender), p.Account, p.Sender)}, err
	}
	p, chat, err := people.Approve(tx, args, owned || r.Message.Role != bus.Owner, now)
	if errors.Is(err, gate.ErrNoPairing) {
		return command.Reply{Text: sayNoPairing}, nil
	}
	if err == nil {
		err = bus.NewOutbox().Put(tx, Welcome(chat), now)
	}
	return command.Reply{
		Text: fmt.Sprintf("%s can now talk to me (role: %s).", nameOf(p.Name, p.Sender), p.Role)}, err
}

// nameOf names somebody for people: by the name, or by the platform's id if there is none.
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

// Welcome is the message to somebody who was approved.
func Welcome(chat bus.Address) bus.OutboundMessage {
	return bus.OutboundMessage{To: chat, Text: "Welcome, you are in! What can I do for you?"}
}

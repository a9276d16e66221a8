package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/audit"
	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/policy"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

func peopleCommand(load app.Loader) *cobra.Command {
	return group("people", "Let people in, and set their roles",
		withJSONFlag(dataCommand(load, "list", "List people, and strangers who wait for approval",
			cobra.NoArgs, listPeople)),
		changePeople(load, "approve CODE",
			"Approve the stranger with this pairing code; the first person becomes the owner",
			inTx(approve)),
		changePeople(load, "deny CODE", "Turn away the stranger with this pairing code, for good",
			inTx(deny)),
		changePeople(load, "undeny ACCOUNT ID", "Let somebody who was turned away ask again",
			inTx(undeny)),
		changePeople(load, "revoke PERSON", "Forget a person, who becomes a stranger again",
			inTx(revoke)),
		changePeople(load, "role PERSON ROLE",
			"Set the role of a person: owner, admin, user or guest", inTx(setRole)),
		changePeople(load, "link PERSON OTHER", "Merge two people who are the same human", inTx(link)),
		changePeople(load, "unlink ACCOUNT ID",
			"Undo a link: the user of an account becomes a person of their own again", unlink))
}

// listPeople prints strangers who wait, then people, then those who were turned away. For strangers
// it also prints the commands that let them in.
func listPeople(cmd *cobra.Command, d data, _ []string) error {
	people := gate.People{}
	pending, pendingErr := people.Pending(d.q, time.Now())
	known, knownErr := people.List(d.q)
	denied, err := people.Denied(d.q)
	if err = errors.Join(pendingErr, knownErr, err); err != nil {
		return err
	}
	var rows [][]any
	for _, p := range pending {
		rows = append(rows, []any{"", excerpt(p.Name), p.Account, p.Sender, "asks, code " + p.Code})
	}
	for _, p := range known {
		// The configuration overrides the role in the database.
		if app.IsListedOwner(d.cfg, p.Account, p.Sender) {
			p.Role = bus.Owner
		}
		rows = append(rows, []any{p.ID, excerpt(p.Name), p.Account, p.Sender, p.Role})
	}
	for _, p := range denied {
		rows = append(rows, []any{"", excerpt(p.Name), p.Account, p.Sender,
			"denied on " + p.Since.Format(time.DateOnly)})
	}
	columns := []string{"PERSON", "NAME", "ACCOUNT", "ID", "ROLE"}
	err = table{columns, rows, "Nobody was approved yet, and nobody waits for it."}.print(cmd)
	if err != nil || wantsJSON(cmd) {
		return err
	}
	for i, p := range pending {
		if i == 0 {
			cmd.Println("\nTo let somebody in:")
		}
		cmd.Printf("gateway people approve %s  # %s, within %s\n", p.Code,
			display.OneLine(p.Name), time.Until(p.Expires).Truncate(time.Second))
	}
	return nil
}

// approve lets a stranger in. In the same transaction it queues their welcome, which a running
// gateway sends.
func approve(tx *store.Tx, d data, args []string) (string, error) {
	p, chat, err := gate.People{}.Approve(tx, args[0], app.HasOwner(d.cfg), time.Now())
	if err == nil {
		err = audit.Add(tx, app.ApprovalEntry(audit.Entry{By: audit.CommandLine}, p), time.Now())
	}
	if err == nil {
		err = bus.NewOutbox().Put(tx, app.Welcome(chat), time.Now())
	}
	return fmt.Sprintf("%s can now talk to the agent (role: %s).", display.OneLine(p.Name),
		p.Role), err
}

func deny(tx *store.Tx, _ data, args []string) (string, error) {
	p, err := gate.People{}.Deny(tx, args[0], time.Now())
	if err == nil {
		err = addAudit(tx, 0, "turned away", p.Account+"/"+p.Sender)
	}
	return "Code " + args[0] + " is no longer valid, and its owner gets no further one. " +
		"To undo this: gateway people undeny.", err
}

func undeny(tx *store.Tx, _ data, args []string) (string, error) {
	err := gate.People{}.Undeny(tx, args[0], args[1])
	if err == nil {
		err = addAudit(tx, 0, "may ask again", args[0]+"/"+args[1])
	}
	return args[1] + " may ask again on " + args[0] + ".", err
}

func revoke(tx *store.Tx, d data, args []string) (string, error) {
	id, err := personNumber(args[0])
	if err != nil {
		return "", err
	}
	exceptions, err := exceptionsOf(tx, d.cfg, id)
	if err == nil {
		err = gate.People{}.Revoke(tx, id)
	}
	if err == nil {
		err = addAudit(tx, id, "revoked", "person "+args[0])
	}
	return "Person " + args[0] + " is a stranger again." + exceptions, err
}

// exceptionsOf returns a sentence for each account on which the configuration admits a person, so
// that a change of the database does not shut them out.
func exceptionsOf(tx *store.Tx, cfg *config.Config, id int64) (text string, err error) {
	list, err := gate.People{}.List(tx)
	for _, p := range list {
		c, key := cfg.Channels[p.Account], ""
		switch {
		case p.ID != id || !c.Enabled:
			continue
		case slices.Contains(c.Allow, p.Sender):
			key = "allow"
		case c.Access == string(gate.Open):
			key = "access"
		}
		if owner := ownerText(cfg, p); owner != "" {
			text += owner
		} else if key != "" {
			text += fmt.Sprintf(" But %s may still write on %s, as %s of [channels.%[2]s] says.",
				p.Sender, p.Account, key)
		}
	}
	return text, err
}

// ownedText returns a sentence for each account on which the configuration makes a person an owner,
// whatever their role in the database.
func ownedText(tx *store.Tx, cfg *config.Config, id int64) (text string, err error) {
	list, err := gate.People{}.List(tx)
	for _, p := range list {
		if p.ID == id {
			text += ownerText(cfg, p)
		}
	}
	return text, err
}

// ownerText is [ownedText] for one identity.
func ownerText(cfg *config.Config, p gate.Person) string {
	switch {
	case !app.IsListedOwner(cfg, p.Account, p.Sender):
		return ""
	case cfg.Channels[p.Account].Type == "terminal":
		return " But whoever can open the gateway's home is an owner in the terminal."
	}
	return fmt.Sprintf(" But %s stays an owner on %s, as owners of [channels.%[2]s] says.", p.Sender,
		p.Account)
}

func setRole(tx *store.Tx, d data, args []string) (string, error) {
	id, err := personNumber(args[0])
	if err != nil {
		return "", err
	}
	role := bus.Role(args[1])
	if !role.Valid() {
		return "", app.UsageErrorf("%q is not a role: want owner, admin, user or guest", role)
	}
	owns := ""
	if err = (gate.People{}).SetRole(tx, id, role); err == nil {
		err = addAudit(tx, id, "role set to "+args[1], "person "+args[0])
	}
	if err == nil && role != bus.Owner {
		owns, err = ownedText(tx, d.cfg, id)
	}
	return fmt.Sprintf("Person %s is %s now.", args[0], role) + owns, err
}

// link merges two people. The first one remains. Its memory gets that of the other one later, when
// the gateway handles their next message.
func link(tx *store.Tx, _ data, args []string) (string, error) {
	id, err := personNumber(args[0])
	if err != nil {
		return "", err
	}
	other, err := personNumber(args[1])
	if err == nil {
		err = gate.People{}.Link(tx, id, other)
	}
	if err == nil {
		err = audit.Link(tx, id, other)
	}
	if err == nil {
		err = addAudit(tx, id, "linked", "person "+args[1]+" with person "+args[0])
	}
	return fmt.Sprintf("Merged: person %[2]s is now part of person %[1]s. Their memories are "+
		"joined when the second one writes next. gateway people unlink takes an account out again, "+
		"but not its memories.", args[0], args[1]), err
}

// unlink moves what belongs to the account to a new person. It moves most messages before the new
// person exists, in short transactions. If it is killed meanwhile, nobody is unlinked.
func unlink(cmd *cobra.Command, d data, args []string) error {
	people, now := gate.People{}, time.Now()
	var parts []background.Separation // from the present person, and from those that both were before
	err := d.db.Tx(cmd.Context(), func(tx *store.Tx) error {
		p, before, err := people.PrepareUnlink(tx, args[0], args[1], now)
		if err != nil {
			return err
		}
		shared, err := people.SharedIDs(tx, before, args[0], args[1])
		parts = nil
		for _, from := range append([]int64{before}, shared...) {
			parts = append(parts, background.Separation{Account: args[0], Sender: args[1],
				From: from, To: p.ID})
		}
		return err
	})
	for i := 0; i < len(parts) && err == nil; i++ {
		err = parts[i].Prepare(cmd.Context(), d.db)
	}
	if err != nil {
		return err
	}
	return inTx(func(tx *store.Tx, _ data, args []string) (string, error) {
		p, before, err := people.Unlink(tx, args[0], args[1], parts[0].To, now)
		if err == nil && before != parts[0].From {
			err = fmt.Errorf("%s on %s was linked to another person meanwhile", args[1], args[0])
		}
		for i := 0; i < len(parts) && err == nil; i++ {
			if err = parts[i].Apply(tx, now); err == nil {
				err = audit.Unlink(tx, args[0], args[1], parts[i].From, p.ID)
			}
		}
		if err == nil {
			err = addAudit(tx, p.ID, "unlinked", args[0]+"/"+args[1])
		}
		return fmt.Sprintf("%s on %s is person %d now, a user. The memories of both stay with "+
			"the person whom they were linked to.", p.Sender, p.Account, p.ID), err
	})(cmd, d, args)
}

// changePeople returns a command that changes people by run. use names each argument
// after the command by one word, so the number of spaces in it is the number of arguments.
func changePeople(
	load app.Loader, use, short string, run func(*cobra.Command, data, []string) error,
) *cobra.Command {
	return dataCommand(load, use, short, cobra.ExactArgs(strings.Count(use, " ")),
		func(cmd *cobra.Command, d data, args []string) error {
			err := run(cmd, d, args)
			// These errors mean that the argument is wrong or too old.
			for _, unknown := range []error{gate.ErrNoPairing, gate.ErrNoPerson, gate.ErrNotDenied,
				gate.ErrNotLinked} {
				if errors.Is(err, unknown) {
					return app.UsageErrorf("%w: see gateway people list", unknown)
				}
			}
			return err
		})
}

// addAudit adds an audit entry of the command line. whom is the person concerned, or 0.
func addAudit(tx *store.Tx, whom int64, action, about string) error {
	return audit.Add(tx, audit.Entry{By: audit.CommandLine, Action: action, About: about, Whom: whom},
		time.Now())
}

// personNumber parses the number of a person.
func personNumber(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, app.UsageErrorf("%q is not a number: gateway people list shows the number of each "+
			"person", s)
	}
	return id, nil
}

// auditCommand returns the command that shows the audit log, one page at a time.
func auditCommand(load app.Loader) *cobra.Command {
	var page int
	cmd := listCommand(load, "audit",
		"Show the audit log: approvals, access, halts and changed rules, the newest first",
		table{columns: []string{"TIME", "WHAT", "ABOUT", "BY", "WHERE"},
			empty: "There are no decisions on this page."},
		func(d data) (rows [][]any, err error) {
			list, err := audit.List(d.q, auditLines, (page-1)*auditLines)
			for _, e := range list {
				where := ""
				if e.Where.Chat != "" {
					where = command.ChatName(e.Where)
				}
				rows = append(rows, []any{timestamp(e.Time), e.Action, excerpt(e.About),
					excerpt(e.Author()), where})
			}
			return rows, err
		})
	countVar(cmd.Flags(), &page, "page", 1, "which page to show, of 50 lines each")
	return cmd
}

// auditLines is the number of lines on a page of the audit log.
const auditLines = 50

func haltCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "halt",
		"Emergency stop: pause everything until gateway resume", cobra.NoArgs,
		inTx(func(tx *store.Tx, _ data, _ []string) (string, error) {
			// The halt is a row in the database, which a running gateway checks before each model
			// call and each tool call.
			if ok, err := policy.SetHalt(tx, "the command line", time.Now()); err != nil || !ok {
				return "Everything is halted already.", err
			}
			return "Stopped everywhere. Nothing runs until gateway resume.", addAudit(tx, 0, "halted", "")
		}))
}

func resumeCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "resume", "Continue after gateway halt or /halt", cobra.NoArgs,
		inTx(func(tx *store.Tx, _ data, _ []string) (string, error) {
			if ok, err := policy.ClearHalt(tx); err != nil || !ok {
				return "Nothing is halted.", err
			}
			return "The gateway continues.", addAudit(tx, 0, "resumed", "")
		}))
}

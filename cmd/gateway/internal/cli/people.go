package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/audit"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

func peopleCommand(load app.Loader) *cobra.Command {
	return group("people", "Let people in, and set their roles",
		peopleListCommand(load), peopleApproveCommand(load),
		peopleDenyCommand(load), peopleUndenyCommand(load),
		peopleRevokeCommand(load), peopleRoleCommand(load), peopleLinkCommand(load),
		peopleUnlinkCommand(load))
}

func peopleListCommand(load app.Loader) *cobra.Command {
	return listing(&cobra.Command{
		Use:   "list",
		Short: "List people, and strangers who wait for approval",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			return withData(cmd.Context(), load, func(db *store.DB) error {
				pending, err := gate.People{}.Pending(db.Read(cmd.Context()), time.Now())
				if err != nil {
					return err
				}
				known, err := gate.People{}.List(db.Read(cmd.Context()))
				if err != nil {
					return err
				}
				denied, err := gate.People{}.Denied(db.Read(cmd.Context()))
				if err != nil {
					return err
				}
				var rows [][]any
				for _, p := range pending {
					rows = append(rows, []any{"", excerpt(p.Name), p.Account, p.Sender,
						"asks, code " + p.Code})
				}
				for _, p := range known {
					if app.IsListedOwner(cfg, p.Account, p.Sender) {
						p.Role = bus.Owner
					}
					rows = append(rows, []any{p.ID, excerpt(p.Name), p.Account, p.Sender, p.Role})
				}
				for _, d := range denied {
					rows = append(rows, []any{"", excerpt(d.Name), d.Account, d.Sender,
						"denied on " + d.Since.Format(time.DateOnly)})
				}
				columns := []string{"PERSON", "NAME", "ACCOUNT", "ID", "ROLE"}
				err = table{columns, rows, "Nobody was approved yet, and nobody waits for it."}.print(cmd)
				if asJSON, _ := cmd.Flags().GetBool("json"); err != nil || asJSON {
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
			})
		},
	})
}

func peopleApproveCommand(load app.Loader) *cobra.Command {
	var p gate.Person
	return change(load, "approve CODE",
		"Approve the stranger with this pairing code; the first person becomes the owner",
		func(tx *store.Tx, args []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			var chat bus.Address
			p, chat, err = gate.People{}.Approve(tx, args[0], app.NamesOwner(cfg), time.Now())
			if err == nil {
				err = audit.Add(tx, app.LetIn(audit.Entry{By: audit.CommandLine}, p), time.Now())
			}
			if err != nil {
				return err
			}
			return bus.NewOutbox().Put(tx, app.Welcome(chat), time.Now())
		},
		func([]string) string {
			return fmt.Sprintf("%s can now talk to the agent (role: %s).", display.OneLine(p.Name), p.Role)
		})
}

func peopleDenyCommand(load app.Loader) *cobra.Command {
	return change(load, "deny CODE", "Turn away the stranger with this pairing code, for good",
		func(tx *store.Tx, args []string) error {
			p, err := gate.People{}.Deny(tx, args[0], time.Now())
			if err != nil {
				return err
			}
			return note(tx, 0, "turned away", p.Account+"/"+p.Sender)
		},
		func(args []string) string {
			return "Code " + args[0] + " is no longer valid, and its owner gets no further one. " +
				"To undo this: gateway people undeny."
		})
}

func peopleUndenyCommand(load app.Loader) *cobra.Command {
	return change(load, "undeny ACCOUNT ID", "Let somebody who was turned away ask again",
		func(tx *store.Tx, args []string) error {
			if err := (gate.People{}).Undeny(tx, args[0], args[1]); err != nil {
				return err
			}
			return note(tx, 0, "may ask again", args[0]+"/"+args[1])
		},
		func(args []string) string { return args[1] + " may ask again on " + args[0] + "." })
}

func peopleRevokeCommand(load app.Loader) *cobra.Command {
	return change(load, "revoke PERSON", "Forget a person, who becomes a stranger again",
		func(tx *store.Tx, args []string) error {
			id, err := personNumber(args[0])
			if err != nil {
				return err
			}
			if err := (gate.People{}).Revoke(tx, id); err != nil {
				return err
			}
			return note(tx, id, "revoked", "person "+args[0])
		},
		func(args []string) string { return "Person " + args[0] + " is a stranger again." })
}

func peopleRoleCommand(load app.Loader) *cobra.Command {
	return change(load, "role PERSON ROLE", "Set the role of a person: owner, admin, user or guest",
		func(tx *store.Tx, args []string) error {
			id, err := personNumber(args[0])
			if err != nil {
				return err
			}
			role := bus.Role(args[1])
			if !role.Valid() {
				return app.BadUsage(fmt.Errorf("%q is not a role: want owner, admin, user or guest",
					args[1]))
			}
			if err := (gate.People{}).SetRole(tx, id, role); err != nil {
				return err
			}
			return note(tx, id, "role set to "+args[1], "person "+args[0])
		},
		func(args []string) string { return fmt.Sprintf("Person %s is %s now.", args[0], args[1]) })
}

func peopleLinkCommand(load app.Loader) *cobra.Command {
	return change(load, "link PERSON OTHER", "Merge two people who are the same human",
		func(tx *store.Tx, args []string) error {
			id, err := personNumber(args[0])
			if err != nil {
				return err
			}
			other, err := personNumber(args[1])
			if err != nil {
				return err
			}
			if err := (gate.People{}).Link(tx, id, other); err != nil {
				return err
			}
			if err := audit.Link(tx, id, other); err != nil {
				return err
			}
			return note(tx, id, "linked", "person "+args[1]+" with person "+args[0])
		},
		func(args []string) string {
			return fmt.Sprintf("Merged: person %[2]s is now part of person %[1]s. Their memories are "+
				"joined when the second one writes next. gateway people unlink takes an account out again, "+
				"but not its memories.", args[0], args[1])
		})
}

func peopleUnlinkCommand(load app.Loader) *cobra.Command {
	var p gate.Person
	return change(load, "unlink ACCOUNT ID",
		"Undo a link: the user of an account becomes a person of their own again",
		func(tx *store.Tx, args []string) (err error) {
			if p, err = (gate.People{}).Unlink(tx, args[0], args[1], time.Now()); err != nil {
				return err
			}
			return note(tx, p.ID, "unlinked", args[0]+"/"+args[1])
		},
		func([]string) string {
			return fmt.Sprintf("%s on %s is person %d now, a user. The memories of both stay with "+
				"the person whom they were linked to.", p.Sender, p.Account, p.ID)
		})
}

// change returns a command that changes people in a transaction and prints the result.
func change(
	load app.Loader, use, short string,
	do func(tx *store.Tx, args []string) error, done func(args []string) string,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(strings.Count(use, " ")),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := withData(cmd.Context(), load, func(db *store.DB) error {
				return db.Tx(cmd.Context(), func(tx *store.Tx) error { return do(tx, args) })
			})
			if errors.Is(err, gate.ErrNoPairing) || errors.Is(err, gate.ErrNobody) ||
				errors.Is(err, gate.ErrNotDenied) || errors.Is(err, gate.ErrNotLinked) {
				return fmt.Errorf("%w: see gateway people list", err)
			}
			if err != nil {
				return err
			}
			cmd.Println(done(args))
			return nil
		},
	}
}

// note adds an audit entry of the command line. whom is the person concerned, or 0.
func note(tx *store.Tx, whom int64, action, about string) error {
	return audit.Add(tx, audit.Entry{By: audit.CommandLine, Action: action, About: about, Whom: whom},
		time.Now())
}

// personNumber parses the number of a person.
func personNumber(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, app.BadUsage(fmt.Errorf("%q is not a number: gateway people list shows the number of "+
			"each person", s))
	}
	return id, nil
}

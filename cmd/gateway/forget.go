package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gateway/agent"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/session"
	"gateway/store"
)

// forgetPerson makes somebody a stranger, if they are known, and their chats unknown.
func forgetPerson(tx *store.Tx, person int64, chats []bus.Address) error {
	err := gate.People{}.Revoke(tx, person)
	if err != nil && !errors.Is(err, gate.ErrNobody) {
		return err
	}
	return gate.Forget(tx, chats)
}

// keeper returns what keeps something of its own of the people on an account, or nil. An account
// that is disabled, or is not in the configuration any more, may have left a file.
func (g *gateway) keeper(cfg *config.Config, account string) agent.Keeper {
	if e, ok := g.channels[account].(channels.Eraser); ok {
		return e
	}
	path := whatsappStore(cfg, account)
	if _, err := os.Lstat(path); err != nil || g.channels[account] != nil {
		return nil
	}
	return whatsapp.New(account, path, &whatsapp.Options{Logger: g.log})
}

// memoryForgetCommand erases a scope beside a running gateway: it does what /forget does.
func memoryForgetCommand(load loader) *cobra.Command {
	sure := false
	cmd := &cobra.Command{
		Use:   "forget SCOPE",
		Short: "Erase what is known of a person or a group: conversations, files, memory, identity",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withMemory(cmd, load, args[0], func(r remembrance) error {
				if r.scope == "" {
					return usageError{fmt.Errorf("what is shared is nobody's; delete it in %s",
						sharedFolder(r.cfg))}
				}
				if err := wantKnown(cmd.Context(), r); err != nil {
					return err
				}
				if !sure {
					return usageError{fmt.Errorf("this erases all of %s and can't be taken back; "+
						"gateway memory export %s saves a copy, and --yes does it", r.scope, r.scope)}
				}
				d := agent.NewDispatcher(agent.Deps{DB: r.db, Inbox: bus.NewInbox(),
					Outbox: bus.NewOutbox(), Memory: r.memory},
					&agent.Options{Forget: forgetPerson, Known: isKnown})
				if err := d.Forget(cmd.Context(), r.scope); err != nil {
					return err
				}
				cmd.Printf("%s is forgotten. The gateway removes files, and what is left in the "+
					"database, now or when it is started next.\n", r.scope)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "do it")
	return cmd
}

// wantKnown refuses a scope of which there is nothing: no memory, no conversation and no person.
func wantKnown(ctx context.Context, r remembrance) error {
	nothing := r.want(ctx)
	if nothing == nil {
		return nil
	}
	q := r.db.Read(ctx)
	known, err := isKnown(q, r.scope.Person())
	if err != nil || known {
		return err
	}
	keys, err := session.Store{}.OfScope(q, r.scope)
	if err != nil || len(keys) > 0 {
		return err
	}
	return nothing
}

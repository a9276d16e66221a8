package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/session"
	"gateway/store"
)

// memoryForgetCommand erases a scope, like /forget. A gateway may be running.
func memoryForgetCommand(load app.Loader) *cobra.Command {
	sure := false
	cmd := &cobra.Command{
		Use:   "forget SCOPE",
		Short: "Erase what is known of a person or a group: conversations, files, memory, identity",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withMemory(cmd, load, args[0], func(r remembrance) error {
				if r.scope == "" {
					return app.BadUsage(fmt.Errorf("what is shared is nobody's; delete it in %s",
						app.SharedFolder(r.cfg)))
				}
				if err := wantKnown(cmd.Context(), r); err != nil {
					return err
				}
				owner, err := lastOwner(r.db.Read(cmd.Context()), r)
				if err != nil {
					return err
				}
				if !sure {
					return app.BadUsage(fmt.Errorf("this erases all of %s%s and can't be taken back; "+
						"gateway memory export %s saves a copy, and --yes does it", r.scope, owner, r.scope))
				}
				eraser := background.Eraser{DB: r.db, Inbox: bus.NewInbox(), Outbox: bus.NewOutbox(),
					Memory: r.memory, Ledger: budget.New(nil), People: app.People{}, Now: time.Now}
				if err := eraser.Forget(cmd.Context(), r.scope); err != nil {
					return err
				}
				cmd.Printf("%s is forgotten. The gateway removes files, and what is left in the "+
					"database, now or when it is started next.\n", r.scope)
				if owner != "" {
					cmd.Println("There is no owner now: whoever is approved next becomes the owner.")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "do it")
	return cmd
}

// lastOwner returns a warning if the person of a scope is the only owner, else "".
func lastOwner(q store.Queryer, r remembrance) (string, error) {
	list, err := gate.People{}.List(q)
	owns, others := false, app.NamesOwner(r.cfg)
	for _, p := range list {
		if p.Role == bus.Owner {
			owns, others = owns || p.ID == r.scope.Person(), others || p.ID != r.scope.Person()
		}
	}
	if err != nil || !owns || others {
		return "", err
	}
	return ", the only owner,", nil
}

// wantKnown returns an error if a scope has no memory, no conversation and no person.
func wantKnown(ctx context.Context, r remembrance) error {
	nothing := r.want(ctx)
	if nothing == nil {
		return nil
	}
	q := r.db.Read(ctx)
	known, err := app.People{}.Known(q, r.scope.Person())
	if err != nil || known {
		return err
	}
	keys, err := session.Store{}.OfScope(q, r.scope)
	if err != nil || len(keys) > 0 {
		return err
	}
	return nothing
}

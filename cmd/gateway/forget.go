package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"gateway/agent"
	"gateway/bus"
)

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
						r.cfg.Gateway.Workspace)}
				}
				if err := r.want(cmd.Context()); err != nil {
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

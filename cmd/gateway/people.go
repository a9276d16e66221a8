package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
)

func peopleCommand(load loader) *cobra.Command {
	return group("people", "Let people in", peopleListCommand(load), peopleApproveCommand(load))
}

func peopleListCommand(load loader) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List who is let in and who asks to be",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withData(cmd.Context(), load, func(db *store.DB) error {
				pending, err := channels.People{}.Pending(db.Read(cmd.Context()), time.Now())
				if err != nil {
					return err
				}
				known, err := channels.People{}.List(db.Read(cmd.Context()))
				if err != nil {
					return err
				}
				var rows [][]string
				for _, p := range pending {
					rows = append(rows, []string{oneLine(p.Name), p.Account, p.Sender,
						"asks, code " + p.Code})
				}
				for _, p := range known {
					rows = append(rows, []string{oneLine(p.Name), p.Account, p.Sender, string(p.Role)})
				}
				return table(cmd.OutOrStdout(), "Nobody was let in yet, and nobody asks to be.",
					[]string{"NAME", "ACCOUNT", "ID", "ROLE"}, rows)
			})
		},
	}
}

func peopleApproveCommand(load loader) *cobra.Command {
	return &cobra.Command{
		Use:   "approve CODE",
		Short: "Let in who was given this pairing code; the first one becomes the owner",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p channels.Person
			err := withData(cmd.Context(), load, func(db *store.DB) error {
				return db.Tx(cmd.Context(), func(tx *store.Tx) error {
					var chat bus.Address
					var err error
					p, chat, err = channels.People{}.Approve(tx, args[0], time.Now())
					if err != nil {
						return err
					}
					return bus.NewOutbox().Put(tx, bus.OutboundMessage{
						To: chat, Text: "You are let in. What can I do for you?"}, time.Now())
				})
			})
			if err != nil {
				return fmt.Errorf("%w: see gateway people list", err)
			}
			cmd.Printf("%s is let in as %s.\n", oneLine(p.Name), p.Role)
			return nil
		},
	}
}

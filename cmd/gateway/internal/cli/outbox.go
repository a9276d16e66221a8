package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

func outboxCommand(load app.Loader) *cobra.Command {
	return group("outbox", "Show and resend messages that could not be delivered",
		outboxListCommand(load), outboxShowCommand(load),
		outboxChangeCommand(load, "retry", "Try again to send messages that could not be delivered",
			"%d put back into the queue.", bus.NewOutbox().Retry),
		outboxChangeCommand(load, "drop", "Delete messages that wait or could not be delivered",
			"%d dropped.", gate.DropDelivery),
	)
}

func outboxListCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := dataCommand(load, "list",
		"List messages that wait to be sent or could not be delivered", cobra.NoArgs,
		func(cmd *cobra.Command, d data, _ []string) error {
			var rows [][]any
			for _, state := range []bus.DeliveryState{bus.Dead, bus.Sending, bus.Waiting} {
				list, err := bus.NewOutbox().List(d.q, state, limit)
				bad, ok := store.RowErrors(err)
				if !ok {
					return err
				}
				for _, row := range bad {
					cmd.PrintErrln(row) // the gateway will set the row aside
				}
				for _, d := range list {
					// The column before already shows the address, so it is cut from the
					// error.
					_, reason, found := strings.Cut(d.Error, d.Message.To.String()+": ")
					if !found {
						reason = d.Error
					}
					rows = append(rows, []any{d.ID, d.State, d.Message.To.String(), age(d.Created),
						d.Attempts, excerpt(textOf(d.Message)), reason})
				}
			}
			columns := []string{"ID", "STATE", "TO", "AGE", "TRIES", "TEXT", "ERROR"}
			return table{columns, rows, "No message waits, and all others were delivered."}.print(cmd)
		})
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of messages per state")
	return withJSONFlag(cmd)
}

func outboxShowCommand(load app.Loader) *cobra.Command {
	return withJSONFlag(dataCommand(load, "show ID",
		"Print a message with its state and its last error", cobra.ExactArgs(1),
		func(cmd *cobra.Command, d data, args []string) error {
			ids, err := parseIDs(args, false)
			if err != nil {
				return err
			}
			m, err := bus.FindDelivery(d.q, ids[0])
			if err == nil && m == nil {
				err = fmt.Errorf("there is no message %d: see gateway outbox list", ids[0])
			}
			if err != nil {
				return err
			}
			return printDelivery(cmd, m)
		}))
}

// printDelivery prints all details of a message.
func printDelivery(cmd *cobra.Command, d *bus.Delivery) error {
	if asJSON, err := cmd.Flags().GetBool("json"); err != nil || asJSON {
		return errors.Join(err, printJSON(cmd.OutOrStdout(), map[string]any{
			"id": d.ID, "state": d.State, "to": d.Message.To.String(), "created": d.Created.UTC(),
			"tries": d.Attempts, "parts": max(len(d.Parts), 1), "sent": d.IDs,
			"error": d.Error, "text": textOf(d.Message),
		}))
	}
	cmd.Printf("Message %d to %s: %s\n", d.ID, d.Message.To, d.State)
	cmd.Printf("Created: %s\nFailed tries: %d\nParts: %d, of which %d are sent\n",
		d.Created.Local().Format(time.DateTime), d.Attempts, max(len(d.Parts), 1), len(d.IDs))
	if d.Error != "" {
		cmd.Printf("Error: %s\n", display.Lines(d.Error))
	}
	for _, a := range d.Message.Attachments {
		cmd.Printf("File: %s\n", display.OneLine(a.Name))
	}
	if text := textOf(d.Message); text != "" {
		cmd.Printf("\n%s\n", display.Lines(text))
	}
	return nil
}

// textOf returns the text of m, or what m does instead of being sent.
func textOf(m bus.OutboundMessage) string {
	if m.Leave != nil {
		return "(leave " + m.Leave.Name + ")"
	}
	return m.Text
}

// outboxChangeCommand returns a command that changes the deliveries with the given ids, or all
// dead letters.
func outboxChangeCommand(load app.Loader, use, short, done string,
	change func(tx *store.Tx, id int64, now time.Time) (int64, error),
) *cobra.Command {
	var all bool
	cmd := dataCommand(load, use+" ID... | --all", short, nil,
		inTx(func(tx *store.Tx, _ data, args []string) (string, error) {
			ids, err := parseIDs(args, all)
			var changed int64
			for i := 0; i < len(ids) && err == nil; i++ {
				var n int64
				n, err = change(tx, ids[i], time.Now())
				changed += n
			}
			if err == nil && changed == 0 && !all {
				err = fmt.Errorf("no undelivered message %s: see gateway outbox list",
					strings.Join(args, ", "))
			}
			return fmt.Sprintf(done, changed), err
		}))
	cmd.Flags().BoolVar(&all, "all", false, "all messages that could not be delivered")
	return cmd
}

// parseIDs parses the ids on the command line. It returns 0 for all.
func parseIDs(args []string, all bool) ([]int64, error) {
	if all != (len(args) == 0) {
		return nil, app.NewUsageError(fmt.Errorf("name messages by their ID (see gateway outbox list), " +
			"or --all for all that could not be delivered"))
	}
	if all {
		return []int64{0}, nil
	}
	var ids []int64
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id <= 0 {
			return nil, app.NewUsageError(fmt.Errorf("%q is not an ID: see gateway outbox list", arg))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

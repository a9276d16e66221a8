package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/media"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
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

// outboxListCommand returns the command that lists messages by state. Rows that can't be read are
// reported beside the table, because the others are still of use.
func outboxListCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := dataCommand(load, "list",
		"List messages that wait to be sent or could not be delivered", cobra.NoArgs,
		func(cmd *cobra.Command, d data, _ []string) error {
			var rows [][]any
			// Dead letters come first, because they need a person.
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
	countVar(cmd.Flags(), &limit, "limit", 100, "maximum number of messages per state")
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
				err = app.UsageErrorf("there is no message %d: see gateway outbox list", ids[0])
			}
			if err != nil {
				return err
			}
			// A message without parts was not split yet: it will have at least one.
			parts, text := max(len(m.Parts), 1), textOf(m.Message)
			if wantsJSON(cmd) {
				return printJSON(cmd, map[string]any{
					"id": m.ID, "state": m.State, "to": m.Message.To.String(), "created": m.Created.UTC(),
					"tries": m.Attempts, "parts": parts, "sent": m.IDs, "error": m.Error, "text": text,
				})
			}
			cmd.Printf("Message %d to %s: %s\n", m.ID, m.Message.To, m.State)
			cmd.Printf("Created: %s\nFailed tries: %d\nParts: %d, of which %d are sent\n",
				m.Created.Local().Format(time.DateTime), m.Attempts, parts, len(m.IDs))
			if m.Error != "" {
				cmd.Printf("Error: %s\n", display.Lines(m.Error))
			}
			for _, a := range m.Message.Attachments {
				cmd.Printf("File: %s\n", display.OneLine(a.Name))
			}
			if text != "" {
				cmd.Printf("\n%s\n", display.Lines(text))
			}
			return nil
		}))
}

// textOf returns the text of m, or what m does instead of being sent.
func textOf(m bus.OutboundMessage) string {
	if m.Leave != nil {
		return "(leave " + m.Leave.Name + ")"
	}
	return m.Text
}

// outboxChangeCommand returns a command that changes the deliveries with the given ids, or all
// dead letters. change gets the id 0 for all dead letters, and returns how many deliveries it has
// changed. One transaction covers all ids: after an error nothing is changed.
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
			// That there is nothing to do is no error with --all.
			if err == nil && changed == 0 && !all {
				err = app.UsageErrorf("no undelivered message %s: see gateway outbox list",
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
		return nil, app.UsageErrorf("name messages by their ID (see gateway outbox list), or --all for " +
			"all that could not be delivered")
	}
	if all {
		return []int64{0}, nil
	}
	var ids []int64
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id <= 0 {
			return nil, app.UsageErrorf("%q is not an ID: see gateway outbox list", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// sendCommand returns the command that sends a message without a turn of the agent. It needs no
// running gateway, and the message waits until one runs.
func sendCommand(load app.Loader) *cobra.Command {
	var files []string
	var thread string
	cmd := withConfig(load, &cobra.Command{
		Use:   "send ACCOUNT CHAT TEXT",
		Short: "Put a message to a chat into the outbox; a running gateway delivers it",
		Long: `Put a message to a chat into the outbox, and print its number. If no gateway runs, the
next one delivers the message. TEXT is Markdown. With --file it may be empty.

CHAT is the platform's id of the chat, which gateway sessions list shows. On WhatsApp it may also be
a phone number such as +4915112345678.

gateway outbox list shows messages that could not be delivered.`,
		Args: cobra.ExactArgs(3),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		m := bus.OutboundMessage{Text: args[2],
			To: bus.Address{Account: args[0], Chat: args[1], Thread: thread}}
		if err := checkMessage(cfg, &m, files); err != nil {
			return app.NewUsageError(err)
		}
		// The files are copied before the message is stored, because the router may send it
		// immediately.
		var err error
		if m.Attachments, err = putFiles(cfg, m.To, files); err != nil {
			return err
		}
		return withData(cmd.Context(), cfg, func(d data) error {
			id, err := queue(cmd.Context(), d.db, m)
			if err != nil {
				return err
			}
			running, err := store.LeaseHeld(d.q, "dispatcher", time.Now())
			if err != nil {
				return err
			}
			when := "no gateway runs, so it is sent at the next start"
			if running {
				when = "the running gateway sends it now"
			}
			cmd.Printf("Queued as message %d; %s.\n", id, when)
			return nil
		})
	})
	cmd.Flags().StringArrayVar(&files, "file", nil, "file to send; may be given several times")
	cmd.Flags().StringVar(&thread, "thread", "", "topic or thread in the chat")
	return cmd
}

// queue adds a message to the outbox and returns its number.
func queue(ctx context.Context, db *store.DB, m bus.OutboundMessage) (id int64, err error) {
	err = db.Tx(ctx, func(tx *store.Tx) error {
		id, err = bus.NewOutbox().Add(tx, m, time.Now())
		return err
	})
	return id, err
}

// checkMessage returns an error if no message with these files can be sent. It replaces the chat in
// m.To by the address that the platform uses, such as that of a phone number.
func checkMessage(cfg *config.Config, m *bus.OutboundMessage, files []string) error {
	c, ok := cfg.Channels[m.To.Account]
	if !ok {
		return fmt.Errorf("there is no account %q: see gateway channels", m.To.Account)
	}
	// The message would wait until somebody switches the account on.
	if !c.Enabled {
		return fmt.Errorf("the account %q is switched off: set enabled = true in [channels.%[1]s] and "+
			"restart the gateway", m.To.Account)
	}
	if m.To.Chat == "" {
		return errors.New("want a chat: see gateway sessions list")
	}
	if m.Text == "" && len(files) == 0 {
		return errors.New("want a text or a file")
	}
	if !cfg.CanBeChat(m.To.Account, m.To.Chat) {
		return fmt.Errorf("%s names its chats by numbers, and %q is not one: gateway sessions list has "+
			"the chats of everybody who wrote", m.To.Account, m.To.Chat)
	}
	ch := app.NewChannel(cfg, m.To.Account, slog.New(slog.DiscardHandler))
	if a, ok := ch.(channels.Addresser); ok {
		chat, err := a.Address(m.To.Chat)
		if err != nil {
			return err
		}
		m.To.Chat = chat
	}
	return nil
}

// putFiles copies files to the media folder, where the router finds them.
func putFiles(cfg *config.Config, to bus.Address, files []string) ([]bus.Attachment, error) {
	if len(files) == 0 {
		return nil, nil
	}
	if err := checkOwner(cfg); err != nil {
		return nil, err
	}
	root, err := app.OpenMedia(cfg)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	media := media.New(root, nil, app.MediaOptions(cfg, nil))
	var list []bus.Attachment
	for _, name := range files {
		a, err := putFile(media, to, name)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

func putFile(media *media.Store, to bus.Address, name string) (bus.Attachment, error) {
	f, err := os.Open(name)
	if err != nil {
		return bus.Attachment{}, err
	}
	defer f.Close()
	// Reading from a pipe or a device might never end.
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return bus.Attachment{}, errors.Join(fmt.Errorf("%s is not a regular file", name), err)
	}
	return media.Put(to, filepath.Base(name), f)
}

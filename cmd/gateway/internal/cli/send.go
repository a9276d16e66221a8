package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/media"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

func sendCommand(load app.Loader) *cobra.Command {
	var files []string
	var thread string
	cmd := &cobra.Command{
		Use:   "send ACCOUNT CHAT TEXT",
		Short: "Put a message to a chat into the outbox; a running gateway delivers it",
		Long: "send puts a message to a chat into the outbox and returns its number. A running\n" +
			"gateway delivers it, or the next one that runs. TEXT is Markdown; it may be empty\n" +
			"with --file.\n\n" +
			"CHAT is the platform's id of the chat, which gateway sessions list shows. On WhatsApp\n" +
			"it may also be a phone number such as +4915112345678.\n\n" +
			"gateway outbox list shows what could not be delivered.",
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			m := bus.OutboundMessage{Text: args[2],
				To: bus.Address{Account: args[0], Chat: args[1], Thread: thread}}
			if err := checkMessage(cfg, &m, files); err != nil {
				return app.NewUsageError(err)
			}
			if m.Attachments, err = putFiles(cfg, m.To, files); err != nil {
				return err
			}
			return withData(cmd.Context(), load, func(d data) error {
				var id int64
				err := d.db.Tx(cmd.Context(), func(tx *store.Tx) (err error) {
					id, err = bus.NewOutbox().Add(tx, m, time.Now())
					return err
				})
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
		},
	}
	cmd.Flags().StringArrayVar(&files, "file", nil, "file to send; may be given several times")
	cmd.Flags().StringVar(&thread, "thread", "", "topic or thread in the chat")
	return cmd
}

func checkMessage(cfg *config.Config, m *bus.OutboundMessage, files []string) error {
	if _, ok := cfg.Channels[m.To.Account]; !ok {
		return fmt.Errorf("there is no account %q: see gateway channels", m.To.Account)
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
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return bus.Attachment{}, errors.Join(fmt.Errorf("%s is not a regular file", name), err)
	}
	return media.Put(to, filepath.Base(name), f)
}

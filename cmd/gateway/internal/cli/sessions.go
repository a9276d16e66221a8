package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/llm"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/session"
	"gateway/store"
)

func sessionsCommand(load app.Loader) *cobra.Command {
	return group("sessions", "Look at conversations, and move them",
		sessionsListCommand(load), sessionsShowCommand(load), sessionsExportCommand(load),
		sessionsImportCommand(load))
}

func sessionsListCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the conversations, the one that was used last first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withData(cmd.Context(), load, func(db *store.DB) error {
				list, err := session.Store{}.List(db.Read(cmd.Context()), limit)
				if err != nil {
					return err
				}
				var rows [][]any
				for _, s := range list {
					rows = append(rows, []any{s.Key, excerpt(s.Title), s.Messages, s.Usage.Input,
						s.Usage.Output, age(s.Updated)})
				}
				columns := []string{"SESSION", "TITLE", "MESSAGES", "TOKENS IN", "OUT", "USED"}
				return table{columns, rows, "There are no conversations yet."}.print(cmd)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most conversations")
	return listing(cmd)
}

// maxShown is the maximum size of a shown transcript in bytes.
const maxShown = 16 << 20

func sessionsShowCommand(load app.Loader) *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Print the transcript of a conversation",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withData(cmd.Context(), load, func(db *store.DB) error {
				key, _, err := session.Store{}.Named(db.Read(cmd.Context()), args[0])
				if err != nil {
					return err
				}
				t, err := session.Store{}.Transcript(db.Read(cmd.Context()), key, maxShown)
				if err != nil {
					return err
				}
				if len(t.Entries) == 0 {
					return noConversation(args[0])
				}
				for _, e := range t.Entries {
					printEntry(cmd, e)
				}
				return nil
			})
		},
	}
}

// noConversation returns the error for an unknown session name.
func noConversation(name string) error {
	return app.BadUsage(fmt.Errorf("there is no conversation %q; see gateway sessions list", name))
}

func printEntry(cmd *cobra.Command, e session.Entry) {
	cmd.Printf("%s  %s\n", e.Time.Format(time.DateTime), e.Message.Role)
	if e.Message.Text != "" {
		cmd.Println(display.Lines(e.Message.Text))
	}
	for _, c := range e.Message.ToolCalls {
		cmd.Println("calls", display.Lines(c.Name), display.Lines(c.Arguments))
	}
	if e.Message.Role == llm.Assistant || e.Message.Role == llm.User {
		cmd.Println()
	}
}

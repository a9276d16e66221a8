package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/llm"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/session"
)

func sessionsCommand(load app.Loader) *cobra.Command {
	return group("sessions", "Show, export and import conversations",
		sessionsListCommand(load), sessionsShowCommand(load), sessionsExportCommand(load),
		sessionsImportCommand(load))
}

func sessionsListCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := dataCommand(load, "list",
		"List the conversations, the most recently used first", cobra.NoArgs,
		func(cmd *cobra.Command, d data, _ []string) error {
			list, err := session.List(d.q, limit)
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
	cmd.Flags().IntVar(&limit, "limit", 50, "maximum number of conversations")
	return withJSONFlag(cmd)
}

// maxShown is the maximum size of a shown transcript in bytes.
const maxShown = 16 << 20

func sessionsShowCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "show SESSION",
		"Print the transcript of a conversation", cobra.ExactArgs(1),
		func(cmd *cobra.Command, d data, args []string) error {
			key, _, err := session.Named(d.q, args[0])
			if err != nil {
				return err
			}
			t, err := session.ReadTranscript(d.q, key, maxShown)
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
}

// noConversation returns the error for an unknown session name.
func noConversation(name string) error {
	return app.NewUsageError(fmt.Errorf("there is no conversation %q; see gateway sessions list",
		name))
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

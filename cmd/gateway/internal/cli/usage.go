package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/audit"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/policy"
	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

func usageCommand(load app.Loader) *cobra.Command {
	var by string
	var days int
	cmd := dataCommand(load, "usage", "Show the tokens and dollars that language models have used",
		cobra.NoArgs, func(cmd *cobra.Command, d data, _ []string) error {
			if !slices.Contains([]string{"day", "model", "person", "session"}, by) {
				return app.NewUsageError(fmt.Errorf("--by: want day, model, person or session, not %q", by))
			}
			since := time.Now().In(d.cfg.Gateway.Location).AddDate(0, 0, 1-days).Format(time.DateOnly)
			list, err := budget.Lines(d.q, by, since, maxUsageLines)
			if err != nil {
				return err
			}
			columns := []string{"DAY", "WHAT", "CALLS", "TOKENS IN", "CACHED", "OUT", "COST"}
			return table{columns, usageRows(list), "No model was used in this time."}.print(cmd)
		})
	cmd.Flags().StringVar(&by, "by", "day", "sum up by day, model, person or session")
	cmd.Flags().IntVar(&days, "days", 30, "days to look back, today included")
	return withJSONFlag(cmd)
}

// maxUsageLines is the maximum number of shown lines.
const maxUsageLines = 1000

func usageRows(list []budget.Line) (rows [][]any) {
	for _, l := range list {
		what := l.Key
		if l.Kind == "day" {
			what = "everything"
		}
		rows = append(rows, []any{l.Day, excerpt(what), l.Calls, l.Usage.Input, l.Usage.Cached,
			l.Usage.Output, dollars(l.Cost)})
	}
	return rows
}

func auditCommand(load app.Loader) *cobra.Command {
	var page int
	cmd := dataCommand(load, "audit",
		"Show the audit log: approvals, access, halts and changed rules, the newest first", cobra.NoArgs,
		func(cmd *cobra.Command, d data, _ []string) error {
			if page < 1 {
				return app.NewUsageError(fmt.Errorf("--page: want 1 or more, not %d", page))
			}
			list, err := audit.List(d.q, auditLines, (page-1)*auditLines)
			if err != nil {
				return err
			}
			var rows [][]any
			for _, e := range list {
				where := ""
				if e.Where.Chat != "" {
					where = command.ChatName(e.Where)
				}
				rows = append(rows, []any{timestamp(e.Time), e.Action, excerpt(e.About),
					excerpt(e.Author()), where})
			}
			columns := []string{"TIME", "WHAT", "ABOUT", "BY", "WHERE"}
			return table{columns, rows, "There are no decisions on this page."}.print(cmd)
		})
	cmd.Flags().IntVar(&page, "page", 1, "which page to show, of 50 lines each")
	return withJSONFlag(cmd)
}

// auditLines is the number of lines on a page of the audit log.
const auditLines = 50

func haltCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "halt",
		"Emergency stop: pause everything until gateway resume", cobra.NoArgs,
		inTx(func(tx *store.Tx, _ data, _ []string) (string, error) {
			if ok, err := policy.SetHalt(tx, "the command line", time.Now()); err != nil || !ok {
				return "Everything is halted already.", err
			}
			return "Stopped everywhere. Nothing runs until gateway resume.", addAudit(tx, 0, "halted", "")
		}))
}

func resumeCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "resume", "Continue after gateway halt or /halt", cobra.NoArgs,
		inTx(func(tx *store.Tx, _ data, _ []string) (string, error) {
			if ok, err := policy.ClearHalt(tx); err != nil || !ok {
				return "Nothing is halted.", err
			}
			return "The gateway continues.", addAudit(tx, 0, "resumed", "")
		}))
}

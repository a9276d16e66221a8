package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/budget"
	"gateway/agent/policy"
	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

func usageCommand(load app.Loader) *cobra.Command {
	var by string
	var days int
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what language models were used for, in tokens and dollars",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			switch by {
			case "day", "model", "person", "session":
			default:
				return app.BadUsage(fmt.Errorf("--by: want day, model, person or session, not %q", by))
			}
			since := time.Now().In(cfg.Gateway.Location).AddDate(0, 0, 1-days).Format(time.DateOnly)
			return withData(cmd.Context(), load, func(db *store.DB) error {
				list, err := budget.Lines(db.Read(cmd.Context()), by, since, maxUsageLines)
				if err != nil {
					return err
				}
				columns := []string{"DAY", "WHAT", "CALLS", "TOKENS IN", "CACHED", "OUT", "COST"}
				return table{columns, usageRows(list), "No model was used in this time."}.print(cmd)
			})
		},
	}
	cmd.Flags().StringVar(&by, "by", "day", "sum up by day, model, person or session")
	cmd.Flags().IntVar(&days, "days", 30, "days to look back, today included")
	return listing(cmd)
}

// maxUsageLines is how many lines are shown.
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

func haltCommand(load app.Loader) *cobra.Command {
	return switchCommand(load, "halt", "Emergency stop: pause everything until gateway resume",
		func(tx *store.Tx) (string, error) {
			if ok, err := policy.SetHalt(tx, "the command line", time.Now()); err != nil || !ok {
				return "Everything is halted already.", err
			}
			return "Stopped everywhere. Nothing runs until gateway resume.", nil
		})
}

func resumeCommand(load app.Loader) *cobra.Command {
	return switchCommand(load, "resume", "Continue after gateway halt or /halt",
		func(tx *store.Tx) (string, error) {
			if ok, err := policy.ClearHalt(tx); err != nil || !ok {
				return "Nothing is halted.", err
			}
			return "The gateway goes on.", nil
		})
}

func switchCommand(
	load app.Loader, use, short string, turn func(tx *store.Tx) (string, error),
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withData(cmd.Context(), load, func(db *store.DB) error {
				var say string
				err := db.Tx(cmd.Context(), func(tx *store.Tx) (err error) {
					say, err = turn(tx)
					return err
				})
				if err == nil {
					cmd.Println(say)
				}
				return err
			})
		},
	}
}

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels/supervisor"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/store"
)

func channelsCommand(found app.Loader) *cobra.Command {
	return withJSONFlag(&cobra.Command{
		Use:   "channels",
		Short: "Show the state of each channel, its pending and failed messages, and what to do",
		Long: "channels shows the accounts of the gateway that runs in this home, or, if none\n" +
			"answers, those that the settings of this shell name.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := found()
			if err != nil {
				return err
			}
			r, trouble := findRunning(cmd.Context(), cfg.Gateway.Home)
			if r == nil && cfg.Mistakes() != nil {
				return app.NewUsageError(cfg.Mistakes())
			}
			cmd.PrintErrln(aboutSettings(r, trouble, cfg.Gateway.Home))
			if r != nil {
				cfg = r.settings
			}
			return withData(cmd.Context(), fixed(cfg), func(d data) error {
				rows, err := ChannelRows(cfg, d.q)
				if err != nil {
					return err
				}
				return printChannels(cmd, rows)
			})
		},
	})
}

// printChannels prints a table of the accounts. For people it also prints what to do.
func printChannels(cmd *cobra.Command, rows [][]any) error {
	asJSON, err := cmd.Flags().GetBool("json")
	if err != nil {
		return err
	}
	var advice []string
	for _, row := range rows {
		state := fmt.Sprint(row[len(row)-1])
		if short, remedy, ok := strings.Cut(state, ". "); ok && !asJSON {
			row[len(row)-1] = short
			advice = append(advice, fmt.Sprintf("%s: %s", row[0], display.Lines(remedy)))
		}
	}
	columns := []string{"ACCOUNT", "TYPE", "LAST MESSAGE", "TO SEND", "GIVEN UP", "SINCE", "STATE"}
	err = table{columns, rows, "No channel is configured."}.print(cmd)
	if err == nil && advice != nil {
		cmd.Println("\nWhat to do:\n" + strings.Join(advice, "\n"))
	}
	return err
}

// ChannelRows returns one row per account.
func ChannelRows(cfg *config.Config, q store.Queryer) ([][]any, error) {
	states, err := supervisor.States(q)
	if err != nil {
		return nil, err
	}
	open, err := bus.OpenByAccount(q)
	if err != nil {
		return nil, err
	}
	dead, err := bus.DeadByAccount(q)
	if err != nil {
		return nil, err
	}
	running, err := store.LeaseHeld(q, "dispatcher", time.Now())
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, name := range slices.Sorted(maps.Keys(cfg.Channels)) {
		c := cfg.Channels[name]
		s, known := states[name]
		state, since := s.State, any(age(s.Since))
		switch {
		case !c.Enabled:
			state, since = "disabled in the configuration", ""
		case !running:
			state, since = "the gateway is not running: start it with gateway", ""
		case !known:
			state, since = "starting; if it stays so, restart the gateway: its configuration has changed", ""
		}
		rows = append(rows, []any{name, c.Type, event(s.Event), open[name], dead[name],
			since, state})
		delete(open, name)
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		rows = append(rows, []any{name, "?", event{}, open[name], dead[name], "",
			"not in the configuration: add it again, or see gateway outbox drop"})
	}
	return rows, nil
}

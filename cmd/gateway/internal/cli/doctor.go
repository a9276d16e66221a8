package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
)

func doctorCommand(found, all app.Loader) *cobra.Command {
	var offline, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems of the gateway, and say how to solve them",
		Long: `Find problems of the gateway, and say how to solve them: configuration,
data, disk, clock, channels, models, sandbox, programs, and the state of a running gateway. Nothing
is changed. The doctor tests the credentials of channels and models; that sends no message and
costs nothing.

If a gateway runs in this home, it examines itself, with its own settings and credentials.
Otherwise the settings of this shell are examined.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := examine(cmd.Context(), found, all, offline)
			if err != nil {
				return err
			}
			return printFindings(cmd, list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "use no network: leave channels and models out")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// examine asks the running gateway to examine itself. If none answers, it examines a gateway with
// the settings of this shell. The first finding says which settings were used.
func examine(
	ctx context.Context, found, all app.Loader, offline bool,
) (list []doctor.Finding, err error) {
	about := doctor.Finding{ID: "settings", What: "Settings", State: doctor.Note}
	cfg, mistake := found()
	if mistake == nil {
		r, trouble := findRunning(ctx, cfg.Gateway.Home)
		about.Text = aboutSettings(r, trouble, cfg.Gateway.Home)
		if r != nil {
			err := r.ask(ctx, http.MethodGet, fmt.Sprintf("%s?offline=%t", app.DoctorPath, offline),
				doctorTime, &list)
			return append([]doctor.Finding{about}, list...), err
		}
	}
	if cfg, err = all(); err != nil {
		list = []doctor.Finding{{ID: "config", What: "Configuration", State: doctor.Bad,
			Text: err.Error(), Remedy: "Correct what is named, and look again with " +
				"gateway config check."}}
	} else {
		list = app.Examine(ctx, cfg, offline)
	}
	if about.Text != "" {
		list = append([]doctor.Finding{about}, list...)
	}
	return list, nil
}

func printFindings(cmd *cobra.Command, list []doctor.Finding, asJSON bool) error {
	failed := doctor.CountBad(list)
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), list); err != nil {
			return err
		}
	} else {
		if list[0].ID == "settings" {
			cmd.Println(display.Lines(list[0].Text))
			list = list[1:]
		}
		for _, f := range list {
			if f.State == doctor.Bad {
				cmd.Printf("✗ %s: %s\n    %s\n", f.What, display.Lines(f.Text), display.Lines(f.Remedy))
			}
		}
		for _, f := range list {
			if f.State != doctor.Bad {
				cmd.Printf("%s: %s\n", f.What, display.Lines(f.Text))
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s found, %d checks passed", plural(failed, "problem"), len(list)-failed)
	}
	if !asJSON {
		cmd.Println("All is well.")
	}
	return nil
}

// plural returns a number with a noun in the singular or plural.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// printJSON prints v as indented JSON.
func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/tools/shell/sandbox"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
)

func doctorCommand(load app.Loader) *cobra.Command {
	var offline, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps the gateway from working, and say what to do",
		Long: `Look for what keeps the gateway from working, and say what to do: configuration,
data, disk, clock, channels, models, sandbox, programs, and how a gateway that runs is. Nothing
is changed. Channels and models are asked whether they take the credentials; that sends no
message and costs nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []doctor.Finding
			cfg, err := load()
			if err != nil {
				list = []doctor.Finding{{ID: "config", What: "Configuration", State: doctor.Bad,
					Text: err.Error(), Remedy: "Correct what is named, and look again with " +
						"gateway config check."}}
			} else {
				c := caseOf(cmd, cfg)
				c.Offline = offline
				list = doctor.Examine(cmd.Context(), c)
			}
			return printFindings(cmd, list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "use no network: leave channels and models out")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// caseOf returns what the doctor and the audit look at.
func caseOf(cmd *cobra.Command, cfg *config.Config) doctor.Case {
	file := cmd.Flag("config").Value.String()
	if file == "" {
		file = config.DefaultPath(os.Environ())
	}
	return doctor.Case{
		Config: cfg, File: file, Migrations: app.Migrations(),
		Sandbox: func(ctx context.Context) (*sandbox.Sandbox, error) {
			return app.FindSandbox(ctx, cfg.Exec.Sandbox)
		},
		LastBackup: func() (time.Time, error) { return backup.Last(cfg.Gateway.Home) },
		WhatsApp:   func(account string) string { return app.WhatsAppStore(cfg, account) },
	}
}

func printFindings(cmd *cobra.Command, list []doctor.Finding, asJSON bool) error {
	sick := doctor.Sick(list)
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), list); err != nil {
			return err
		}
	} else {
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
	if sick > 0 {
		return fmt.Errorf("%s found, %d checks passed", plural(sick, "problem"), len(list)-sick)
	}
	if !asJSON {
		cmd.Println("All is well.")
	}
	return nil
}

// plural returns a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// printJSON prints v for programs and people.
func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

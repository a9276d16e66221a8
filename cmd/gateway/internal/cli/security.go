package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
	"gateway/skills"
)

func securityCommand(load app.Loader) *cobra.Command {
	var fix, asJSON, list bool
	cmd := &cobra.Command{
		Use:   "security",
		Short: "Look for what makes the gateway unsafe, and say what to do",
		Long: `Look for what makes the gateway unsafe, and say what to do. Each rule has an id that
never changes. --fix corrects the modes of files and nothing else. The command fails if
any problem that is high is left.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return printRules(cmd, asJSON)
			}
			cfg, err := load()
			if err != nil {
				return err
			}
			problems, err := doctor.Audit(cmd.Context(), suspectOf(cmd, cfg))
			if err != nil {
				return app.InHome(cfg.Gateway.Home, err)
			}
			var failed error
			if fix {
				failed = doctor.Fix(problems)
			}
			if err := printProblems(cmd, problems, asJSON); err != nil {
				return err
			}
			if failed != nil {
				return failed
			}
			if n := doctor.Left(problems, doctor.High); n > 0 {
				return fmt.Errorf("%s, %d others", plural(n, "serious problem"), len(problems)-n)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "correct the modes of files")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&list, "list", false, "print all rules, and look at nothing")
	return cmd
}

func suspectOf(cmd *cobra.Command, cfg *config.Config) doctor.Suspect {
	return doctor.Suspect{
		Case: caseOf(cmd, cfg), Root: os.Geteuid() == 0 && !inContainer(),
		Skills: func(ctx context.Context) (list []skills.Review, err error) {
			shared, err := app.SharedIfThere(cfg)
			if shared == nil {
				return nil, err
			}
			defer shared.Close()
			library := app.NewSkills(cfg, shared, nil, slog.New(slog.DiscardHandler))
			return skills.NewPins(app.PinsFile(cfg), nil).Review(ctx, library)
		},
	}
}

// inContainer reports whether this process seems to run in a container.
func inContainer() bool {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("container") != ""
}

func printRules(cmd *cobra.Command, asJSON bool) error {
	rules := doctor.Rules()
	if asJSON {
		return printJSON(cmd.OutOrStdout(), rules)
	}
	var rows [][]any
	for _, r := range rules {
		fix := ""
		if r.Fixable {
			fix = "--fix"
		}
		rows = append(rows, []any{r.ID, r.Severity, r.Title, fix})
	}
	return table{columns: []string{"ID", "SEVERITY", "RULE", "CORRECTED BY"}, rows: rows}.print(cmd)
}

func printProblems(cmd *cobra.Command, problems []doctor.Problem, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), append([]doctor.Problem{}, problems...))
	}
	for _, p := range problems {
		cmd.Printf("%s %s: %s: %s\n", p.ID, p.Severity, p.Title, display.Lines(p.Text))
		if p.Fixed != "" {
			cmd.Printf("    Corrected: %s\n", display.Lines(p.Fixed))
			continue
		}
		cmd.Printf("    %s\n    %s\n", p.Meaning, p.Remedy)
	}
	if len(problems) == 0 {
		cmd.Println("Nothing unsafe was found.")
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
)

func securityCommand(found, all app.Loader) *cobra.Command {
	var fix, asJSON, list bool
	cmd := &cobra.Command{
		Use:   "security",
		Short: "Find security problems, and say how to solve them",
		Long: `Find security problems, and say how to solve them. Each rule has an id that never
changes. --fix corrects the modes of files and nothing else. The command fails if a problem with
severity high is left.

If a gateway runs in this home, it checks itself and its own settings. Otherwise the settings of
this shell are checked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return printRules(cmd, asJSON)
			}
			done, err := inspect(cmd, found, all, fix)
			if err != nil {
				return err
			}
			if err := printProblems(cmd, done.Problems, asJSON); err != nil {
				return err
			}
			if done.Failed != "" {
				return errors.New(done.Failed)
			}
			if n := doctor.CountUnfixed(done.Problems, doctor.High); n > 0 {
				return fmt.Errorf("%s, %d others", plural(n, "serious problem"), len(done.Problems)-n)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "correct the modes of files")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&list, "list", false, "print all rules without checking anything")
	return cmd
}

// inspect asks the running gateway to audit itself. If none answers, it audits a gateway with the
// settings of this shell. It prints which settings were used.
func inspect(cmd *cobra.Command, found, all app.Loader, fix bool) (done app.Correction, err error) {
	if cfg, mistake := found(); mistake == nil {
		r, trouble := findRunning(cmd.Context(), cfg.Gateway.Home)
		cmd.PrintErrln(aboutSettings(r, trouble, cfg.Gateway.Home))
		if r != nil {
			method := http.MethodGet
			if fix {
				method = http.MethodPost
			}
			err := r.ask(cmd.Context(), method, app.SecurityPath, doctorTime, &done)
			return done, err
		}
	}
	cfg, err := all()
	if err != nil {
		return done, err
	}
	if done.Problems, err = app.Audit(cmd.Context(), cfg); err != nil {
		return done, app.NewHomeError(cfg.Gateway.Home, err)
	}
	if fix {
		if err := doctor.Fix(done.Problems); err != nil {
			done.Failed = err.Error()
		}
	}
	return done, nil
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

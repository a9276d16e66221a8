package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
	"gateway/cmd/gateway/internal/ops"
)

// doctorCommand returns the command that looks for problems. found finds the running gateway also
// with mistakes in the configuration. all has the credentials for an examination by this process.
func doctorCommand(found, all app.Loader) *cobra.Command {
	var offline bool
	cmd := withJSONFlag(&cobra.Command{
		Use:   "doctor",
		Short: "Find problems of the gateway, and say how to solve them",
		Long: `Find problems of the gateway, and say how to solve them. The command examines the
configuration, data, disk, clock, channels, models, sandbox, programs, and a running gateway. It
changes nothing. It tests the credentials of channels and models; that sends no message and costs
nothing.

If a gateway runs in this home, it examines itself, with its own settings and credentials.
Otherwise the command examines the settings of this shell.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := examine(cmd.Context(), found, all, offline)
			if err != nil {
				return err
			}
			return printFindings(cmd, list)
		},
	})
	cmd.Flags().BoolVar(&offline, "offline", false, "use no network: leave channels and models out")
	return cmd
}

// examine asks the running gateway to examine itself. If none answers, it examines a gateway with
// the settings of this shell. The first finding says which settings were used.
func examine(
	ctx context.Context, found, all app.Loader, offline bool,
) (list []doctor.Finding, err error) {
	r, about := lookForRunning(ctx, found)
	if r != nil {
		// Only the running process has the credentials to test, see [running].
		err = r.ask(ctx, http.MethodGet, fmt.Sprintf("%s?offline=%t", app.DoctorPath, offline),
			doctorTime, &list)
	} else if cfg, mistake := all(); mistake != nil {
		list = []doctor.Finding{{ID: "config", What: "Configuration", State: doctor.Bad,
			Text: mistake.Error(), Remedy: "Correct what is named, and look again with " +
				"gateway config check."}}
	} else {
		list = app.Examine(ctx, cfg, offline)
	}
	if about != "" {
		list = slices.Insert(list, 0,
			doctor.Finding{ID: "settings", What: "Settings", State: doctor.Note, Text: about})
	}
	return list, err
}

// printFindings prints the findings, first the problems with their remedies. It returns an error if
// there are problems, so that scripts can use the exit code.
func printFindings(cmd *cobra.Command, list []doctor.Finding) error {
	failed := doctor.CountBad(list)
	all := list
	// The first finding may say where the settings are from. It is no check.
	if list[0].ID == "settings" {
		list = list[1:]
	}
	if wantsJSON(cmd) {
		if err := printJSON(cmd, all); err != nil {
			return err
		}
	} else {
		if len(all) > len(list) {
			cmd.Println(display.Lines(all[0].Text))
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
		if failed == 0 {
			cmd.Println("All is well.")
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s found, %s passed", plural(failed, "problem"),
			plural(len(list)-failed, "check"))
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

// securityCommand returns the command that checks for unsafe conditions. Its loaders are those of
// doctorCommand.
func securityCommand(found, all app.Loader) *cobra.Command {
	var fix, list bool
	cmd := withJSONFlag(&cobra.Command{
		Use:   "security",
		Short: "Find security problems, and say how to solve them",
		Long: `Find security problems, and say how to solve them. Each rule has an id that never
changes. --fix corrects the modes of files and nothing else. The command fails if a problem with
severity high is left.

If a gateway runs in this home, it checks itself and its own settings. Otherwise the command checks
the settings of this shell.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return printRules(cmd)
			}
			done, err := inspect(cmd, found, all, fix)
			if err != nil {
				return err
			}
			if err := printProblems(cmd, done.Problems); err != nil {
				return err
			}
			// The problems are printed even if the audit or a correction has failed.
			if done.Failed != "" {
				return errors.New(done.Failed)
			}
			if n := doctor.CountUnfixed(done.Problems, doctor.High); n > 0 {
				return fmt.Errorf("%s, %d others", plural(n, "serious problem"), len(done.Problems)-n)
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&fix, "fix", false, "correct the modes of files")
	cmd.Flags().BoolVar(&list, "list", false, "print all rules without checking anything")
	return cmd
}

// inspect asks the running gateway to audit itself. If none answers, it audits a gateway with the
// settings of this shell. It prints which settings were used.
func inspect(cmd *cobra.Command, found, all app.Loader, fix bool) (done app.Correction, err error) {
	r, about := lookForRunning(cmd.Context(), found)
	if about != "" {
		cmd.PrintErrln(about)
	}
	if r != nil {
		// Only a POST may change anything.
		method := http.MethodGet
		if fix {
			method = http.MethodPost
		}
		err := r.ask(cmd.Context(), method, app.SecurityPath, doctorTime, &done)
		return done, err
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

func printRules(cmd *cobra.Command) error {
	rules := doctor.Rules()
	if wantsJSON(cmd) {
		return printJSON(cmd, rules)
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

// printProblems prints the problems of an audit. JSON has an empty list if there are none, never
// null.
func printProblems(cmd *cobra.Command, problems []doctor.Problem) error {
	if wantsJSON(cmd) {
		return printJSON(cmd, append([]doctor.Problem{}, problems...))
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

func healthCommand(load app.Loader) *cobra.Command {
	var ready bool
	cmd := withConfig(load, &cobra.Command{
		Use:   "health",
		Short: "Say whether the running gateway is alive, or ready",
		Long: `Ask the gateway that runs in this home, through its HTTP server, whether it is alive.
The command prints the problems. Its exit code is 0 if there are none: use it for the probes of
containers.`,
		Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, cfg *config.Config, _ []string) error {
		e, err := ops.ReadEndpoint(cfg.Gateway.Home)
		missing := errors.Is(err, fs.ErrNotExist)
		switch {
		case missing && cfg.HTTP.Listen == "":
			return errors.New("the gateway can't be asked: its server is switched off; set [http] listen")
		// ReadEndpoint returns only the address if a killed gateway has left the file behind.
		case missing && e.Address != "":
			return fmt.Errorf("no gateway answers at %s: it was killed or has crashed; see its log, or "+
				"start it", e.Address)
		case missing:
			return fmt.Errorf("no gateway runs in %s, or it can't listen on %s: see its log",
				cfg.Gateway.Home, cfg.HTTP.Listen)
		case err != nil:
			return app.NewHomeError(cfg.Gateway.Home, err)
		}
		path := "/healthz"
		if ready {
			path = "/readyz"
		}
		code, body, err := request(cmd.Context(), e, http.MethodGet, path, answerTime)
		switch {
		case err != nil:
			return fmt.Errorf("no gateway answers at %s: %w; see its log, or start it", e.Address, err)
		// The token is that of the gateway in this home. A program that refuses it is another one.
		case code == http.StatusUnauthorized:
			return fmt.Errorf("another program answers at %s, not the gateway in %s", e.Address,
				cfg.Gateway.Home)
		case ready:
			return printReport(body, cmd.OutOrStdout())
		case code != http.StatusOK:
			return fmt.Errorf("the gateway answers with code %d", code)
		}
		cmd.Println("The gateway is alive.")
		return nil
	})
	cmd.Flags().BoolVar(&ready, "ready", false, "also check whether all parts work")
	return cmd
}

// printReport prints the failed checks. It returns an error if there are any.
func printReport(body []byte, out io.Writer) error {
	var r ops.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the gateway's answer is not valid: %w", err)
	}
	var failed []string
	for _, c := range r.Checks {
		if !c.OK {
			failed = append(failed, c.Name)
			// As for channels, a second sentence in a state says what to do.
			state, remedy, _ := strings.Cut(c.State, ". ")
			fmt.Fprintf(out, "%s: %s (since %s)\n", c.Name, display.Lines(state),
				c.Since.Local().Format(time.TimeOnly))
			if remedy != "" {
				fmt.Fprintf(out, "    %s\n", display.Lines(remedy))
			}
		}
	}
	if !r.Ready {
		return fmt.Errorf("the gateway is not ready: see %s", strings.Join(failed, ", "))
	}
	fmt.Fprintln(out, "The gateway is ready.")
	return nil
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gateway/agent/suggest"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/doctor"
)

func configCommand(load app.Loader) *cobra.Command {
	return group("config", "Check and show the configuration", configCheck(load), configShow(load))
}

// configCheck returns the command that checks the configuration. A gateway runs it with
// --start-only before it restarts itself, so its exit code must stay 2 if no gateway can start.
func configCheck(load app.Loader) *cobra.Command {
	var startOnly bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration without starting anything",
		Long: `Print the mistakes that keep the gateway from starting, and settings that have no effect.
The exit code is 2 if there are mistakes, and 1 if there are only settings without effect.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			// load accepts missing secrets, but no gateway starts without them.
			if err == nil {
				err = cfg.Unresolved()
			}
			if err != nil {
				return app.NewUsageError(err)
			}
			e := cfg.Explain()
			warnings, err := findWarnings(e)
			if err != nil {
				return err
			}
			if len(warnings) == 0 {
				cmd.Println("The configuration is correct.")
			}
			if e.Config.FileExists {
				cmd.Println("File:", e.Config.File)
			} else {
				cmd.Println("File: none, because there is no", e.Config.File)
			}
			if len(e.Variables) > 0 {
				cmd.Println("Variables:", strings.Join(e.Variables, ", "))
			}
			for _, name := range e.Ignored {
				cmd.Printf("%s sets nothing. A key is set by GATEWAY_SECTION__KEY, with two \"_\".\n",
					name)
			}
			warnOfReaders(cmd, e)
			if len(warnings) > 0 && !startOnly {
				return fmt.Errorf("a gateway starts with it, but these settings have no effect:\n%s",
					strings.Join(warnings, "\n"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&startOnly, "start-only", false,
		"exit with 0 if a gateway can start, even with other problems")
	return cmd
}

// findWarnings returns settings without effect: those that the configuration itself reveals, and
// names of skills that do not exist.
func findWarnings(e *config.Explanation) ([]string, error) {
	warnings := e.Warnings
	// The skills are read only if a name has to be looked up. Otherwise the check works without a
	// home.
	if len(e.Config.Skills.Disabled) == 0 {
		return warnings, nil
	}
	err := withSkills(e.Config, func(b skillData) error {
		list, err := b.all()
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		for _, name := range e.Config.Skills.Disabled {
			if !slices.Contains(names, name) {
				warnings = append(warnings, fmt.Sprintf("skills.disabled: there is no skill %q%s", name,
					suggest.Hint(name, names)))
			}
		}
		return err
	})
	return warnings, err
}

// warnOfReaders prints a warning if other users can read a file with credentials.
func warnOfReaders(cmd *cobra.Command, e *config.Explanation) {
	// A file without credentials may be readable for everybody.
	if _, open := doctor.Exposed(e.Config.File, e.Config.Gateway.Home); open && e.Literal {
		cmd.Printf("Others on this machine can read the credentials in %[1]s: chmod 600 %[1]s\n",
			e.Config.File)
	}
}

// configShow returns the command that prints the settings. They are those that a gateway would have
// with the file and the variables of this shell. A running gateway may have others.
func configShow(load app.Loader) *cobra.Command {
	var all bool
	cmd := withConfig(load, &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in effect, with the origin of each value",
		Long: `Print the settings of the file and the environment, and with --all also the defaults, as
TOML. A comment after each value says where it comes from. The command hides secrets.`,
		Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, cfg *config.Config, _ []string) error {
		e := cfg.Explain()
		if wantsJSON(cmd) {
			return printJSON(cmd, e.Tables)
		}
		cmd.Print(e.TOML(all))
		return nil
	})
	cmd.Flags().BoolVar(&all, "all", false, "also print values that are the default")
	cmd.Flags().Bool("json", false, "print JSON, with the defaults")
	return cmd
}

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
)

// An explain reads the configuration that the command line names, with the origin of each value.
type explain func() (*config.Explanation, error)

func configCommand(read explain) *cobra.Command {
	return group("config", "Look at the configuration", configCheck(read), configShow(read))
}

func configCheck(read explain) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say whether the configuration is right, without starting anything",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := read()
			if err == nil {
				err = e.Config.Unresolved()
			}
			if err != nil {
				return app.BadUsage(err)
			}
			cmd.Println("The configuration is right.")
			if e.Config.Found {
				cmd.Println("File:", e.Config.File)
			} else {
				cmd.Println("File: none, as there is no", e.Config.File)
			}
			if len(e.Variables) > 0 {
				cmd.Println("Variables:", strings.Join(e.Variables, ", "))
			}
			for _, name := range e.Ignored {
				cmd.Printf("%s sets nothing. A key is set by GATEWAY_SECTION__KEY, with two \"_\".\n", name)
			}
			return warnOfReaders(cmd, e)
		},
	}
}

// warnOfReaders says so if credentials are in a file that others on this machine can read.
func warnOfReaders(cmd *cobra.Command, e *config.Explanation) error {
	if !e.Literal {
		return nil
	}
	info, err := os.Stat(e.Config.File)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		cmd.Printf("Others on this machine can read the credentials in %[1]s: chmod 600 %[1]s\n",
			e.Config.File)
	}
	return nil
}

func configShow(read explain) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the configuration that holds, with the origin of each value",
		Long: "show prints what the defaults, the file and the environment make together, as a file " +
			"that\nmeans the same, with the origin of each value behind it. Credentials are left out.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := read()
			if err != nil {
				return app.BadUsage(err)
			}
			if !asJSON {
				cmd.Print(e.TOML(all))
				return nil
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(e.Tables)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "defaults, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with the defaults")
	return cmd
}

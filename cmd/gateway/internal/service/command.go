package service

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/config"
)

// Command returns the command "service". Load reads the configuration; file is the value of the
// flag --config.
func Command(load func() (*config.Config, error), file *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Keep the gateway running on this machine, with systemd or launchd",
	}
	var onlyPrint, personal bool
	install := &cobra.Command{
		Use:   "install",
		Short: "Start the gateway now and with this machine",
		Long: `Start the gateway now and with this machine, by systemd on Linux and by launchd on macOS.

The service belongs to you: it uses your gateway's home and runs as your user. Root on Linux
installs the service of the whole machine. This one is confined and runs as the user "gateway". Its
configuration is in /etc/gateway, where "gateway setup --service" writes it, and its data is in
/var/lib/gateway. Install again after you have moved the program.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := newSpec(load, *file, personal)
			if err != nil {
				return err
			}
			if onlyPrint {
				text, err := spec.Text()
				if err == nil {
					fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			}
			if err := (Runner{Out: cmd.OutOrStdout()}).Install(cmd.Context(), spec); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The gateway starts in %s. This shows its state:\n%s\n",
				spec.Home, spec.stateCommand())
			return nil
		},
	}
	install.Flags().BoolVar(&onlyPrint, "print", false,
		"print the service's file, and change nothing")
	cmd.PersistentFlags().BoolVar(&personal, "user", false,
		"for root: a service of your own instead of that of the whole machine")
	cmd.AddCommand(install, &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service and remove it; all data stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := newSpec(load, *file, personal)
			if err != nil {
				return err
			}
			return Runner{Out: cmd.OutOrStdout()}.Uninstall(cmd.Context(), spec)
		},
	})
	return cmd
}

// newSpec returns the service of this user, which runs this program. For root it is the service of
// the whole machine, unless personal is set.
func newSpec(load func() (*config.Config, error), file string, personal bool) (Spec, error) {
	cfg, err := load()
	if err != nil {
		return Spec{}, err
	}
	spec := Spec{
		System: runtime.GOOS, Root: os.Geteuid() == 0 && !personal, Home: cfg.Gateway.Home,
	}
	if spec.Root {
		spec.Home = MachineHome
	}
	if spec.User, err = os.UserHomeDir(); err != nil {
		return spec, err
	}
	if spec.Program, err = os.Executable(); err != nil {
		return spec, err
	}
	if file != "" {
		spec.Config, err = filepath.Abs(file)
	}
	return spec, err
}

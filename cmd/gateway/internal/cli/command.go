package cli

import (
	"os"

	"github.com/spf13/cobra"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
)

// NewCommand returns the command line of the gateway.
func NewCommand() *cobra.Command {
	var file string
	reading := func(read func(string, []string) (*config.Config, error)) app.Loader {
		return func() (*config.Config, error) {
			cfg, err := read(file, os.Environ())
			if err != nil {
				return nil, app.BadUsage(err)
			}
			return cfg, nil
		}
	}
	// Most commands need no credential, and the shell that they are called in may have none.
	load, all := reading(config.LoadWithoutSecrets), reading(config.Load)
	root := &cobra.Command{
		Use:   "gateway",
		Short: "Talk to an AI agent on Telegram, Discord, WhatsApp and in the terminal",
		Long: "gateway connects chat channels to an AI agent. Without a command it runs until it is " +
			"stopped;\non a terminal it also begins a chat there.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := all()
			if err != nil {
				return err
			}
			return app.Serve(cmd.Context(), cfg, all, terminal.IsTerminal(os.Stdin, os.Stdout))
		},
	}
	root.SetOut(os.Stdout) // else what commands print goes to standard error
	root.PersistentFlags().StringVarP(&file, "config", "c", "",
		"configuration file (default config.toml in the gateway's home)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return app.BadUsage(err) })
	root.AddCommand(
		chatCommand(load, all), outboxCommand(load), sessionsCommand(load), peopleCommand(load),
		channelsCommand(load), pairCommand(load), sendCommand(load),
		usageCommand(load), haltCommand(load), resumeCommand(load), doctorCommand(all),
		healthCommand(load),
		securityCommand(all), importCommand(load),
		backupCommand(load), restoreCommand(load),
		mcpCommand(load), memoryCommand(load), skillsCommand(load), jobsCommand(load),
		configCommand(func() (*config.Explanation, error) {
			return config.Explain(file, os.Environ())
		}), versionCommand(),
	)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { cmd.Println("gateway", app.BuildVersion()) },
	}
}

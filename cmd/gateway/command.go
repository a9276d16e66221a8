package main

import (
	"os"

	"github.com/spf13/cobra"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/config"
)

// newCommand returns the command line of the gateway.
func newCommand() *cobra.Command {
	var file string
	load := func() (*config.Config, error) {
		cfg, err := config.Load(file, os.Environ())
		if err != nil {
			return nil, usageError{err}
		}
		return cfg, nil
	}
	root := &cobra.Command{
		Use:   "gateway",
		Short: "Talk to an AI agent on Telegram, Discord, WhatsApp and in the terminal",
		Long: "gateway connects chat channels to an AI agent. Without a command it runs until it is " +
			"stopped;\non a terminal it also begins a chat there.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, load, terminal.IsTerminal(os.Stdin, os.Stdout))
		},
	}
	root.SetOut(os.Stdout) // else what commands print goes to standard error
	root.PersistentFlags().StringVarP(&file, "config", "c", "",
		"configuration file (default config.toml in the gateway's home)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		chatCommand(load), outboxCommand(load), sessionsCommand(load), peopleCommand(load),
		channelsCommand(load), pairCommand(load), sendCommand(load),
		usageCommand(load), haltCommand(load), resumeCommand(load), doctorCommand(load),
		healthCommand(load),
		securityCommand(load), importCommand(load),
		backupCommand(load), restoreCommand(load),
		mcpCommand(load), memoryCommand(load), skillsCommand(load), jobsCommand(load),
		configCommand(func() (*config.Explanation, error) {
			return config.Explain(file, os.Environ())
		}), versionCommand(),
	)
	return root
}

// A loader reads the configuration that the command line names.
type loader func() (*config.Config, error)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { cmd.Println("gateway", buildVersion()) },
	}
}

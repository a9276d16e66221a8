package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

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
	// What needs the home and nothing else can't be stopped by a mistake in the configuration.
	home := passing(reading(config.LoadDespiteMistakes), os.Stderr)
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
		chatCommand(load, all), outboxCommand(home), sessionsCommand(home), peopleCommand(home),
		channelsCommand(load), pairCommand(load), sendCommand(load),
		usageCommand(home), haltCommand(home), resumeCommand(home), doctorCommand(all),
		healthCommand(home),
		securityCommand(all), importCommand(load),
		backupCommand(load), restoreCommand(load),
		mcpCommand(load), memoryCommand(load), skillsCommand(load), jobsCommand(load),
		configCommand(func() (*config.Explanation, error) {
			return config.Explain(file, os.Environ())
		}), versionCommand(),
	)
	return root
}

// passing returns a loader that reads once, and tells of mistakes that it passes over.
func passing(read app.Loader, out io.Writer) app.Loader {
	return sync.OnceValues(func() (*config.Config, error) {
		cfg, err := read()
		if err == nil && cfg.Mistakes() != nil {
			fmt.Fprintf(out, "The configuration has mistakes, which this command passes over:\n%v\n",
				cfg.Mistakes())
		}
		return cfg, err
	})
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { cmd.Println("gateway", app.BuildVersion()) },
	}
}

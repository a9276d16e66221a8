package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gateway/agent/suggest"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/service"
)

// NewCommand returns the command line of the gateway.
func NewCommand() *cobra.Command {
	var file string
	// Flags are parsed later, so a loader looks at file only when it is called.
	reading := func(read func(string, []string) (*config.Config, error)) app.Loader {
		return func() (*config.Config, error) {
			cfg, err := read(file, os.Environ())
			if err != nil {
				return nil, app.NewUsageError(err)
			}
			return cfg, nil
		}
	}
	// Most commands need no credentials, and the calling shell may have none.
	load := reading(config.LoadWithoutSecrets)
	// root comes before its commands, because loaders need the context that cobra gives it.
	root := new(cobra.Command)
	// A gateway that answers uses a local model server if no model is configured.
	all := reading(func(file string, environ []string) (*config.Config, error) {
		cfg, err := config.Load(file, environ)
		if err == nil {
			app.UseLocalModel(root.Context(), cfg, os.Getenv("OLLAMA_HOST"))
		}
		return cfg, err
	})
	// Commands that only need the home also work with mistakes in the configuration. If a gateway
	// runs there, they use its settings instead of those of this shell.
	found := reading(config.LoadLenient)
	local := reportingMistakes(found, os.Stderr)
	home := preferRunning(root.Context, local)
	run := func(cmd *cobra.Command, _ []string) error {
		cfg, err := all()
		if err != nil {
			return err
		}
		return serve(cmd.Context(), cfg, all)
	}
	var onlyVersion bool
	*root = cobra.Command{
		Use:   "gateway",
		Short: "Talk to an AI agent on Telegram, Discord, WhatsApp and in the terminal",
		Long: "gateway connects chat channels to an AI agent. Without a command it runs until it is " +
			"stopped;\non a terminal it also begins a chat there.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if onlyVersion {
				printVersion(cmd, args)
				return nil
			}
			return run(cmd, args)
		},
	}
	// Cobra's own version flag uses text/template, which would keep all exported methods in the
	// binary.
	root.Flags().BoolVarP(&onlyVersion, "version", "v", false, "print the version")
	root.SetOut(os.Stdout) // the default is stderr
	root.PersistentFlags().StringVarP(&file, "config", "c", "",
		"configuration file (default config.toml in the gateway's home)")
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		&cobra.Command{
			Use: "run", Short: "Run the gateway, as without a command", Args: cobra.NoArgs, RunE: run},
		setupCommand(found), chatCommand(found, all), contextCommand(found, all), outboxCommand(home),
		sessionsCommand(home), peopleCommand(home),
		channelsCommand(found), pairCommand(load), sendCommand(home),
		usageCommand(home), auditCommand(home), haltCommand(home), resumeCommand(home),
		doctorCommand(found, all),
		healthCommand(local),
		securityCommand(found, all), importCommand(load), exportCommand(home, found),
		backupCommand(home), restoreCommand(local), service.Command(local, &file),
		mcpCommand(home), memoryCommand(home), skillsCommand(home), jobsCommand(home),
		configCommand(load), versionCommand(),
	)
	// Cobra would add this command only when one runs, which is after checkWords.
	root.InitDefaultCompletionCmd()
	checkWords(root)
	return root
}

// reportingMistakes returns a loader that reads once and prints the mistakes that it ignores.
func reportingMistakes(read app.Loader, out io.Writer) app.Loader {
	return sync.OnceValues(func() (*config.Config, error) {
		cfg, err := read()
		if err == nil && cfg.Mistakes() != nil {
			fmt.Fprintf(out, "The configuration has mistakes, which this command ignores:\n%v\n",
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
		Run:   printVersion,
	}
}

func printVersion(cmd *cobra.Command, _ []string) { cmd.Println("gateway", app.BuildVersion()) }

// checkWords makes unknown words of cmd and its subcommands usage errors. Otherwise the exit code
// would be the one for other failures, or even 0, because cobra shows the help of a group for an
// unknown word.
func checkWords(cmd *cobra.Command) {
	switch args := cmd.Args; {
	case cmd.HasSubCommands():
		cmd.Args = noSuchCommand
		// Cobra looks at the words only if the command has an action.
		if cmd.RunE == nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	case args != nil:
		cmd.Args = func(cmd *cobra.Command, words []string) error {
			if args(cmd, words) != nil {
				return app.UsageErrorf("usage: %s; \"%s --help\" says more", cmd.UseLine(), cmd.CommandPath())
			}
			return nil
		}
	}
	for _, below := range cmd.Commands() {
		checkWords(below)
	}
}

// noSuchCommand returns an error if the first word is not a subcommand of cmd.
func noSuchCommand(cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
	}
	return app.UsageErrorf("%s has no command %q%s; \"%[1]s --help\" lists all", cmd.CommandPath(),
		words[0], suggest.Hint(words[0], known))
}

// wrongFlag returns the error for an unknown flag or an invalid value, with a suggestion.
func wrongFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	// A name of one letter resembles too many others.
	if !ok || len(unknown.GetSpecifiedName()) < 2 {
		return app.NewUsageError(err)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	hint := ""
	if name := suggest.Name(unknown.GetSpecifiedName(), known); name != "" {
		hint = fmt.Sprintf("; did you mean \"--%s\"?", name)
	}
	return app.UsageErrorf("%w%s; \"%s --help\" says more", err, hint, cmd.CommandPath())
}

// helpCommand returns the command that prints the help of another one.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, words []string) error {
			about, rest, err := cmd.Root().Find(words)
			if err != nil {
				return app.NewUsageError(err)
			}
			if len(rest) > 0 {
				return noSuchCommand(about, rest)
			}
			// Cobra adds --help only to the command that runs, which is this one.
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/config"
)

// A finding is what the doctor says of one thing.
type finding struct {
	what, state string
	remedy      string // "" if all is well
}

func doctorCommand(load loader) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps the gateway from working, and say what to do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			sick := 0
			for _, f := range examine(cmd.Context(), cfg) {
				cmd.Printf("%s: %s\n", f.what, lines(f.state))
				if f.remedy != "" {
					sick++
					cmd.Printf("    %s\n", f.remedy)
				}
			}
			if sick > 0 {
				return fmt.Errorf("%d of these need attention", sick)
			}
			cmd.Println("All is well.")
			return nil
		},
	}
}

func examine(ctx context.Context, cfg *config.Config) []finding {
	list := []finding{{what: "Configuration", state: "right"}}
	list = append(list, examineHome(cfg))
	list = append(list, examineSandbox(ctx, cfg)...)
	for _, name := range sortedKeys(cfg.MCP) {
		if s := cfg.MCP[name]; s.Enabled && len(s.Command) > 0 {
			list = append(list, examineServer(name, s))
		}
	}
	return list
}

// examineHome looks at who can read the data directory.
func examineHome(cfg *config.Config) finding {
	f := finding{what: "Data directory", state: cfg.Gateway.Home}
	info, err := os.Stat(cfg.Gateway.Home)
	switch {
	case err != nil:
		f.state, f.remedy = "not there yet", ""
	case info.Mode().Perm()&0o077 != 0 && info.Mode()&fs.ModeType == fs.ModeDir:
		f.state += fmt.Sprintf(", mode %04o", info.Mode().Perm())
		f.remedy = "Others on this machine can look into it: chmod 700 " + cfg.Gateway.Home
	}
	return f
}

// examineSandbox proves the sandbox by its self-test.
func examineSandbox(ctx context.Context, cfg *config.Config) []finding {
	f := finding{what: "Sandbox"}
	box, err := findSandbox(ctx, cfg)
	switch {
	case err != nil:
		f.state = err.Error()
		f.remedy = "The agent runs no commands. Install bubblewrap, or use a kernel with Landlock; " +
			`[exec] sandbox = "none" runs them unconfined.`
		return []finding{f}
	case box == nil:
		f.state = "commands are switched off"
		return []finding{f}
	}
	f.state = box.String()
	if cfg.Exec.Sandbox == "none" {
		f.remedy = "Commands can do all that the gateway can; each must be approved unless " +
			"[tools.exec] says otherwise."
	}
	report := box.Report()
	list := []finding{f}
	for _, proof := range report.Passed {
		list = append(list, finding{what: "Sandbox", state: "proven: " + proof})
	}
	for _, weak := range report.Weak {
		list = append(list, finding{what: "Sandbox", state: "can't restrict: " + weak})
	}
	for _, other := range report.Others {
		list = append(list, finding{what: "Sandbox", state: "not used: " + other})
	}
	return list
}

// examineServer looks whether the program of an MCP server is there.
func examineServer(name string, s config.Server) finding {
	f := finding{what: "MCP server " + name, state: "its program is there"}
	if _, err := exec.LookPath(s.Command[0]); err != nil {
		f.state = err.Error()
		f.remedy = fmt.Sprintf("Install %s, or set enabled = false in [mcp.%s].", s.Command[0], name)
	}
	return f
}

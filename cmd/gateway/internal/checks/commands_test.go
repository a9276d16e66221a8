package checks

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/cli"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

const (
	commandsFile = "../../../../docs/commands.md"
	commandsHead = "testdata/commands.md" // written by people; CHAT stands for the first table
)

// TestCommandReference checks that docs/commands.md is what the commands say about themselves.
func TestCommandReference(t *testing.T) {
	head, err := os.ReadFile(commandsHead)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(strings.Replace(string(head), "CHAT\n", chatCommands(), 1))
	describeCommands(&b, cli.NewCommand())
	if *update {
		if err := os.WriteFile(commandsFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(commandsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/commands.md is not what the commands say; write it with " +
			"go test ./cmd/gateway/internal/checks -update")
	}
}

// chatCommands returns the table of the commands of the chat.
func chatCommands() string {
	var b strings.Builder
	b.WriteString("| command | what it does | lowest role |\n|---|---|---|\n")
	for _, c := range app.ChatCommands() {
		if c.Help != "" {
			fmt.Fprintf(&b, "| `/%s` | %s | %s |\n", c.Name, c.Help, c.MinRole)
		}
	}
	return b.String()
}

// describeCommands writes a section for each command that can be run, below cmd and in the order of
// the help.
func describeCommands(b *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "completion" {
			continue
		}
		if c.HasSubCommands() {
			describeCommands(b, c)
			continue
		}
		text := c.Short + "."
		if strings.HasPrefix(c.Long, c.Short) {
			text = c.Long
		} else if c.Long != "" {
			text += "\n\n" + c.Long
		}
		fmt.Fprintf(b, "\n### `%s`\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
		for _, p := range strings.Split(text, "\n\n") {
			fmt.Fprintf(b, "\n%s\n", strings.Join(strings.Fields(p), " "))
		}
		var rows []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || c.Root().PersistentFlags().Lookup(f.Name) != nil {
				return
			}
			name, usage := "--"+f.Name, f.Usage
			switch f.Value.Type() {
			case "bool":
			case "int":
				name += " N"
			default:
				name += " TEXT"
			}
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|")))
		})
		if len(rows) > 0 {
			fmt.Fprintf(b, "\n| option | what it does |\n|---|---|\n%s", strings.Join(rows, ""))
		}
	}
}

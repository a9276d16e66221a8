package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/skills"
)

func skillsCommand(load app.Loader) *cobra.Command {
	return group("skills", "Show, install and remove the agent's skills",
		skillsListCommand(load), skillsCheckCommand(load), skillsShowCommand(load),
		skillsInstallCommand(load), skillsRemoveCommand(load))
}

// skillData has the skills and their pins for the commands. A gateway may be running.
type skillData struct {
	*skills.Library
	pins skills.Pins
}

// withSkills calls fn with the skills of the gateway. The home need not exist: then only the
// built-in skills are left.
func withSkills(cfg *config.Config, fn func(skillData) error) error {
	shared, err := app.SharedIfThere(cfg)
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	if shared != nil {
		defer shared.Close()
	}
	scopes, err := app.OpenIfExists(app.MemoryFolder(cfg))
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	if scopes != nil {
		defer scopes.Close()
	}
	// The log is discarded because the commands print problems themselves.
	return fn(skillData{app.NewSkills(cfg, shared, scopes, slog.New(slog.DiscardHandler)),
		skills.Pins(app.PinsFile(cfg))})
}

// skillsDataCommand returns a command that uses the skills of the gateway.
func skillsDataCommand(
	load app.Loader, use, short string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, b skillData, args []string) error,
) *cobra.Command {
	return withConfig(load, &cobra.Command{Use: use, Short: short, Args: args},
		func(cmd *cobra.Command, cfg *config.Config, args []string) error {
			return withSkills(cfg, func(b skillData) error { return run(cmd, b, args) })
		})
}

// all returns the skills of all scopes. List returns the shared and the built-in skills for each
// scope, so only the skills of the scope itself are added.
func (b skillData) all() ([]skills.Skill, error) {
	list := b.List("")
	scopes, err := b.Scopes()
	for _, scope := range scopes {
		for _, s := range b.List(scope) {
			if s.Source == skills.Found {
				list = append(list, s)
			}
		}
	}
	return list, err
}

// state describes a skill. review says how it differs from what was installed.
func state(s skills.Skill, review string) string {
	words := "available"
	switch {
	case s.Problem != "":
		words = "problem: " + s.Problem
	case s.Disabled:
		words = "disabled"
	case len(s.Missing) > 0:
		words = "missing " + strings.Join(s.Missing, ", ")
	case s.Always:
		words = "always active"
	}
	// Only shared skills have pins. A skill of another source can have the same folder name.
	if s.Source == skills.Shared && review != "" {
		words += "; " + review
	}
	return words
}

// origin returns the source of a skill, and its scope if it has one.
func origin(s skills.Skill) string {
	return strings.TrimSpace(string(s.Source) + " " + s.Scope)
}

// skillsListCommand returns the command that lists the skills of all scopes, sorted by name. It
// shows which shared skills differ from what was installed.
func skillsListCommand(load app.Loader) *cobra.Command {
	return withJSONFlag(skillsDataCommand(load, "list",
		"List the skills with their states", cobra.NoArgs,
		func(cmd *cobra.Command, b skillData, _ []string) error {
			list, err := b.all()
			if err != nil {
				return err
			}
			states, err := b.pins.Review(cmd.Context(), b.Library)
			if err != nil {
				return err
			}
			var rows [][]any
			for _, s := range list {
				rows = append(rows, []any{excerpt(s.Name), excerpt(origin(s)),
					excerpt(state(s, states[s.Folder])), excerpt(s.Description)})
			}
			slices.SortStableFunc(rows, func(a, b []any) int {
				return cmp.Compare(cellText(a[0]), cellText(b[0]))
			})
			columns := []string{"NAME", "SOURCE", "STATE", "DESCRIPTION"}
			return table{columns, rows, "There are no skills."}.print(cmd)
		}))
}

// skillsCheckCommand returns the command that checks skills. With a folder it checks a skill before
// its installation.
func skillsCheckCommand(load app.Loader) *cobra.Command {
	return skillsDataCommand(load, "check [DIR]",
		"Report problems of the skills, or of the skill in a folder", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, b skillData, args []string) error {
			list, err := b.packages(args)
			if err != nil {
				return err
			}
			// A skill that is still in a folder of the operator has no pin to compare with.
			var states map[string]string
			if len(args) == 0 {
				if states, err = b.pins.Review(cmd.Context(), b.Library); err != nil {
					return err
				}
			}
			return report(cmd, list, states)
		})
}

// packages returns all skills with their files, or only the one in dirs[0].
func (b skillData) packages(dirs []string) ([]skills.Package, error) {
	if len(dirs) > 0 {
		if err := checkFolder(dirs[0]); err != nil {
			return nil, err
		}
		p, err := b.Check(dirs[0])
		if err != nil {
			return nil, app.NewUsageError(err)
		}
		return []skills.Package{p}, nil
	}
	all, err := b.all()
	var list []skills.Package
	for _, s := range all {
		list = append(list, b.Inspect(s))
	}
	return list, err
}

// checkFolder returns an error if the operator has named no folder, for example an archive.
func checkFolder(dir string) error {
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return app.UsageErrorf("there is no folder %s; give the one that has the SKILL.md", dir)
	case err == nil && !info.IsDir():
		return app.UsageErrorf("%s is not a folder; give the one that has the SKILL.md, and unpack an "+
			"archive first", dir)
	}
	return nil // whoever reads the folder reports other errors
}

// report prints the problems of skills. It returns an error if a skill can't be used.
func report(cmd *cobra.Command, list []skills.Package, states map[string]string) error {
	bad, noted := 0, 0
	for _, p := range list {
		file := p.Skill.Location
		if p.Skill.Source == skills.Found { // path as the operator sees it
			file = strings.Replace(file, "memory/", "memory/"+p.Skill.Scope+"/", 1)
		}
		say := func(kind, text string) {
			noted++
			cmd.Printf("%s: %s: %s\n", display.Lines(file), kind, display.Lines(text))
		}
		if len(p.Problems) > 0 {
			bad++
		}
		for _, text := range p.Problems {
			say("problem", text)
		}
		for _, text := range p.Skill.Remarks {
			say("note", text)
		}
		if p.Skill.Source != skills.Builtin { // built-in skills need not all be usable
			for _, text := range p.Skill.Missing {
				say("missing", text)
			}
		}
		if text := states[p.Skill.Folder]; text != "" && p.Skill.Source == skills.Shared {
			say("note", text)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d skills can't be used as they are", bad, len(list))
	}
	if noted == 0 {
		cmd.Println("Nothing is wrong.")
	}
	return nil
}

// find returns the skill with a name, or else one whose folder has that name. It prefers usable
// skills and, with own, skills that are not built in. A scope of "" means the shared and the
// built-in skills.
func (b skillData) find(name, scope string, own bool) (skills.Skill, error) {
	// A lower rank is better. The name counts more than where the skill comes from, and that more
	// than whether it works. The folder of one skill can have the name of another one.
	rank := func(s skills.Skill) (n int) {
		if s.Name != name {
			n += 4
		}
		if s.Problem != "" {
			n++
		}
		if own && s.Source == skills.Builtin {
			n += 2
		}
		return n
	}
	var found *skills.Skill
	for _, s := range b.List(scope) {
		if (s.Name == name || s.Folder == name) && (scope == "" || s.Source == skills.Found) &&
			(found == nil || rank(s) < rank(*found)) {
			found = &s
		}
	}
	if found == nil {
		return skills.Skill{}, app.UsageErrorf("there is no skill %q; see gateway skills list", name)
	}
	return *found, nil
}

// scopeFlag adds the flag for the scope of a skill that the agent has found. The value is set when
// the command runs.
func scopeFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("scope", "",
		"scope of a skill that the agent has found: such as person-1")
}

// skillsShowCommand returns the command that prints a skill. Without --scope it finds only shared
// and built-in skills.
func skillsShowCommand(load app.Loader) *cobra.Command {
	var scope *string
	cmd := skillsDataCommand(load, "show NAME",
		"Print the text, the requirements and the files of a skill", cobra.ExactArgs(1),
		func(cmd *cobra.Command, b skillData, args []string) error {
			s, err := b.find(args[0], *scope, false)
			if err != nil {
				return err
			}
			states, err := b.pins.Review(cmd.Context(), b.Library)
			if err != nil {
				return err
			}
			p := b.Inspect(s)
			showPackage(cmd, p, states[s.Folder])
			// A skill with a problem may have no text.
			if s.Problem != "" {
				return nil
			}
			text, err := b.Body(s)
			if err != nil {
				return err
			}
			cmd.Printf("\n%s\n", display.Lines(text))
			return nil
		})
	scope = scopeFlag(cmd)
	return cmd
}

// showPackage prints everything about a skill except its text.
func showPackage(cmd *cobra.Command, p skills.Package, review string) {
	s := p.Skill
	line := func(name, text string) {
		if text != "" {
			cmd.Printf("%-14s %s\n", name+":", display.Lines(text))
		}
	}
	line("name", s.Name)
	line("description", s.Description)
	line("source", origin(s))
	line("location", s.Location)
	line("state", state(s, review))
	line("license", s.License)
	line("compatibility", s.Compatibility)
	line("wants tools", s.AllowedTools)
	line("programs", strings.Join(s.Requires.Bins, ", "))
	line("one program of", strings.Join(s.Requires.AnyBins, ", "))
	line("variables", strings.Join(s.Requires.Env, ", "))
	line("systems", strings.Join(s.Requires.OS, ", "))
	line("settings", strings.Join(s.Requires.Config, ", "))
	for _, text := range p.Problems {
		if text != s.Problem {
			line("problem", text)
		}
	}
	for _, text := range s.Remarks {
		line("note", text)
	}
	line("hash", p.Hash)
	for _, f := range p.Files {
		line("file", describeFile(f))
	}
}

func describeFile(f skills.File) string {
	text := fmt.Sprintf("%s (%d bytes)", f.Name, f.Size)
	switch {
	case f.Irregular != "":
		text = f.Name + " (" + f.Irregular + ")"
	case f.Script:
		text += ", a script"
	}
	return text
}

// skillsInstallCommand returns the command that installs a skill for everybody. The agent sees it
// at its next turn.
func skillsInstallCommand(load app.Loader) *cobra.Command {
	var force bool
	cmd := withConfig(load, &cobra.Command{
		Use:   "install DIR",
		Short: "Install the skill in a folder as a shared skill",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		if err := cmp.Or(checkFolder(args[0]), checkOwner(cfg)); err != nil {
			return err
		}
		// Install needs the folder, even before the first start of the gateway.
		if err := app.PrepareShared(cfg); err != nil {
			return app.NewHomeError(cfg.Gateway.Home, err)
		}
		return withSkills(cfg, func(b skillData) error {
			p, err := b.Install(args[0], force)
			if errors.Is(err, skills.ErrExists) {
				return fmt.Errorf("there is a shared skill %s already; --force replaces it",
					display.OneLine(p.Skill.Name))
			}
			if err != nil {
				return err
			}
			// With problems, Install has installed nothing.
			if len(p.Problems) > 0 {
				for _, text := range p.Problems {
					cmd.PrintErrln("gateway:", display.Lines(text))
				}
				return fmt.Errorf("%s is not installed", display.Lines(args[0]))
			}
			// With a pin, a later change of the files is reported.
			if err := b.pins.Set(p.Skill.Folder, p.Hash); err != nil {
				return err
			}
			warnOf(cmd, b, p)
			return nil
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "replace the skill with its name")
	return cmd
}

// warnOf prints a warning about what an installed skill can do.
func warnOf(cmd *cobra.Command, b skillData, p skills.Package) {
	name := display.OneLine(p.Skill.Name)
	cmd.Printf("%s is installed. Its files:\n", name)
	scripts := 0
	for _, f := range p.Files {
		cmd.Println("  " + display.Lines(describeFile(f)))
		if f.Script {
			scripts++
		}
	}
	cmd.Println("\nNobody has checked its text. From the next message on the agent follows it\n" +
		"like an instruction, for everybody who may write to the bot.")
	if scripts > 0 {
		cmd.Printf("It may run its scripts, of which there are %d, like any command.\n", scripts)
	}
	if strings.Contains(name, " ") {
		name = strconv.Quote(name)
	}
	cmd.Printf("Read it:         gateway skills show %s\n", name)
	cmd.Printf("Remove it:       gateway skills remove %s\n", name)
	for _, s := range b.List("") {
		if s.Source == skills.Shared && s.Folder == p.Skill.Folder {
			cmd.Printf("State:           %s\n", display.Lines(state(s, "")))
		}
	}
}

func skillsRemoveCommand(load app.Loader) *cobra.Command {
	var scope *string
	cmd := skillsDataCommand(load, "remove NAME",
		"Remove a shared skill, or a skill of a scope, with its files", cobra.ExactArgs(1),
		func(cmd *cobra.Command, b skillData, args []string) error {
			s, err := b.find(args[0], *scope, true)
			if err != nil {
				return err
			}
			// It would come back at the next start.
			if s.Source == skills.Builtin {
				return app.UsageErrorf("%s is built in; name it in disabled of [skills] to switch it off",
					display.OneLine(args[0]))
			}
			if err := b.Remove(s); err != nil {
				return err
			}
			cmd.Printf("%s is removed.\n", display.OneLine(args[0]))
			return nil
		})
	scope = scopeFlag(cmd)
	return cmd
}

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"gateway/skills"
)

func TestSkillState(t *testing.T) {
	tests := []struct {
		skill  skills.Skill
		review string
		want   string
	}{
		{skills.Skill{Source: skills.Builtin}, "", "available"},
		{skills.Skill{Source: skills.Builtin}, "changed", "available"}, // the review is of another skill
		{skills.Skill{Source: skills.Shared}, "changed", "available; changed"},
		{skills.Skill{Always: true}, "", "always active"},
		{skills.Skill{Always: true, Missing: []string{"a", "b"}}, "", "missing a, b"},
		{skills.Skill{Disabled: true, Missing: []string{"a"}}, "", "disabled"},
		{skills.Skill{Disabled: true, Problem: "bad"}, "", "problem: bad"},
		{skills.Skill{Source: skills.Shared, Problem: "bad"}, "changed", "problem: bad; changed"},
	}
	for _, tt := range tests {
		if got := state(tt.skill, tt.review); got != tt.want {
			t.Errorf("%+v, %q: %q, want %q", tt.skill, tt.review, got, tt.want)
		}
	}
}

// TestSkillsOnATerminal checks that no text of a skill can send control characters to a terminal.
func TestSkillsOnATerminal(t *testing.T) {
	const evil = "\x1b[2J\u202e"
	cmd, out := &cobra.Command{}, new(bytes.Buffer)
	cmd.SetOut(out)
	p := skills.Package{Hash: evil, Problems: []string{evil},
		Files: []skills.File{{Name: evil, Irregular: evil}},
		Skill: skills.Skill{Name: evil, Description: evil, Source: skills.Shared, Folder: evil,
			Location: evil, Missing: []string{evil}, Remarks: []string{evil}, License: evil,
			Requires: skills.Requires{Bins: []string{evil}}}}
	showPackage(cmd, p, evil)
	if err := report(cmd, []skills.Package{p}, map[string]string{evil: evil}); err == nil {
		t.Error("report = nil, want an error")
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "[2J") {
		t.Errorf("printed %q", got)
	}
}

// The commands about a skill can be copied, also if its name has spaces.
func TestSkillCommands(t *testing.T) {
	for name, want := range map[string]string{"tea": " tea\n", "Big Tea": " \"Big Tea\"\n"} {
		cmd, out := &cobra.Command{}, new(bytes.Buffer)
		cmd.SetOut(out)
		p := skills.Package{Skill: skills.Skill{Name: name, Folder: "tea"}}
		warnOf(cmd, skillData{Library: skills.New(nil)}, p)
		for _, command := range []string{"gateway skills show", "gateway skills remove"} {
			if got := out.String(); !strings.Contains(got, command+want) {
				t.Errorf("%q lacks %q", got, command+want)
			}
		}
	}
}

// A name means the skill with that name, also if the folder of another skill has it.
func TestFindSkill(t *testing.T) {
	shared, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for folder, name := range map[string]string{"tea": "brew", "pour": "tea"} {
		dir := filepath.Join(shared.Name(), "skills", folder)
		text := "---\nname: " + name + "\ndescription: d\n---\ntext"
		err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	b := skillData{Library: skills.New(&skills.Options{Shared: shared})}
	for name, want := range map[string]string{"tea": "pour", "brew": "tea", "pour": "pour"} {
		if s, err := b.find(name, "", true); err != nil || s.Folder != want {
			t.Errorf("find(%q) = the folder %q, %v; want %q", name, s.Folder, err, want)
		}
	}
}

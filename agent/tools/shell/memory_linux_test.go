//go:build amd64 || arm64

package shell

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/memory"
)

// modes runs a test with each sandbox, and without a sandbox as the control.
func modes(t *testing.T, test func(t *testing.T, d *testShell, mem, mode string)) {
	t.Helper()
	for _, mode := range []string{sandbox.Bubblewrap, sandbox.Landlock, sandbox.None} {
		t.Run(mode, func(t *testing.T) {
			if _, err := exec.LookPath("bwrap"); mode == sandbox.Bubblewrap && err != nil &&
				os.Getenv("CI") != "true" {
				t.Skip("bubblewrap is not installed")
			}
			box, err := sandbox.Find(t.Context(), sandbox.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			var mem string
			d := newTestShell(t, func(o *Options) {
				o.Sandbox = just(box)
				mem = filepath.Join(filepath.Dir(o.Workspace), "memory")
				o.Shared = t.TempDir()
				o.Memory = func(s memory.Scope) string { return filepath.Join(mem, string(s)) }
			})
			for name, text := range map[string]string{
				"person-1/MEMORY.md": "Ann likes tea\n", "person-2/MEMORY.md": "hunter2\n",
			} {
				path := filepath.Join(mem, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
					os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("../memory", filepath.Join(d.ws, "memory")); err != nil {
				t.Fatal(err)
			}
			test(t, d, mem, mode)
		})
	}
}

// as runs a command line for a scope and a role.
func (d *testShell) as(s memory.Scope, r bus.Role, command string) string {
	d.t.Helper()
	checked, err := d.tools.Arguments("exec", object("command", command))
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := d.tools.Lookup("exec")
	if err != nil {
		d.t.Fatal(err)
	}
	got, err := found.Run(d.t.Context(), tool.Call{Args: checked, Session: bustest.Session("x/s"),
		Address: bus.Address{Account: "tg", Chat: "1"}, Scope: s, Role: r,
		Limits: tool.Limits{Folders: d.withheld}})
	if err != nil {
		d.t.Fatal(err)
	}
	return got.Text
}

// A command can read the memory of its own scope, and it can't reach the memory of another scope.
func TestMemory(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, d *testShell, mem, mode string) {
		got := d.as("person-1", bus.User, `cat $MEMORY/MEMORY.md memory/person-1/MEMORY.md`)
		if !strings.HasPrefix(got, "Ann likes tea\nAnn likes tea\n") {
			t.Errorf("its own memory is %q", got)
		}
		for _, scope := range []memory.Scope{"", "person-3"} {
			if got := d.as(scope, bus.User, `echo "<$MEMORY>"`); !strings.HasPrefix(got, "<>") {
				t.Errorf("the scope %q has the folder %q", scope, got)
			}
		}
		other := mem + "/person-2"
		for _, command := range []string{
			"cat " + other + "/MEMORY.md", "cat memory/person-2/MEMORY.md", "cat $MEMORY/../person-2/*.md",
			"ln -s " + other + " l; cat l/MEMORY.md", "ln " + other + "/MEMORY.md h; cat h",
			"cd memory && cat person-2/MEMORY.md", "cd $MEMORY/.. && cat person-2/MEMORY.md",
			"cat /proc/self/root" + other + "/MEMORY.md", "cat /proc/1/root" + other + "/MEMORY.md",
			"cat /proc/self/cwd/../memory/person-2/MEMORY.md", "grep -rs hunter2 memory/ " + mem + " ..",
			"for p in /proc/[0-9]*; do cat $p/root" + other + "/* $p/cwd/../memory/person-2/*; done",
			"tar cf - -C " + mem + " . | tar xOf -", "cp -r " + other + " copy; cat copy/*",
		} {
			got := d.as("person-1", bus.Owner, command+" 2>/dev/null")
			if mode == sandbox.None {
				continue
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("%s shows %q", command, got)
			}
		}
		if got := d.as("person-1", bus.Owner, "cat memory/person-2/MEMORY.md"); mode == sandbox.None &&
			!strings.Contains(got, "hunter2") {
			t.Errorf("the control shows %q; the test shows nothing", got)
		}
		if mode == sandbox.None {
			return
		}
		d.as("person-1", bus.Owner, `echo x > $MEMORY/MEMORY.md; echo x >> memory/person-1/MEMORY.md;
			echo x > $MEMORY/new; ln -s ../person-2/MEMORY.md $MEMORY/link; rm -rf $MEMORY`)
		entries, err := os.ReadDir(filepath.Join(mem, "person-1"))
		text, readErr := os.ReadFile(filepath.Join(mem, "person-1/MEMORY.md"))
		if err != nil || readErr != nil || len(entries) != 1 || string(text) != "Ann likes tea\n" {
			t.Errorf("a command has changed the memory to %v, %q, %v", entries, text, readErr)
		}
	})
}

// If the folder of a scope is a link to another scope's folder, commands do not get it.
func TestMemoryLink(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, d *testShell, mem, _ string) {
		if err := os.Symlink("person-2", filepath.Join(mem, "person-4")); err != nil {
			t.Fatal(err)
		}
		if got := d.as("person-4", bus.User, `echo "<$MEMORY>"`); !strings.HasPrefix(got, "<>") {
			t.Errorf("the link is shown: %q", got)
		}
	})
}

// In a sandbox, commands of every role can read the shared documents and can't change them.
func TestShared(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, d *testShell, _, mode string) {
		document := filepath.Join(d.shell.opts.Shared, "AGENTS.md")
		if err := errors.Join(os.Mkdir(filepath.Join(d.shell.opts.Shared, "skills"), 0o700),
			os.WriteFile(document, []byte("old\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, role := range []bus.Role{bus.User, "", bus.Admin, bus.Owner} {
			got := d.as("person-1", role, `cat $SHARED/AGENTS.md; echo x >> $SHARED/AGENTS.md
				mkdir $SHARED/skills/x; rm -f $SHARED/AGENTS.md; ls $SHARED/skills; echo can > can; cat can`)
			if !strings.HasPrefix(got, "old\n") && mode != sandbox.None ||
				!strings.Contains(got, "can\n") {
				t.Errorf("the commands said %q", got)
			}
			text, err := os.ReadFile(document)
			entries, _ := os.ReadDir(filepath.Join(d.shell.opts.Shared, "skills")) // must be empty
			if kept := err == nil && string(text) == "old\n" && len(entries) == 0; kept !=
				(mode != sandbox.None) {
				t.Errorf("a command of %q left %q, %v, %v", role, text, err, entries)
			}
		}
	})
}

// A command can't read the folders of withheld skills, but it can read the others.
func TestWithheldSkills(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, d *testShell, _, mode string) {
		builtin := filepath.Join(t.TempDir(), "builtin-skills")
		d.shell.opts.ReadOnly = append(d.shell.opts.ReadOnly, builtin)
		for _, name := range []string{"cook", "sail"} {
			for _, dir := range []string{filepath.Join(d.shell.opts.Shared, "skills"), builtin} {
				path := filepath.Join(dir, name, "SKILL.md")
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
					os.WriteFile(path, []byte(name+" with care\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		command := "B=" + builtin + "; cat $SHARED/skills/cook/SKILL.md " +
			"$SHARED/skills/sail/SKILL.md $B/cook/SKILL.md $B/sail/SKILL.md"
		all := "cook with care\nsail with care\ncook with care\nsail with care\n"
		if got := d.as("person-1", bus.User, command); !strings.HasPrefix(got, all) {
			t.Errorf("the skills are %q, want %q", got, all)
		}
		d.withheld = []string{"skills/cook", "builtin-skills/cook"}
		got := d.as("person-1", bus.User, command)
		if strings.Count(got, "sail with care") != 2 ||
			strings.Contains(got, "cook with care") != (mode == sandbox.None) {
			t.Errorf("the skills are %q, want only those that are not withheld", got)
		}
	})
}

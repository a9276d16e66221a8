//go:build amd64 || arm64

package shell

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/memory"
)

// modes runs a test with the sandboxes, and one without as the control.
func modes(t *testing.T, test func(t *testing.T, d *desk, mem, mode string)) {
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
			d := newDesk(t, func(o *Options) {
				o.Sandbox = just(box)
				mem = filepath.Join(filepath.Dir(o.Workspace), "memory")
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

// as runs a command line for somebody.
func (d *desk) as(s memory.Scope, r bus.Role, command string) string {
	d.t.Helper()
	checked, err := d.tools.Arguments("exec", object("command", command))
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := d.tools.Lookup("exec")
	if err != nil {
		d.t.Fatal(err)
	}
	got, err := found.Run(d.t.Context(), tool.Call{Args: checked, Session: "s",
		Address: bus.Address{Account: "tg", Chat: "1"}, Scope: s, Role: r})
	if err != nil {
		d.t.Fatal(err)
	}
	return got.Text
}

// A command reads the memory of its own scope, and nothing brings it to another's.
func TestMemory(t *testing.T) {
	modes(t, func(t *testing.T, d *desk, mem, mode string) {
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

// The folder of a scope may not be a link to that of another.
func TestMemoryLink(t *testing.T) {
	modes(t, func(t *testing.T, d *desk, mem, _ string) {
		if err := os.Symlink("person-2", filepath.Join(mem, "person-4")); err != nil {
			t.Fatal(err)
		}
		if got := d.as("person-4", bus.User, `echo "<$MEMORY>"`); !strings.HasPrefix(got, "<>") {
			t.Errorf("the link is shown: %q", got)
		}
	})
}

// What everybody's prompt is made of is changed by commands of admins only.
func TestPromptFiles(t *testing.T) {
	modes(t, func(t *testing.T, d *desk, _, mode string) {
		if mode != sandbox.Bubblewrap {
			if box, err := d.shell.o.Sandbox(); err != nil || box.Protects() {
				t.Error("it says that it protects")
			}
			return
		}
		if err := os.WriteFile(filepath.Join(d.ws, "AGENTS.md"), []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const attack = `cat AGENTS.md; for f in AGENTS.md SOUL.md skills/x; do
			echo attack > $f; rm -rf $f; mv $f y; ln -sf /tmp/z $f; done; mkdir -p skills/x;
			mv skills s; echo attack > skills/SKILL.md; echo can > can; cat can`
		for _, role := range []bus.Role{bus.User, ""} {
			got := d.as("person-1", role, attack)
			if !strings.HasPrefix(got, "old\n") || !strings.Contains(got, "\ncan\n") {
				t.Errorf("the commands said %q", got)
			}
			for name, want := range map[string]string{"AGENTS.md": "old\n", "SOUL.md": ""} {
				text, err := os.ReadFile(filepath.Join(d.ws, name))
				if err != nil || string(text) != want {
					t.Errorf("a command of %q has made %s %q, %v", role, name, text, err)
				}
			}
			if entries, err := os.ReadDir(filepath.Join(d.ws, "skills")); err != nil || len(entries) > 0 {
				t.Errorf("a command of %q has made the skills %v, %v", role, entries, err)
			}
		}
		d.as("person-1", bus.Admin, "echo new > AGENTS.md; mkdir skills/x; echo new > skills/x/SKILL.md")
		for _, name := range []string{"AGENTS.md", "skills/x/SKILL.md"} {
			text, err := os.ReadFile(filepath.Join(d.ws, name))
			if err != nil || string(text) != "new\n" {
				t.Errorf("a command of an admin has made %s %q, %v", name, text, err)
			}
		}
	})
}

// A link in the place of a document brings nothing from outside into a command's reach.
func TestPromptLink(t *testing.T) {
	modes(t, func(t *testing.T, d *desk, mem, mode string) {
		for i, target := range []string{mem + "/person-2", "../memory/person-2"} {
			for name, to := range map[string]string{"skills": target, "TOOLS.md": target + "/MEMORY.md"} {
				path := filepath.Join(d.ws, name)
				if err := errors.Join(os.RemoveAll(path), os.Symlink(to, path)); err != nil {
					t.Fatal(err)
				}
			}
			got := d.as("person-1", bus.User, fmt.Sprintf("cat skills/* TOOLS.md; echo %d", i))
			if strings.Contains(got, "hunter2") != (mode == sandbox.None) {
				t.Errorf("a link to %s shows %q", target, got)
			}
		}
	})
}

//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strings"
	"testing"
)

// What is protected can be read, but not changed, removed, renamed or covered, and what bubblewrap
// was given for that leads the command nowhere.
func TestProtected(t *testing.T) {
	for _, mode := range []string{Bubblewrap, None} {
		t.Run(mode, func(t *testing.T) {
			s, w := find(t, mode), newWorld(t)
			write := func(name, text string) {
				if err := os.WriteFile(w.in(name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(w.in("skills"), 0o755); err != nil {
				t.Fatal(err)
			}
			write("AGENTS.md", "old")
			write("skills/SKILL.md", "old")
			if err := os.Symlink(w.config, w.in("link")); err != nil {
				t.Fatal(err)
			}
			spec := Spec{ReadWrite: []string{w.ws}, Protected: []string{w.in("AGENTS.md"),
				w.in("skills"), w.in("missing"), w.in("link")}}
			spec.Argv = []string{"/bin/sh", "-c", `cat AGENTS.md skills/SKILL.md; echo;
				echo x > AGENTS.md; echo x > skills/SKILL.md; echo x > skills/new
				rm -f AGENTS.md; rm -rf skills; mv AGENTS.md a; mv skills s; ln -f AGENTS.md b; echo x > b
				mkdir d; mv d skills; ln -sfn d skills; cp -f /etc/hosts AGENTS.md; chmod 777 skills AGENTS.md
				truncate -s 0 AGENTS.md; cat link; for f in /proc/self/fd/*; do readlink $f; done;
				ls /proc/self/fd/*/..; echo done > can`}
			said, o := run(t, s, spec)
			if o.Err != "" || !strings.HasPrefix(said, "oldold\n") {
				t.Fatalf("it did not run: %+v %s", o, said)
			}
			changed := false
			for name, want := range map[string]string{"AGENTS.md": "old", "skills/SKILL.md": "old"} {
				got, err := os.ReadFile(w.in(name))
				changed = changed || err != nil || string(got) != want
			}
			if _, err := os.Stat(w.in("skills/new")); err == nil {
				changed = true
			}
			if changed != (mode == None) {
				t.Errorf("they were changed: %t; %s", changed, said)
			}
			if got, err := os.ReadFile(w.in("can")); err != nil || string(got) != "done\n" {
				t.Errorf("the rest of the folder can't be written: %q, %v", got, err)
			}
			if strings.Contains(said, w.secret) != (mode == None) {
				t.Errorf("the link was followed: %s", said)
			}
			if mode == Bubblewrap && strings.Contains(said, "config.toml\n") {
				t.Errorf("something outside is open: %s", said)
			}
		})
	}
}

func TestProtectedReport(t *testing.T) {
	for mode, want := range map[string]bool{Bubblewrap: true, Landlock: false, None: false} {
		s := find(t, mode)
		said := strings.Contains(strings.Join(s.Report().Weak, " "), weakProtection)
		if s.Protects() != want || said != (mode == Landlock) {
			t.Errorf("%s protects: %t, and says that it doesn't: %t", mode, s.Protects(), said)
		}
	}
	spec := Spec{Argv: []string{"true"}, ReadWrite: []string{t.TempDir()}, Protected: []string{"/etc"}}
	if _, err := find(t, None).Command(t.Context(), spec); err == nil {
		t.Error("something outside can be protected")
	}
}

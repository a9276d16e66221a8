//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A command can't change a read-only folder, even if a process outside replaces a file in it
// meanwhile. A replaced file would lose its own mount, so the folder must be mounted.
func TestReadOnlyFolder(t *testing.T) {
	const attack = `echo ready; cat; cat $D/AGENTS.md; echo evil >> $D/AGENTS.md; rm -rf $D/skills
		mv $D/AGENTS.md $D/a; ln -f $D/AGENTS.md b && echo evil >> b; mkdir -p $D/skills/evil
		ln -sfn $PWD $D/skills/l; chmod -R 777 $D; touch $D/new; truncate -s 0 $D/AGENTS.md
		mv $D $PWD/moved; cp /etc/hosts $D/AGENTS.md; echo can > can; exit 0`
	for _, mode := range []string{Bubblewrap, Landlock, None} {
		t.Run(mode, func(t *testing.T) {
			s, w, shared := find(t, mode), newWorld(t), t.TempDir()
			document := filepath.Join(shared, "AGENTS.md")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.Mkdir(filepath.Join(shared, "skills"), 0o755))
			must(os.WriteFile(document, []byte("old"), 0o644))
			c, err := s.Command(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", attack},
				ReadWrite: []string{w.ws}, ReadOnly: []string{shared}, Env: []string{"D=" + shared}})
			must(err)
			in, err := c.StdinPipe()
			must(err)
			out, err := c.StdoutPipe()
			must(err)
			must(c.Start())
			output := bufio.NewReader(out)
			_, err = output.ReadString('\n')
			must(err)
			must(os.WriteFile(document+".new", []byte("new"), 0o644))
			must(os.Rename(document+".new", document))
			must(in.Close())
			rest, err := io.ReadAll(output)
			must(err)
			_ = c.Wait() // the outcome says how it ended
			if o, err := c.Outcome(); err != nil || o.Err != "" || o.Exit != 0 {
				t.Fatalf("it ended with %+v, %v", o, err)
			}
			if got, err := os.ReadFile(w.in("can")); err != nil || string(got) != "can\n" {
				t.Errorf("the workspace can't be written: %q, %v", got, err)
			}
			text, err := os.ReadFile(document)
			entries, _ := os.ReadDir(shared) // an error shows as missing entries
			skills, _ := os.ReadDir(filepath.Join(shared, "skills"))
			intact := err == nil && string(text) == "new" && len(entries) == 2 && len(skills) == 0
			if intact != (mode != None) {
				t.Errorf("intact: %t; %q, %v, %v", intact, text, entries, skills)
			}
			if mode != None && string(rest) != "new" {
				t.Errorf("the command read %q", rest)
			}
		})
	}
}

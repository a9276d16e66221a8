package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gateway/agent/tool"
)

// An approval covers the content of each workspace file that the command names, in any spelling.
func TestOperands(t *testing.T) {
	d := newTestShell(t, nil)
	if err := os.MkdirAll(filepath.Join(d.ws, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.sh", "sub/b.sh", "my script.sh"} {
		if err := os.WriteFile(filepath.Join(d.ws, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.sh", filepath.Join(d.ws, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(d.ws, "out")); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"back": d.ws + "/a.sh", "folder": d.ws + "/sub"} {
		if err := os.Symlink(target, filepath.Join(d.ws, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(d.ws, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	exec, err := d.tools.Lookup("exec")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{object("command", "sh a.sh"), "a.sh"},
		{object("command", "./a.sh x"), "a.sh"},
		{object("argv", []string{"sh", d.ws + "/a.sh"}), "a.sh"},
		{object("command", "sh link"), "link"},
		{object("command", "sh back"), "a.sh"},
		{object("command", "cd folder; ./b.sh"), "sub/b.sh"},
		{object("command", "sh b.sh", "dir", "sub"), "sub/b.sh"},
		{object("command", "cd sub; . ./b.sh"), "sub/b.sh"},
		{object("command", "cat<a.sh|sh"), "a.sh"},
		{object("command", "make --file=a.sh -fsub/b.sh"), "a.sh sub/b.sh"},
		{object("command", `sh 'my script.sh'`), "my script.sh"},
		{object("command", `sh my\ script.sh`), "my script.sh"},
		{object("argv", []string{"python3", "-c", `exec(open("a.sh").read())`}), "a.sh"},
		{object("command", "curl -d @a.sh x"), "a.sh"},
		{object("command", "cat out pipe sub ../x /etc/passwd none"), ""},
	} {
		var got []string
		for _, o := range exec.Operands(tool.Call{Args: []byte(test.args)}) {
			if got = append(got, o.Name); o.Sum == "" || o.Size != int64(len(o.Name)) && o.Name != "link" {
				t.Errorf("%s: %+v", test.args, o)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s names %q, want %q", test.args, got, test.want)
		}
	}
}

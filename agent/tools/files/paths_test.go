package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gateway/agent/tool"
	"gateway/bus"
)

// users lists the tools, with the arguments that make them read or write one path.
var users = []struct {
	name   string
	args   []any
	writes bool
}{
	{"read_file", nil, false},
	{"list_dir", nil, false},
	{"grep", []any{"pattern", "."}, false},
	{"glob", []any{"pattern", "**"}, false},
	{"write_file", []any{"content", "attack"}, true},
	{"edit_file", []any{"old_text", "hunter2", "new_text", "attack"}, true},
	{"notebook_edit", []any{"cell", "0", "source", "attack"}, true},
}

// use calls each tool, and apply_patch in all its forms, with a path. It returns all results and
// errors.
func (f *fixture) use(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	say := func(name string, r tool.Result, err error) {
		fmt.Fprintf(&all, "%s: %s %s %v\n", name, r.Text, r.Foreign, err)
		for _, im := range r.Images {
			all.Write(im.Data)
		}
	}
	for _, u := range users {
		r, err := f.result(t, "s", u.name, append([]any{"path", path}, u.args...)...)
		say(u.name, r, err)
	}
	for _, patch := range []string{
		"*** Update File: " + path + "\n@@\n-hunter2\n+attack",
		"*** Add File: " + path + "\n+attack",
		"*** Delete File: " + path,
		"*** Update File: mine\n*** Move to: " + path + "\n@@\n-mine\n+attack",
	} {
		r, err := f.result(t, "s", "apply_patch", "patch", patch)
		say("apply_patch", r, err)
	}
	r, err := f.result(t, "s", "glob", "pattern", path+"/*", "entry_type", "any")
	say("glob", r, err)
	return all.String()
}

// No spelling of a path and no link makes a tool read or write a file outside the workspace.
func TestOutside(t *testing.T) {
	f := newFixture(t)
	above := t.TempDir()
	outside := filepath.Join(above, "outside")
	secret := filepath.Join(outside, "secret")
	writeFile(t, secret, "hunter2\n")
	rel, err := filepath.Rel(f.dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	theirs := bus.Address{Account: "tg", Chat: "2"}
	writeFile(t, filepath.Join(f.media, theirs.Folder(), "secret"), "hunter2\n")
	f.write(t, "mine", "mine\n")
	f.write(t, "sub/x", "x")
	for name, target := range map[string]string{
		"dirlink": outside, "rellink": rel, "filelink": secret, "relfile": filepath.Join(rel, "secret"),
		"sub/up": "../../", "chain": "sub/chain2", "sub/chain2": "../rellink", "dangling": above + "/new",
		"reldangling": filepath.Join(rel, "new"), "proc": "/proc/self", "self": "/proc/self/cwd",
		"dev": "/dev/stdin", "dots": "./sub/../../" + filepath.Base(f.dir) + "/" + rel,
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{
		secret, rel + "/secret", "./" + rel + "/secret", "sub/../" + rel + "/secret",
		"sub//..//" + rel + "//secret/", f.dir + "/" + rel + "/secret", f.dir + "/../outside",
		"dirlink/secret", "dirlink/../outside/secret", "dirlink/./secret", "dirlink/new", "dirlink",
		"rellink/secret", "rellink/new/deep", "filelink", "relfile", "filelink/", "sub/up/" + rel,
		"chain/secret", "chain", "dangling", "reldangling", "dangling/x", "dots/secret",
		"proc/environ", "proc/root" + secret, "self" + secret, "dev", "/proc/self/environ",
		"/proc/self/root" + secret, "/dev/fd/0", "//" + secret, "/./" + secret, "~root/" + secret,
		"~", "~/x", "file://" + secret, "FILE://localhost" + secret, "file:///etc/passwd",
		"docs/../" + rel + "/secret", "docs/../../outside/secret", "work/" + rel + "/secret",
		"work/../../x", f.work + "/../outside", f.docs + "/..", "media/../../secret",
		"media/../" + theirs.Folder() + "/secret", "media/../../" + theirs.Folder() + "/secret",
		theirs.Folder() + "/secret", "..", "../", "...", ".. /x", "..\\" + rel, "sub/..../x",
		"\u2025/x", "\uff0e\uff0e/outside/secret", "%2e%2e/outside/secret", "..%2foutside",
		"sub\x00/../../outside", secret + "\x00.txt", "\x00" + secret,
	}
	before := snapshot(t, above) + snapshot(t, f.media)
	for _, path := range paths {
		if written := f.use(t, path); strings.Contains(written, "hunter2") {
			t.Errorf("with the path %q they say %s", path, written)
		}
	}
	if after := snapshot(t, above) + snapshot(t, f.media); after != before {
		t.Errorf("what is outside was %s\nand is %s", before, after)
	}
	for _, dir := range []string{f.dir, f.work, f.docs, f.media} {
		wantNoTraces(t, dir)
	}
}

// snapshot describes all files of a directory.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			fmt.Fprintln(&all, path, err)
			return nil
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %q %v\n", path, text, err)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A link within a tree is followed. A write changes the target, and the link stays.
func TestLinkInside(t *testing.T) {
	f := newFixture(t)
	f.write(t, "a/file", "old")
	for name, target := range map[string]string{
		"link": "a/file", "b": "a", "a/back": "../link", "new": "a/made",
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range []string{"link", "b/file", "b/back", "a/../link"} {
		content := fmt.Sprint("content ", i)
		if _, err := f.call(t, "write_file", "path", path, "content", content); err != nil {
			t.Errorf("write_file %s: %v", path, err)
		}
		f.wantFile(t, "a/file", content)
	}
	if _, err := f.call(t, "write_file", "path", "new", "content", "x"); err != nil {
		t.Error(err)
	}
	f.wantFile(t, "a/made", "x")
	for _, name := range []string{"link", "a/back", "new"} {
		info, err := os.Lstat(filepath.Join(f.dir, name))
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is %v, %v; want the link", name, info.Mode(), err)
		}
	}
}

// A name is found with its accents in any Unicode form, if only one file matches.
func TestUnicodeForms(t *testing.T) {
	const composed, apart = "caf\u00e9", "cafe\u0301"
	f := newFixture(t)
	f.write(t, apart+"/"+composed+".txt", "text")
	for _, path := range []string{composed + "/" + apart + ".txt", apart + "/" + composed + ".txt",
		composed + "/" + composed + ".txt", filepath.Join(f.dir, composed, apart+".txt")} {
		got, err := f.call(t, "read_file", "path", path)
		if err != nil || !strings.Contains(got, "text") {
			t.Errorf("read_file %+q = %q, %v", path, got, err)
		}
	}
	_, err := f.call(t, "write_file", "path", composed+"/"+apart+".txt", "content", "new")
	if err != nil {
		t.Error(err)
	}
	f.wantFile(t, apart+"/"+composed+".txt", "new")
	f.write(t, "n\u0303o\u0302", "1")
	f.write(t, "\u00f1o\u0302", "2")
	_, err = f.call(t, "read_file", "path", "n\u0303\u00f4")
	wantError(t, err, "there is no")
	writeFile(t, filepath.Join(f.docs, apart), "of docs")
	if got, err := f.call(t, "read_file", "path", "docs/"+composed); err != nil {
		t.Errorf("read_file of docs = %q, %v", got, err)
	}
}

// A file name with control characters is shown in a form that can't be taken for something else.
func TestStrangeNames(t *testing.T) {
	f := newFixture(t)
	names := []string{"a\nb", "a\x1b[31mb", "a\u202eb", "a b", "-rf", "a]b", "\u00a0", "ä", "A", "a"}
	for _, name := range names {
		f.write(t, name, "x\n")
	}
	list, err := f.call(t, "list_dir")
	lines := strings.Count(list, "\n") + 1
	if err != nil || strings.ContainsAny(list, "\x1b\u202e") || lines != len(names) {
		t.Errorf("list_dir = %q, %v", list, err)
	}
	for _, name := range names {
		result, err := f.result(t, "s", "read_file", "path", name)
		if err != nil || strings.ContainsAny(result.Foreign, "\n\x1b\u202e\u00a0") {
			t.Errorf("read_file %q is of %q, %v", name, result.Foreign, err)
		}
	}
	_, err = f.call(t, "read_file", "path", "no\nsuch\x1b")
	if strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("the error shows the name as it is: %q", err)
	}
	_, err = f.call(t, "read_file", "path", "B")
	wantError(t, err, `there is no "B"`)
}

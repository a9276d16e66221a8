package files

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"gateway/agent/extract"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
)

// A fixture is a workspace with its tools. It has two more trees: "docs", which is read-only, and
// "work".
type fixture struct {
	dir, docs, work, media string
	files                  *Files
	reg                    *tool.Registry
}

// here is the address of the conversation in which all calls are made.
var here = bus.Address{Account: "tg", Chat: "1", Thread: "7"}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), docs: t.TempDir(), work: t.TempDir(), media: t.TempDir()}
	x, err := extract.New(extract.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.files = New(Options{
		Workspace: openRoot(t, f.dir), Path: f.dir, Media: openRoot(t, f.media), Extract: x,
		Roots: []Root{
			{Name: "docs", Path: f.docs, Dir: openRoot(t, f.docs)},
			{Name: "work", Path: f.work, Dir: openRoot(t, f.work), Write: true},
		},
	})
	if f.reg, err = tool.NewRegistry(f.files.Tools()...); err != nil {
		t.Fatal(err)
	}
	return f
}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// write creates a file in the workspace, and the directories above it.
func (f *fixture) write(t testing.TB, name, content string) {
	t.Helper()
	writeFile(t, filepath.Join(f.dir, name), content)
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFile checks that a file of the workspace has the content.
func (f *fixture) wantFile(t testing.TB, name, content string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil || string(got) != content {
		t.Errorf("%s has %q, %v; want %q", name, got, err, content)
	}
}

// wantNoTraces fails the test if a call has left a temporary file.
func wantNoTraces(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".gateway-") {
			t.Errorf("%s was left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// call runs a tool as a turn does. The args are pairs of a name and a value.
func (f *fixture) call(t testing.TB, name string, args ...any) (string, error) {
	t.Helper()
	result, err := f.result(t, "session", name, args...)
	return result.Text, err
}

// result is like call, but for a given session, and it returns the whole result.
func (f *fixture) result(t testing.TB, session, name string, args ...any) (tool.Result, error) {
	t.Helper()
	object := make(map[string]any)
	for i := 0; i < len(args); i += 2 {
		object[args[i].(string)] = args[i+1]
	}
	written, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := f.reg.Arguments(name, string(written))
	if err != nil {
		t.Fatal(err)
	}
	tl, err := f.reg.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	if tl.MinRole != bus.User {
		t.Errorf("%s is for %q, want for users", name, tl.MinRole)
	}
	return tl.Run(t.Context(), tool.Call{Args: checked, Address: here,
		Session: bustest.Session("x/" + session)})
}

// wantError checks that the text of err contains each of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("got no error")
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got error %q, want %q in it", err, part)
		}
	}
}

func TestReadFile(t *testing.T) {
	f := newFixture(t)
	f.write(t, "dir/a.txt", "one\ntwo\nthree\n")
	const whole = "     1\tone\n     2\ttwo\n     3\tthree\n\n(end of the file at line 3)"
	for _, path := range []string{
		"dir/a.txt", "./dir/../dir/a.txt", filepath.Join(f.dir, "dir/a.txt"),
	} {
		if got, err := f.call(t, "read_file", "path", path); err != nil || got != whole {
			t.Errorf("read_file %s = %q, %v; want %q", path, got, err, whole)
		}
	}
	got, err := f.call(t, "read_file", "path", "dir/a.txt", "offset", 2, "limit", 1)
	const want = "     2\ttwo\n\n(lines 2 to 2; the file goes on, read more with offset 3)"
	if err != nil || got != want {
		t.Errorf("a part = %q, %v; want %q", got, err, want)
	}
	_, err = f.call(t, "read_file", "path", "dir/a.txt", "offset", 4)
	wantError(t, err, "only 3 lines")
	_, err = f.call(t, "read_file", "path", "dir/a.txt", "offset", -1)
	wantError(t, err, "negative")
}

func TestReadFileForms(t *testing.T) {
	tests := []struct {
		name, content string
		offset        int
		want          string // the end of the result
	}{
		{"empty", "", 1, "(the file is empty)"},
		{"no newline", "a\nb", 1, "     1\ta\n     2\tb\n\n(end of the file at line 2)"},
		{"blank lines", "\n\n", 1, "     1\t\n     2\t\n\n(end of the file at line 2)"},
		{"CRLF", "a\r\nb\r\n", 1, "     1\ta\n     2\tb\n\n(end of the file at line 2)"},
		{"byte order mark", "\ufeffa\n", 1, "     1\ta\n\n(end of the file at line 1)"},
		{"late binary", strings.Repeat("x\n", sniffLen) + "\xff\n", sniffLen,
			"  8192\tx\n  8193\t\ufffd\n\n(end of the file at line 8193)"},
		{"rune at the edge", strings.Repeat("x", sniffLen-1) + "ä\n", 1,
			"xä\n\n(end of the file at line 1)"},
		{"long line", strings.Repeat("ä", maxLine+7) + "\nb\n", 1,
			"ä [line cut, 14 bytes more]\n     2\tb\n\n(end of the file at line 2)"},
		{"very long line", strings.Repeat("x", 10*maxLine) + "\n", 1,
			"x [line cut, 180000 bytes more]\n\n(end of the file at line 1)"},
	}
	f := newFixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.write(t, "file", tt.content)
			got, err := f.call(t, "read_file", "path", "file", "offset", tt.offset)
			if err != nil || !strings.HasSuffix(got, tt.want) {
				t.Errorf("got %q, %v; want it to end in %q", got[max(0, len(got)-80):], err, tt.want)
			}
		})
	}
}

// TestReadOn reads long files page by page, with the offset at which each page ends.
func TestReadOn(t *testing.T) {
	for name, line := range map[string]string{
		"many lines": "x", "long lines": strings.Repeat("ä", 300),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			const total = 4_500
			f.write(t, "file", strings.Repeat(line+"\n", total))
			next, lines := 1, 0
			for pages := 1; ; pages++ {
				got, err := f.call(t, "read_file", "path", "file", "offset", next)
				if err != nil {
					t.Fatal(err)
				}
				if n := utf8.RuneCountInString(got); n > maxChars+100 {
					t.Errorf("a page has %d characters, want at most %d", n, maxChars)
				}
				if !strings.HasPrefix(got, fmt.Sprintf("%6d\t%s", next, line)) {
					t.Fatalf("page at %d begins with %q", next, got[:20])
				}
				lines += strings.Count(got, line+"\n")
				if strings.HasSuffix(got, "(end of the file at line 4500)") {
					if pages < 3 || lines != total {
						t.Errorf("%d lines on %d pages, want %d on 3 or more", lines, pages, total)
					}
					return
				}
				_, after, _ := strings.Cut(got, "read more with offset ")
				before := next
				if _, err := fmt.Sscanf(after, "%d", &next); err != nil || next <= before {
					t.Fatalf("after line %d: %q, %v", before, got[len(got)-80:], err)
				}
			}
		})
	}
}

func TestReadRefused(t *testing.T) {
	f := newFixture(t)
	f.write(t, "dir/a.txt", "a")
	f.write(t, "nul", "a\x00b")
	f.write(t, "a.zip", "PK\x03\x04 and so on")
	f.write(t, "a.pdf", "%PDF-1.7\nnot really")
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(f.dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"absolute": outside, "relative": rel, "parent": "..", "inside": "dir/a.txt", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path  string
		parts []string
	}{
		{"missing", []string{`there is no "missing"`, f.dir, "list_dir"}},
		{"dir", []string{"is a directory", "list_dir"}},
		{"nul", []string{"is not text but application/octet-stream, 3 bytes", "a command that"}},
		{"a.zip", []string{"application/zip", "can't be read as text"}},
		{"a.pdf", []string{"application/pdf", "can't be read as text"}},
		{outside, []string{"outside the workspace", f.dir}},
		{rel, []string{"outside the workspace"}},
		{"dir/../../x", []string{"outside the workspace"}},
		{"/etc/passwd", []string{"outside the workspace"}},
		{f.dir + "-other/x", []string{"outside the workspace"}},
		{"absolute", []string{"symbolic link that leads out"}},
		{"relative", []string{"symbolic link that leads out"}},
		{"parent/x", []string{"symbolic link that leads out"}},
		{"loop", []string{"loop"}},
		{"a\x00b", []string{"invalid"}},
	}
	for _, tt := range tests {
		got, err := f.call(t, "read_file", "path", tt.path)
		if wantError(t, err, tt.parts...); t.Failed() {
			t.Fatalf("read_file %q = %q, %v", tt.path, got, err)
		}
		if strings.Contains(got+fmt.Sprint(err), "hunter2") {
			t.Errorf("read_file %q gives away the file outside", tt.path)
		}
	}
	got, err := f.call(t, "read_file", "path", "inside")
	if err != nil || !strings.HasPrefix(got, "     1\ta\n") {
		t.Errorf("a link within the workspace = %q, %v", got, err)
	}
	_, err = f.call(t, "list_dir", "path", "parent")
	wantError(t, err, "symbolic link that leads out")
}

func TestListDir(t *testing.T) {
	f := newFixture(t)
	if got, err := f.call(t, "list_dir"); err != nil || got != "(the directory is empty)" {
		t.Errorf("empty workspace = %q, %v", got, err)
	}
	f.write(t, "sub/deep/c.txt", "")
	f.write(t, "b.txt", "12345")
	f.write(t, "B.txt", "1")
	f.write(t, "line\nbreak", "")
	if err := os.Symlink("sub", filepath.Join(f.dir, "link")); err != nil {
		t.Fatal(err)
	}
	const want = "B.txt  1\nb.txt  5\n\"line\\nbreak\"  0\nlink -> sub\nsub/"
	for _, path := range []string{"", ".", f.dir, f.dir + "/", "sub/.."} {
		if got, err := f.call(t, "list_dir", "path", path); err != nil || got != want {
			t.Errorf("list_dir %q = %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := f.call(t, "list_dir", "path", "link"); err != nil || got != "deep/" {
		t.Errorf("list_dir link = %q, %v", got, err)
	}
	got, err := f.call(t, "list_dir", "recursive", true)
	if want := "B.txt\nb.txt\n\"line\\nbreak\"\nlink/\nsub/\nsub/deep/\nsub/deep/c.txt"; err != nil ||
		got != want {
		t.Errorf("list_dir recursive = %q, %v; want %q", got, err, want)
	}
	got, err = f.call(t, "list_dir", "path", "sub", "recursive", true, "head_limit", 1)
	if err != nil || !strings.HasPrefix(got, "sub/deep/\n") || strings.Contains(got, "c.txt") {
		t.Errorf("list_dir recursive of sub, one entry = %q, %v", got, err)
	}
	for path, part := range map[string]string{
		"b.txt": "is a file, not a directory", "no": "there is no", "..": "outside the workspace",
	} {
		_, err := f.call(t, "list_dir", "path", path)
		wantError(t, err, part)
	}
}

func TestListDirCap(t *testing.T) {
	f := newFixture(t)
	for i := range maxShown + 1 {
		f.write(t, fmt.Sprintf("%04d", i), "")
	}
	got, err := f.call(t, "list_dir")
	want := "0499  0\n\n(the first 500 of 501 entries; more with offset 500)"
	if err != nil || !strings.HasPrefix(got, "0000  0\n0001  0\n") || !strings.HasSuffix(got, want) {
		t.Errorf("list ends in %q, %v; want %q", got[len(got)-60:], err, want)
	}
}

func TestListDirPages(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.write(t, fmt.Sprint("f", i), "")
	}
	for args, want := range map[string]string{
		"head_limit=2":          "f0  0\nf1  0\n\n(the first 2 of 5 entries; more with offset 2)",
		"head_limit=2 offset=2": "f2  0\nf3  0\n\n(entries 3 to 4 of 5; more with offset 4)",
		"offset=4":              "f4  0\n\n(entries 5 to 5 of 5)",
	} {
		if got, err := f.call(t, "list_dir", pairs(args)...); err != nil || got != want {
			t.Errorf("list_dir %s = %q, %v; want %q", args, got, err, want)
		}
	}
	_, err := f.call(t, "list_dir", "offset", 5)
	wantError(t, err, "only 5 entries")
}

// Each conversation sees only the files that were sent in it.
func TestMedia(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	var roots []*os.Root
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		roots = append(roots, root)
	}
	ours := bus.Address{Account: "tg", Chat: "1", Thread: "7"}
	theirs := bus.Address{Account: "tg", Chat: "2"}
	for _, a := range []bus.Address{ours, theirs} {
		dir := filepath.Join(dirs[1], a.Folder())
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "of-"+a.Chat+".txt")
		if err := os.WriteFile(name, []byte("secret of "+a.Chat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := tool.NewRegistry(
		New(Options{Workspace: roots[0], Path: dirs[0], Media: roots[1]}).Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	use := func(name, path string) string {
		tl, err := reg.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		result, err := tl.Run(t.Context(), tool.Call{Address: ours,
			Args: json.RawMessage(fmt.Sprintf(`{"path":%q}`, path))})
		return result.Text + fmt.Sprint(err)
	}
	if got := use("read_file", "media/of-1.txt"); !strings.Contains(got, "secret of 1") {
		t.Errorf("our own file reads as %q", got)
	}
	if got := use("list_dir", "media"); !strings.Contains(got, "of-1.txt") {
		t.Errorf("our own folder is %q", got)
	}
	for _, path := range []string{"media/../2/of-2.txt", "media/../../tg/2/of-2.txt", "media/of-2.txt",
		"media/./../2", filepath.Join(dirs[0], "media", "..", "..", "tg", "2", "of-2.txt"), "media//2",
		filepath.Join(dirs[1], theirs.Folder(), "of-2.txt")} {
		for _, name := range []string{"read_file", "list_dir"} {
			got := use(name, path)
			if strings.Contains(got, "secret") || strings.Contains(got, "of-2.txt ") {
				t.Errorf("%s of %s shows %q", name, path, got)
			}
		}
	}
}

package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gateway/agent/tool"
	"gateway/bus/bustest"
)

func TestWriteFile(t *testing.T) {
	tests := []struct{ name, old, content, want, says string }{
		{"new", "", "a\nb\n", "a\nb\n", "made: 4 bytes, 2 lines"},
		{"empty", "x", "", "", "replaced: 0 bytes, 0 lines"},
		{"replaced", "old\n", "new", "new", "replaced: 3 bytes, 1 line"},
		{"CRLF", "a\r\nb\r\n", "c\nd\n", "c\r\nd\r\n", "CRLF line ends as before"},
		{"CRLF in the content", "a\r\nb\r\n", "c\r\nd\n", "c\r\nd\n", "5 bytes, 2 lines"},
		{"mixed", "a\r\nb\n", "c\nd\n", "c\nd\n", "4 bytes, 2 lines"},
		{"CRLF at the edge of a buffer", strings.Repeat("x", bufferSize-1) + "\r\n", "c\n", "c\r\n",
			"as before"},
		{"byte order mark", "\ufeffa\n", "b\n", "\ufeffb\n", "byte order mark as before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			if tt.old != "" {
				f.write(t, "dir/file", tt.old)
			}
			got, err := f.call(t, "write_file", "path", "dir/file", "content", tt.content)
			if err != nil || !strings.HasPrefix(got, "dir/file was ") || !strings.HasSuffix(got, tt.says) {
				t.Errorf("write_file = %q, %v; want %q", got, err, tt.says)
			}
			f.wantFile(t, "dir/file", tt.want)
			wantNoTraces(t, f.dir)
		})
	}
}

// A write keeps the mode of a file. Another hard link to the file keeps the old content.
func TestWriteKeeps(t *testing.T) {
	f := newFixture(t)
	f.write(t, "run.sh", "old")
	path := filepath.Join(f.dir, "run.sh")
	if err := os.Chmod(path, 0o751); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "twin")
	if err := os.Link(path, outside); err != nil {
		t.Fatal(err)
	}
	if _, err := f.call(t, "write_file", "path", "run.sh", "content", "new"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o751 {
		t.Errorf("the mode is %v, %v; want 0751", info.Mode(), err)
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "old" {
		t.Errorf("the twin outside has %q, %v", got, err)
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	_, err = f.call(t, "write_file", "path", "run.sh", "content", "newer")
	wantError(t, err, "write-protected")
	f.wantFile(t, "run.sh", "new")
}

func TestWriteRefused(t *testing.T) {
	f := newFixture(t)
	f.write(t, "dir/a.txt", "a")
	writeFile(t, filepath.Join(f.docs, "d.txt"), "d")
	writeFile(t, filepath.Join(f.media, here.Folder(), "m.txt"), "m")
	for _, tt := range []struct{ path, part string }{
		{"docs/d.txt", "may only be read"},
		{filepath.Join(f.docs, "d.txt"), "may only be read"},
		{"docs/new/x", "may only be read"},
		{"media/m.txt", "can't be changed"},
		{"media/new.txt", "can't be changed"},
		{"dir", "is a directory"},
		{"dir/", "names a directory"},
		{"", "names a directory"},
		{".", "is a directory"},
		{"dir/a.txt/b", "not a directory"},
		{"/etc/x", "outside the workspace"},
		{"../x", "outside the workspace"},
		{"a\nb", "invisible characters"},
		{"a\x1b[2Jb", "invisible characters"},
		{"a\x00b", "NUL"},
		{strings.Repeat("x", 300), "name is too long"},
		{strings.Repeat("x/", 3000) + "x", "path is too long"},
		{"~/x", "no home directory"},
		{"file:///etc/passwd", `is a URL; want a path, such as "/etc/passwd"`},
		{"https://example.com/", "is a URL"},
	} {
		_, err := f.call(t, "write_file", "path", tt.path, "content", "x")
		wantError(t, err, tt.part)
	}
	f.wantFile(t, "dir/a.txt", "a")
	if _, err := f.call(t, "write_file", "path", "work/new/x", "content", "x"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(f.work, "new/x")); err != nil || string(got) != "x" {
		t.Errorf("work/new/x has %q, %v", got, err)
	}
	for _, dir := range []string{f.dir, f.docs, f.work, f.media} {
		wantNoTraces(t, dir)
	}
}

// A tool does not overwrite a change that the model has not read.
func TestChangedSinceRead(t *testing.T) {
	f := newFixture(t)
	read := func() {
		t.Helper()
		if _, err := f.call(t, "read_file", "path", "link"); err != nil {
			t.Fatal(err)
		}
	}
	f.write(t, "a.txt", "one")
	if err := os.Symlink("a.txt", filepath.Join(f.dir, "link")); err != nil {
		t.Fatal(err)
	}
	read()
	f.write(t, "a.txt", "somebody else's")
	_, err := f.call(t, "write_file", "path", "a.txt", "content", "mine")
	wantError(t, err, "has changed since you read it", "read it again")
	_, err = f.call(t, "edit_file", "path", "a.txt", "old_text", "some", "new_text", "every")
	wantError(t, err, "has changed since you read it")
	f.wantFile(t, "a.txt", "somebody else's")
	_, err = f.result(t, "other session", "write_file", "path", "a.txt", "content", "b")
	if err != nil {
		t.Errorf("a session that has read nothing: %v", err)
	}
	read()
	for _, content := range []string{"mine", "mine again"} { // our own writes are not unread changes
		if _, err := f.call(t, "write_file", "path", "a.txt", "content", content); err != nil {
			t.Error(err)
		}
	}
	f.wantFile(t, "a.txt", "mine again")
}

func TestSeenIsBounded(t *testing.T) {
	f := newFixture(t)
	f.write(t, "a", "")
	info, err := os.Stat(filepath.Join(f.dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	var s seen
	for i := range 3 * maxSeen {
		s.record(bustest.Session(fmt.Sprint("x/", i/2)), place{path: "a"}, info)
	}
	if len(s.infos) != maxSeen {
		t.Errorf("%d are remembered, want %d", len(s.infos), maxSeen)
	}
}

// If several calls write one file at the same time, the file has the content of one of them.
func TestWriteConcurrently(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			content := strings.Repeat(fmt.Sprintln(i), 1000)
			_, err := f.result(t, fmt.Sprint(i), "write_file", "path", "a", "content", content)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(filepath.Join(f.dir, "a"))
	first, _, _ := strings.Cut(string(got), "\n")
	if err != nil || string(got) != strings.Repeat(first+"\n", 1000) {
		t.Errorf("the file begins with %q, %v, and goes on with another", first, err)
	}
	wantNoTraces(t, f.dir)
}

func TestWriteCanceled(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.files.editor.writeFile(ctx, tool.Call{}, writeArgs{Path: "a", Content: "x"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(f.dir, "a")); err == nil {
		t.Error("the file was written")
	}
	wantNoTraces(t, f.dir)
}

// Several changes are either all made or none. This holds even if the last change can't be made.
func TestSaveRollsBack(t *testing.T) {
	f := newFixture(t)
	f.write(t, "a", "old a")
	f.write(t, "gone", "old gone")
	f.write(t, "last", "old last")
	targetOf := func(name string) target {
		got, err := f.files.editor.target(tool.Call{}, name)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	changes := []change{
		{target: targetOf("a"), content: []byte("new a")},
		{target: targetOf("gone"), remove: true},
		{target: targetOf("x/y/new"), content: []byte("new")},
		{target: targetOf("last"), content: []byte("new last")},
	}
	f.write(t, "last", "changed by somebody")
	err := f.files.editor.save(t.Context(), tool.Call{}, changes...)
	wantError(t, err, `"last" has changed`)
	f.wantFile(t, "a", "old a")
	f.wantFile(t, "gone", "old gone")
	f.wantFile(t, "last", "changed by somebody")
	if _, err := os.Lstat(filepath.Join(f.dir, "x")); err == nil {
		t.Error("a directory was left")
	}
	wantNoTraces(t, f.dir)
	changes[3].target = targetOf("last")
	changes[0].target = targetOf("a")
	changes[1].target = targetOf("gone")
	if err := f.files.editor.save(t.Context(), tool.Call{}, changes...); err != nil {
		t.Fatal(err)
	}
	f.wantFile(t, "a", "new a")
	f.wantFile(t, "x/y/new", "new")
	if _, err := os.Lstat(filepath.Join(f.dir, "gone")); err == nil {
		t.Error("the file was not removed")
	}
	wantNoTraces(t, f.dir)
}

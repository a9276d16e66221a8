package version

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A history is a tree with a clock that advances by a minute each time it is read.
type history struct {
	*Tree
	t      *testing.T
	folder string
	dir    string
}

func newHistory(t *testing.T) *history {
	t.Helper()
	return openHistory(t, t.TempDir(), filepath.Join(t.TempDir(), "memory"), false)
}

// openHistory opens the history in a folder like a process that owns the database. If shared is
// set, it opens the database like a second process.
func openHistory(t *testing.T, dir, folder string, shared bool) *history {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(dir, "gateway.db"),
		[]store.Migration{Migration}, &store.Options{Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	var mu sync.Mutex
	now := time.Now().Add(-24 * time.Hour)
	s := New(db, &Options{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Minute)
		return now
	}})
	return &history{s.Tree("person-1", folder, nil), t, folder, dir}
}

func (h *history) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.folder, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) wantFile(name, want string) {
	h.t.Helper()
	got, err := os.ReadFile(filepath.Join(h.folder, filepath.FromSlash(name)))
	if err != nil || string(got) != want {
		h.t.Errorf("%s has %q, %v; want %q", name, got, err, want)
	}
}

func (h *history) wantNone(name string) {
	h.t.Helper()
	if _, err := os.Lstat(filepath.Join(h.folder, name)); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("%s is there: %v", name, err)
	}
}

// commit records the files and fails the test if they have not changed.
func (h *history) commit(author, reason string) Version {
	h.t.Helper()
	v, err := h.Commit(h.t.Context(), Change{Author: author, Reason: reason})
	if err != nil || v.ID == "" {
		h.t.Fatalf("Commit = %+v, %v; want a version", v, err)
	}
	return v
}

func (h *history) wantReasons(want ...string) {
	h.t.Helper()
	list, err := h.Log(h.t.Context(), 0)
	var got []string
	for _, v := range list {
		got = append(got, v.Reason)
	}
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		h.t.Errorf("Log = %q, %v; want %q", got, err, want)
	}
}

func TestCommitAndLog(t *testing.T) {
	h := newHistory(t)
	if v, err := h.Commit(t.Context(), Change{}); err != nil || v != (Version{}) {
		t.Errorf("Commit of nothing = %+v, %v", v, err)
	}
	h.wantReasons()
	h.write("USER.md", "Ann\n")
	h.write("skills/x/SKILL.md", "do it\n")
	first := h.commit("Dream", "learned a name\n\nand a skill")
	if v, err := h.Commit(t.Context(), Change{Author: "x"}); err != nil || v != (Version{}) {
		t.Errorf("Commit without a change = %+v, %v", v, err)
	}
	h.write("USER.md", "Ann\nlikes tea\n")
	if err := os.Remove(filepath.Join(h.folder, "skills/x/SKILL.md")); err != nil {
		t.Fatal(err)
	}
	second := h.commit("a person", "by hand")
	list, err := h.Log(t.Context(), 0)
	if err != nil || len(list) != 2 || !same(list[0], second) || !same(list[1], first) {
		t.Fatalf("Log = %+v, %v; want %+v and %+v", list, err, second, first)
	}
	if list, err := h.Log(t.Context(), 1); err != nil || len(list) != 1 || !same(list[0], second) {
		t.Errorf("Log of one = %+v, %v", list, err)
	}
	want := "--- a/USER.md\n+++ b/USER.md\n@@ -1 +1,2 @@\n Ann\n+likes tea\n" +
		"--- a/skills/x/SKILL.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-do it\n"
	got, err := h.Show(t.Context(), second.ID[:6])
	if _, changes, _ := strings.Cut(got, "by hand\n\n"); err != nil || changes != want {
		t.Errorf("Show = %q, %v\nwant the changes %q", got, err, want)
	}
	got, err = h.Show(t.Context(), strings.ToUpper(first.ID[:8]))
	for _, part := range []string{first.ID, "by Dream", "    learned a name", "    and a skill",
		"+++ b/USER.md", "--- /dev/null", "+Ann"} {
		if err != nil || !strings.Contains(got, part) {
			t.Errorf("Show = %q, %v; want %q in it", got, err, part)
		}
	}
}

func same(a, b Version) bool {
	return a.ID == b.ID && a.Time.Equal(b.Time) && a.Author == b.Author && a.Reason == b.Reason &&
		a.Change == b.Change
}

// A change with an ID is committed once, also by a process that begins anew after a kill.
func TestCommitOnce(t *testing.T) {
	h := newHistory(t)
	h.write("a", "1")
	c := Change{Author: "Dream", Reason: "r\nChange: forged", ID: "dream/person-1:7-"}
	v, err := h.Commit(t.Context(), c)
	if err != nil || v.Change != c.ID {
		t.Fatalf("Commit = %+v, %v", v, err)
	}
	h.write("a", "2")
	if v, err := h.Commit(t.Context(), c); err != nil || v != (Version{}) {
		t.Errorf("the same change again = %+v, %v", v, err)
	}
	for id, want := range map[string]bool{
		c.ID: true, "forged": false, "dream/person-1:7": false, "": false, "--all": false, "-": false,
	} {
		if got, err := h.Has(t.Context(), id); err != nil || got != want {
			t.Errorf("Has(%q) = %t, %v; want %t", id, got, err, want)
		}
	}
	if list, err := h.Log(t.Context(), 0); err != nil || len(list) != 1 || !same(list[0], v) {
		t.Errorf("Log = %+v, %v; want %+v", list, err, v)
	}
}

func TestUndo(t *testing.T) {
	h := newHistory(t)
	undo := Change{Author: "a person", Reason: "undone"}
	h.write("MEMORY.md", "a\nb\nc\nd\ne\n")
	h.commit("a person", "first")
	h.write("MEMORY.md", "a\nB\nc\nd\ne\n")
	h.write("skills/x/SKILL.md", "do it\n")
	dream := h.commit("Dream", "dream")
	h.write("MEMORY.md", "a\nB\nc\nd\ne, by hand\n") // this change is not recorded
	v, err := h.Undo(t.Context(), dream.ID[:7], undo)
	if err != nil || v.Reason != "undone" {
		t.Fatalf("Undo = %+v, %v", v, err)
	}
	h.wantFile("MEMORY.md", "a\nb\nc\nd\ne, by hand\n")
	h.wantNone("skills/x")
	h.wantReasons("undone", "Edited by hand.", "dream", "first")
	if v, err := h.Undo(t.Context(), dream.ID, undo); err != nil || v != (Version{}) {
		t.Errorf("Undo again = %+v, %v; want nothing", v, err)
	}
	if _, err := h.Undo(t.Context(), v.ID, Change{Reason: "redone"}); err != nil {
		t.Errorf("Undo of the undoing: %v", err)
	}
	h.wantFile("MEMORY.md", "a\nB\nc\nd\ne, by hand\n")
	h.wantFile("skills/x/SKILL.md", "do it\n")
}

func TestUndoConflict(t *testing.T) {
	h := newHistory(t)
	h.write("USER.md", "1\n")
	h.write("MEMORY.md", "a\nb\nc\n")
	h.commit("a person", "first")
	h.write("USER.md", "2\n")
	h.write("MEMORY.md", "a\nB\nc\n")
	dream := h.commit("Dream", "dream")
	h.write("MEMORY.md", "a\nB by hand\nc\n")
	_, err := h.Undo(t.Context(), dream.ID, Change{Author: "x"})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || len(conflict.Files) != 1 ||
		conflict.Files[0].Name != "MEMORY.md" ||
		fmt.Sprint(conflict.Files[0].Conflicts) != "[{2 B B by hand b}]" {
		t.Fatalf("Undo: %#v", err)
	}
	h.wantFile("MEMORY.md", "a\nB by hand\nc\n")
	h.wantFile("USER.md", "2\n")
}

// Undo with the same ID has an effect only once, also after a kill.
func TestUndoOnce(t *testing.T) {
	h := newHistory(t)
	h.write("a", "1\n")
	h.commit("x", "first")
	h.write("a", "2\n")
	second := h.commit("x", "second")
	c := Change{Reason: "undone", ID: "restore:9"}
	if _, err := h.Undo(t.Context(), second.ID, c); err != nil {
		t.Fatal(err)
	}
	h.write("a", "2\n")
	if v, err := h.Undo(t.Context(), second.ID, c); err != nil || v != (Version{}) {
		t.Errorf("Undo again = %+v, %v", v, err)
	}
	h.wantFile("a", "2\n")
}

// The first version can be undone, too. In it, Dream may have created the files.
func TestUndoFirst(t *testing.T) {
	h := newHistory(t)
	h.write("MEMORY.md", "a\nb\n")
	first := h.commit("Dream", "dream")
	h.write("MEMORY.md", "a\nb\nby hand\n")
	if _, err := h.Undo(t.Context(), first.ID, Change{}); err != nil {
		t.Fatal(err)
	}
	h.wantFile("MEMORY.md", "by hand\n")
}

func TestHostileNames(t *testing.T) {
	h := newHistory(t)
	h.write("a", "1\n")
	h.commit("x", "first")
	names := []string{"", "-", "--help", "HEAD", "main", "..", "@{0}", "12345", "../../etc/passwd",
		"--output=/tmp/x", "ffffff", strings.Repeat("f", 200), "abcde\n", "abcdef^", "$(id)"}
	for _, id := range names {
		_, showErr := h.Show(t.Context(), id)
		_, undoErr := h.Undo(t.Context(), id, Change{})
		if !errors.Is(showErr, ErrUnknown) || !errors.Is(undoErr, ErrUnknown) {
			t.Errorf("version %q: %v, %v; want %v", id, showErr, undoErr, ErrUnknown)
		}
	}
	h.write("a", "2\n")
	for _, id := range []string{"--all", "a b", "a\nb", "=x", strings.Repeat("x", 201)} {
		if _, err := h.Commit(t.Context(), Change{ID: id}); err == nil {
			t.Errorf("Commit takes the ID %q", id)
		}
	}
	v, err := h.Commit(t.Context(),
		Change{Author: "--author=<x>\n\x00y", Reason: "--amend\x00\n\n\x1b[31m"})
	if err != nil || v.Author != "--author=xy" || v.Reason != "--amend\n\n[31m" {
		t.Errorf("Commit = %+v, %v", v, err)
	}
	if list, err := h.Log(t.Context(), 1); err != nil || !same(list[0], v) {
		t.Errorf("Log = %+v, %v; want %+v", list, err, v)
	}
}

func TestIrregularFiles(t *testing.T) {
	h := newHistory(t)
	texts := map[string]string{
		`-rf`: "dash", `"quoted" \n`: "quotes", "line\nbreak": "break", "ü/日本.md": "signs",
		"empty": "", "crlf": "a\r\nb\r\n", "no end": "a", "nul": "a\x00b", "latin": "\xe9",
		".gitattributes": "* filter=evil\n", ".gitignore": "*\n", "sub/.gitignore": "*\n",
	}
	for name, text := range texts {
		h.write(name, text)
	}
	h.write(".git/config", "[core]\n\tfsmonitor = touch /tmp/x\n")
	h.write(".gateway-abc.tmp", "unfinished")
	if err := os.Symlink("/etc/passwd", filepath.Join(h.folder, "link")); err != nil {
		t.Fatal(err)
	}
	v := h.commit("x", "odd")
	f, err := h.find(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.after) != len(texts) {
		t.Errorf("%d files are kept, want %d", len(f.after), len(texts))
	}
	for name, want := range texts {
		if got, ok := f.after[name]; !ok || got != want {
			t.Errorf("%q has %q, %t; want %q", name, got, ok, want)
		}
	}
	for name := range texts {
		h.write(name, "changed\n")
	}
	second := h.commit("x", "changed")
	if _, err := h.Undo(t.Context(), second.ID, Change{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range texts {
		h.wantFile(name, want)
	}
}

func TestOnlySomeFiles(t *testing.T) {
	h := newHistory(t)
	h.Tree = h.store.Tree("shared", h.folder, func(rel string) bool {
		return rel == "SOUL.md" || strings.HasPrefix(rel, "skills/")
	})
	h.write("SOUL.md", "kind\n")
	h.write("skills/a/SKILL.md", "a\n")
	h.write("data/huge/SOUL.md", "not this\n")
	v := h.commit("x", "first")
	f, err := h.find(t.Context(), v.ID)
	if err != nil || len(f.after) != 2 {
		t.Errorf("kept is %q, %v", f.after, err)
	}
}

// A file that can't be read does not count as removed.
func TestUnreadable(t *testing.T) {
	h := newHistory(t)
	h.write("a", "1\n")
	h.write("b", "1\n")
	h.commit("x", "first")
	h.write("a", strings.Repeat("x", maxFile+1))
	h.write("b", "2\n")
	v := h.commit("x", "second")
	if got, err := h.Show(t.Context(), v.ID); err != nil || strings.Contains(got, "a/a") {
		t.Errorf("Show = %.200q, %v", got, err)
	}
}

func TestRemove(t *testing.T) {
	h := newHistory(t)
	h.write("a", "secret\n")
	h.commit("x", "first")
	if err := h.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"versions", "version_files"} {
		var n int
		err := h.store.db.Read(t.Context()).QueryRow("SELECT count(*) FROM " + table).Scan(&n)
		if err != nil || n != 0 {
			t.Errorf("%s has %d rows, %v; want none", table, n, err)
		}
	}
	h.wantReasons()
	h.commit("x", "anew")
	h.wantReasons("anew")
}

// Remove also removes what an earlier version of the gateway has kept of the history, and nothing
// else.
func TestRemoveBefore(t *testing.T) {
	h := newHistory(t)
	h.store.opts.Before = t.TempDir()
	for _, name := range []string{"person-1.git", "person-1.git.damaged-20260102", "person-1.versions",
		"person-1.lock", "person-10.git"} {
		check := os.MkdirAll(filepath.Join(h.store.opts.Before, name, "objects"), 0o700)
		if check != nil {
			t.Fatal(check)
		}
	}
	if err := h.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(h.store.opts.Before)
	if err != nil || len(left) != 1 || left[0].Name() != "person-10.git" {
		t.Errorf("left are %v, %v; want person-10.git", left, err)
	}
}

// Git imports an export as the same history.
func TestExport(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("git is not installed")
	}
	h := newHistory(t)
	h.write(`odd "name" \n`, "a\x00b")
	h.write("MEMORY.md", "1\n")
	h.commit("Dream", "learned\n\nmuch")
	h.write("MEMORY.md", "")
	if err := os.Remove(filepath.Join(h.folder, `odd "name" \n`)); err != nil {
		t.Fatal(err)
	}
	h.commit("a person", "by hand")
	var stream bytes.Buffer
	if err := h.Export(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(stdin io.Reader, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), git, append([]string{"-C", dir}, args...)...)
		cmd.Stdin = stdin
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(nil, "init", "-q", "-b", "main")
	run(&stream, "fast-import", "--quiet")
	const log = "a person: by hand\nDream: learned\n"
	if got := run(nil, "log", "--format=%an: %s"); got != log {
		t.Errorf("git log = %q, want %q", got, log)
	}
	if got := run(nil, "show", "main~1:odd \"name\" \\n"); got != "a\x00b" {
		t.Errorf("the first version has %q", got)
	}
	if got := run(nil, "ls-tree", "--name-only", "main"); got != "MEMORY.md\n" {
		t.Errorf("the second version has %q", got)
	}
}

func TestConcurrent(t *testing.T) {
	h := newHistory(t)
	var wg sync.WaitGroup
	for i := range 4 {
		// Each goroutine has its own store, like another process.
		other := openHistory(t, h.dir, h.folder, true)
		wg.Go(func() {
			for j := range 5 {
				name := fmt.Sprintf("%d-%d", i, j)
				path := filepath.Join(h.folder, name)
				err := errors.Join(os.MkdirAll(h.folder, 0o700), os.WriteFile(path, nil, 0o600))
				if err != nil {
					t.Error(err)
				}
				if _, err := other.Commit(t.Context(), Change{Reason: name}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list, err := h.Log(t.Context(), 0)
	if err != nil || len(list) == 0 {
		t.Fatalf("Log = %v, %v", list, err)
	}
	f, err := h.find(t.Context(), list[0].ID)
	if err != nil || len(f.after) != 20 {
		t.Errorf("the last of %d versions has %d files, %v; want 20", len(list), len(f.after), err)
	}
}

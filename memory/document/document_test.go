package document

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/memory"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A fixture is a folder with a workspace and a folder for the scopes.
type fixture struct {
	*Documents
	workspace, scopes string
}

const ann = memory.Scope("person-1")

func newFixture(t testing.TB, o *Options) *fixture {
	t.Helper()
	home := t.TempDir()
	f := &fixture{workspace: filepath.Join(home, "workspace"), scopes: filepath.Join(home, "memory")}
	f.Documents = New(openRoot(t, f.workspace), openRoot(t, f.scopes), o)
	return f
}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// age sets the time of a file to one hour ago.
func age(t testing.TB, path string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	tests := []struct {
		name, content string
		want          Doc
	}{
		{"plain", "Ann\n", Doc{Text: "Ann"}},
		{"empty", "", Doc{}},
		{"CRLF and a mark", "\ufeffa\r\nb\r\n", Doc{Text: "a\nb"}},
		{"Latin-1", "caf\xe9", Doc{Text: "caf\ufffd"}},
		{"UTF-16", "\xff\xfea\x00\n\x00b\x00", Doc{Text: "a\nb"}},
		{"binary", "\x7fELF\x00\x01", Doc{Problem: "USER.md can't be read: it is not text"}},
		{"at the limit", strings.Repeat("x", 40), Doc{Text: strings.Repeat("x", 40)}},
		{"long", strings.Repeat("0123456789\n", 5), Doc{
			Text: "0123456789\n0123456789\n0123456789\n[… 22 more bytes of USER.md are left out: " +
				"it is too long. Condense it, and keep what matters.]"}},
		{"long line", strings.Repeat("ä", 30), Doc{
			Text: strings.Repeat("ä", 20) + "\n[… 20 more bytes of USER.md are left out: " +
				"it is too long. Condense it, and keep what matters.]"}},
	}
	f := newFixture(t, &Options{MaxTokens: 10})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Name, tt.want.Hash = User, hashOf(tt.content)
			write(t, filepath.Join(f.workspace, User), tt.content)
			write(t, filepath.Join(f.scopes, string(ann), User), tt.content)
			if got := f.Shared(User); got != tt.want {
				t.Errorf("shared: %+v\nwant %+v", got, tt.want)
			}
			if got := f.Doc(ann, User); got != tt.want {
				t.Errorf("of a scope: %+v\nwant %+v", got, tt.want)
			}
		})
	}
	for _, doc := range []Doc{f.Shared(Soul), f.Doc(ann, Soul), f.Doc("", User),
		f.Doc("person-2", User), New(nil, nil, nil).Shared(User)} {
		if doc.Text+doc.Hash+doc.Problem+doc.Prompt() != "" {
			t.Errorf("what isn't there is %+v", doc)
		}
	}
}

// An unchanged document is not read again. A changed document is.
func TestCache(t *testing.T) {
	f := newFixture(t, nil)
	path := filepath.Join(f.workspace, User)
	want := func(what, text string) {
		t.Helper()
		if got := f.Shared(User); got.Text != text || text != "" && got.Hash != hashOf(text) {
			t.Errorf("%s: %+v, want %q", what, got, text)
		}
	}
	write(t, path, "1111")
	age(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	want("first", "1111")
	// This change can only be noticed by reading the file.
	write(t, path, "xxxx")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	want("unchanged as far as the times tell", "1111")

	write(t, path, "2222")
	want("written in place", "2222")
	write(t, path+"~", "3333")
	age(t, path+"~")
	if err := os.Chtimes(path+"~", info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
	want("replaced by another with the same time and size", "3333")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("removed", "")
	write(t, path, "4444")
	want("made again", "4444")
	now := time.Now()
	for i := range 100 { // several changes within one tick of the file system's clock
		text := fmt.Sprintf("%04d", i)
		write(t, path, text)
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
		want("within a tick", text)
	}
}

// TestCacheLater changes a file within the same tick of the clock in which it was read. The
// change must be noticed, even if the next read comes much later.
func TestCacheLater(t *testing.T) {
	now := time.Now()
	f := newFixture(t, &Options{Now: func() time.Time { return now }})
	path := filepath.Join(f.workspace, User)
	write(t, path, "old!")
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	f.Shared(User)
	write(t, path, "new!")
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if got := f.Shared(User).Text; got != "new!" {
		t.Errorf("got %q, want what was written last", got)
	}
}

// TestConcurrent reads a document while another writer saves it as editors do. A reader never
// gets half a text.
func TestConcurrent(t *testing.T) {
	f := newFixture(t, nil)
	path := filepath.Join(f.scopes, string(ann), User)
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("line %d\n", i), 400) }
	write(t, path, text(0))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				doc := f.Doc(ann, User)
				first, _, _ := strings.Cut(doc.Text, "\n")
				if doc.Problem != "" || doc.Text+"\n" != strings.Repeat(first+"\n", 400) {
					t.Errorf("seen is %.40q…, %q", doc.Text, doc.Problem)
					return
				}
			}
		})
	}
	for i := range 300 {
		write(t, path+".swp", text(i))
		if err := os.Rename(path+".swp", path); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if got := f.Doc(ann, User).Text; got != strings.TrimSpace(text(299)) {
		t.Errorf("at the end there is %.40q…", got)
	}
}

func TestSave(t *testing.T) {
	f := newFixture(t, nil)
	path := filepath.Join(f.scopes, string(ann), Memory)
	if err := f.Save(ann, Memory, "1\n", ""); err != nil {
		t.Fatal(err)
	}
	wantMode(t, filepath.Dir(path), fs.ModeDir|0o700)
	wantMode(t, path, 0o600)
	text, hash, err := f.Read(ann, Memory)
	if err != nil || text != "1\n" || hash != hashOf("1\n") {
		t.Fatalf("Read = %q, %q, %v", text, hash, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(ann, Memory, "2\n", hash); err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o640)
	// A person has changed, created or removed the file meanwhile.
	for _, base := range []string{hash, ""} {
		if err := f.Save(ann, Memory, "3\n", base); !errors.Is(err, ErrChanged) {
			t.Errorf("Save on another base = %v, want %v", err, ErrChanged)
		}
	}
	if err := f.Save(ann, Soul, "3\n", hash); !errors.Is(err, ErrChanged) {
		t.Errorf("Save of what is gone = %v, want %v", err, ErrChanged)
	}
	if err := f.Create(ann, Memory, "3\n"); !errors.Is(err, ErrExists) {
		t.Errorf("Create = %v, want %v", err, ErrExists)
	}
	if err := f.Create(ann, "skills/tea/SKILL.md", "boil\n"); err != nil {
		t.Error(err)
	}
	if text, _, err := f.Read(ann, "skills/tea/SKILL.md"); err != nil || text != "boil\n" {
		t.Errorf("the skill is %q, %v", text, err)
	}
	if got := f.Doc(ann, Memory).Text; got != "2" {
		t.Errorf("there is %q, want what was saved", got)
	}
	if err := f.Save("", Soul, "kind\n", ""); err != nil || f.Shared(Soul).Text != "kind" {
		t.Errorf("shared: %v, %+v", err, f.Shared(Soul))
	}
	wantNoTraces(t, f)
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if info, err := os.Stat(path); err != nil || info.Mode() != want {
		t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
	}
}

func wantNoTraces(t *testing.T, f *fixture) {
	t.Helper()
	for _, dir := range []string{f.workspace, f.scopes} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".tmp") {
				t.Errorf("%s was left", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	f := newFixture(t, nil)
	for _, tt := range []struct {
		scope      memory.Scope
		name, text string
	}{
		{"../workspace", User, "x"}, {"person-1/..", User, "x"}, {"PERSON-1", User, "x"},
		{ann, "", "x"}, {ann, "..", "x"}, {ann, "../person-2/USER.md", "x"}, {ann, "/etc/x.md", "x"},
		{ann, "history.jsonl", "x"}, {ann, "dump/x.md", "x"}, {ann, "skills/../../x.md", "x"},
		{ann, ".hidden.md", "x"}, {ann, "skills/.git/config", "x"}, {ann, "skills//x", "x"},
		{ann, `a\b.md`, "x"}, {ann, "a:b.md", "x"}, {ann, "a\nb.md", "x"}, {"", "../x.md", "x"},
		{ann, User, "\xff"}, {ann, User, "a\x00b"}, {ann, User, strings.Repeat("x", maxSave+1)},
	} {
		err := f.Save(tt.scope, tt.name, tt.text, "")
		if err == nil || errors.Is(err, ErrChanged) {
			t.Errorf("Save(%q, %q, %.9q) = %v, want it refused", tt.scope, tt.name, tt.text, err)
		}
	}
	for _, dir := range []string{f.scopes, f.workspace} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v; want nothing", dir, entries, err)
		}
	}
}

// If a person and Dream save at the same time, no line is lost. One of the two gets an error.
func TestSaveConcurrent(t *testing.T) {
	f := newFixture(t, nil)
	if err := f.Create(ann, Memory, "0\n"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	saved := 0
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 50 {
				text, hash, err := f.Read(ann, Memory)
				if err == nil {
					err = f.Save(ann, Memory, fmt.Sprintf("%s%d-%d\n", text, i, j), hash)
				}
				if err == nil {
					mu.Lock()
					saved++
					mu.Unlock()
				} else if !errors.Is(err, ErrChanged) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	text, _, err := f.Read(ann, Memory)
	if n := strings.Count(text, "\n") - 1; err != nil || n != saved {
		t.Errorf("%d lines of %d are there, %v", n, saved, err)
	}
}

// A view reads each document once. It contains all changes that were made before the view.
func TestView(t *testing.T) {
	f := newFixture(t, nil)
	shared, own := filepath.Join(f.workspace, User), filepath.Join(f.scopes, string(ann), User)
	check := func(v *View, wantShared, wantOwn string) {
		t.Helper()
		if s, o := v.Shared(User).Text, v.Own(User).Text; s != wantShared || o != wantOwn {
			t.Errorf("it sees %q and %q, want %q and %q", s, o, wantShared, wantOwn)
		}
	}
	none := f.View(ann)
	check(none, "", "")
	write(t, shared, "one")
	write(t, own, "two")
	check(none, "", "")
	check(f.View(""), "one", "")
	before := f.View(ann)
	for _, path := range []string{shared, own} {
		age(t, path)
	}
	check(before, "one", "two")
	check(f.View(ann), "one", "two")
	write(t, shared, "three")
	write(t, own, "four")
	check(before, "one", "two")
	check(f.View(ann), "three", "four")
	if err := errors.Join(os.Remove(shared), os.Remove(own)); err != nil {
		t.Fatal(err)
	}
	check(f.View(ann), "", "")
}

// If many turns read documents while these change, a view never misses a change made before it.
func TestViewConcurrent(t *testing.T) {
	f := newFixture(t, nil)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f.View(ann).Shared(User)
				}
			}
		})
	}
	base := ""
	for i := range 100 {
		text := fmt.Sprint("version ", i)
		if err := f.Save("", User, text, base); err != nil {
			t.Fatal(err)
		}
		base = hashOf(text)
		if got := f.View(ann).Shared(User).Text; got != text {
			t.Errorf("a view sees %q after %q was saved", got, text)
		}
	}
	close(done)
	wg.Wait()
}

func BenchmarkWarm(b *testing.B) {
	f := newFixture(b, nil)
	for scope, path := range map[memory.Scope]string{
		"": filepath.Join(f.workspace, User), ann: filepath.Join(f.scopes, string(ann), User),
	} {
		write(b, path, strings.Repeat("0123456789\n", 2000))
		age(b, path)
		b.Run("scope "+string(scope), func(b *testing.B) {
			for b.Loop() {
				if f.doc(key{scope, User}, always).Text == "" {
					b.Fatal("it is empty")
				}
			}
		})
	}
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			f.Doc(ann, Soul)
		}
	})
	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v := f.View("person-2")
			for _, name := range PromptOrder {
				v.Shared(name)
			}
			v.Own(Soul)
			v.Own(User)
			v.Own(Memory)
		}
	})
}

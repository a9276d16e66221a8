package skills

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"gateway/store/plaintext"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// source creates a folder with the given files, to install from.
func source(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for file, text := range files {
		put(t, text, dir, file)
	}
	return dir
}

// tree returns the files below a folder with their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name) // the name is below dir
		files[filepath.ToSlash(rel)] = string(text)
		return err
	})
	check(t, err)
	return files
}

func TestInstall(t *testing.T) {
	f := newFixture(t, Options{})
	dir := source(t, "Some Folder", map[string]string{
		"SKILL.md": text("tea", "Make tea.", "Boil."), "scripts/boil.sh": "#!/bin/sh\n", "run": "#!/x",
		"notes/a.txt": "a", ".git/config": "secret", ".git/hooks/x": "y"})
	check(t, os.Chmod(filepath.Join(dir, "notes", "a.txt"), 0o755))
	p, err := f.Install(dir, false)
	if err != nil || len(p.Problems) > 0 {
		t.Fatalf("Install: %v, %q", err, p.Problems)
	}
	if s := p.Skill; s.Location != "skills/tea/SKILL.md" || s.Source != Shared ||
		s.Folder != "tea" {
		t.Errorf("installed as %+v", p.Skill)
	}
	want := map[string]string{"tea/SKILL.md": text("tea", "Make tea.", "Boil."),
		"tea/scripts/boil.sh": "#!/bin/sh\n", "tea/run": "#!/x", "tea/notes/a.txt": "a"}
	if got := tree(t, filepath.Join(f.workspace, "skills")); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var scripts []string
	for _, file := range p.Files {
		if file.Script {
			scripts = append(scripts, file.Name)
		}
	}
	if !slices.Equal(scripts, []string{"notes/a.txt", "run", "scripts/boil.sh"}) {
		t.Errorf("scripts %q", scripts)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "SKILL.md": 0o600,
		"notes/a.txt": 0o700} {
		info, err := os.Stat(filepath.Join(f.workspace, "skills", "tea", name))
		if check(t, err); info.Mode().Perm() != mode && filepath.Separator == '/' {
			t.Errorf("%q has mode %v, want %v", name, info.Mode().Perm(), mode)
		}
	}
	s := f.one("", Shared, "tea")
	if _, sum, err := f.files(s); err != nil || sum != p.Hash {
		t.Errorf("hash %s, %v; want that of what was installed, %s", sum, err, p.Hash)
	}

	// Another skill replaces it only with force, and then completely.
	other := source(t, "other", map[string]string{"skill.md": text("tea", "Other tea.", "b")})
	if _, err := f.Install(other, false); !errors.Is(err, ErrExists) {
		t.Errorf("installed over another: %v", err)
	}
	if s := f.one("", Shared, "tea"); s.Description != "Make tea." {
		t.Errorf("it was replaced: %+v", s)
	}
	if p, err = f.Install(other, true); err != nil || len(p.Problems) > 0 {
		t.Errorf("not installed by force: %v, %q", err, p.Problems)
	}
	want = map[string]string{"tea/skill.md": text("tea", "Other tea.", "b")}
	if got := tree(t, filepath.Join(f.workspace, "skills")); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// An installation removes the folder that a killed installation has left.
	left := filepath.Join(f.workspace, "skills", temporary())
	put(t, "x", left, "x")
	check(t, os.Chtimes(left, time.Now(), time.Now().Add(-2*time.Hour)))
	put(t, text("pot", "A pot.", "b"), f.workspace, "skills", "Pot", "SKILL.md")
	if p, err = f.Install(filepath.Join(f.workspace, "skills", "Pot"), false); err != nil ||
		p.Skill.Folder != "Pot" {
		t.Errorf("in its place, which is called otherwise: %v, %+v", err, p.Skill)
	}
	want["Pot/SKILL.md"] = text("pot", "A pot.", "b")
	if got := tree(t, filepath.Join(f.workspace, "skills")); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	check(t, f.Remove(f.one("", Shared, "Pot")))
	// A skill that is installed from its own folder is only checked.
	p, err = f.Install(filepath.Join(f.workspace, "skills", "tea"), false)
	if err != nil || p.Hash == "" || f.one("", Shared, "tea").Problem != "" {
		t.Errorf("in its place: %v, %+v", err, p)
	}
	check(t, f.Remove(f.one("", Shared, "tea")))
	if got := tree(t, filepath.Join(f.workspace, "skills")); len(got) > 0 {
		t.Errorf("left after removal: %v", got)
	}
	if err := f.Remove(f.one("", Builtin, "tmux")); err == nil {
		t.Error("a built-in skill was removed")
	}
}

// If the process was killed while it replaced a skill, before or after the second rename,
// recovery leaves one skill of that name and nothing else.
func TestRecover(t *testing.T) {
	old := func(name string) string { return replacedPrefix + "ABC-" + name }
	for name, recoverBy := range map[string]func(f *fixture) error{
		"start": func(f *fixture) error { return f.Recover() },
		"installation": func(f *fixture) error {
			dir := source(t, "pot", map[string]string{"SKILL.md": text("pot", "A pot.", "b")})
			_, err := f.Install(dir, false)
			return errors.Join(err, f.Remove(f.one("", Shared, "pot")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Options{})
			check(t, f.Recover()) // without a folder of skills
			dir := filepath.Join(f.workspace, "skills")
			before, after := text("tea-pot", "Old.", "b"), text("tea", "New.", "b")
			put(t, before, dir, old("tea-pot"), "SKILL.md")
			put(t, after, dir, old("tea"), "SKILL.md")
			put(t, after, dir, "tea", "SKILL.md")
			check(t, recoverBy(f))
			want := map[string]string{"tea-pot/SKILL.md": before, "tea/SKILL.md": after}
			if got := tree(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if s := f.one("", Shared, "tea-pot"); s.Problem != "" {
				t.Errorf("the old skill can't be used: %s", s.Problem)
			}
		})
	}
}

// If only root can remove a replaced skill, other skills can still be installed. The replaced
// skill does not come back when the new one is removed.
func TestRecoverRemains(t *testing.T) {
	f := newFixture(t, Options{})
	dir := filepath.Join(f.workspace, "skills")
	closed := filepath.Join(dir, replacedPrefix+"ABC-tea", "closed")
	put(t, text("tea", "New.", "b"), dir, "tea", "SKILL.md")
	put(t, "x", closed, "file")
	check(t, os.Chmod(closed, 0o500))
	defer func() {
		left, _ := filepath.Glob(filepath.Join(dir, ".*", "closed")) // the pattern is valid
		for _, dir := range left {
			check(t, os.Chmod(dir, 0o700))
		}
	}()
	check(t, f.Recover())
	from := source(t, "pot", map[string]string{"SKILL.md": text("pot", "A pot.", "b")})
	_, err := f.Install(from, false)
	check(t, err)
	f.one("", Shared, "pot")
	check(t, errors.Join(f.Remove(f.one("", Shared, "tea")), f.Recover()))
	if _, err := os.Stat(filepath.Join(dir, "tea")); !os.IsNotExist(err) {
		t.Errorf("the removed skill is back, or %v", err)
	}
}

// After a kill behind the second rename, the old skill is still there. It does not come back when
// the new one is removed.
func TestRemoveReplaced(t *testing.T) {
	f := newFixture(t, Options{})
	dir := filepath.Join(f.workspace, "skills")
	put(t, text("tea", "Old.", "b"), dir, replacedPrefix+"ABC-tea", "SKILL.md")
	put(t, text("tea", "New.", "b"), dir, "tea", "SKILL.md")
	check(t, errors.Join(f.Remove(f.one("", Shared, "tea")), f.Recover()))
	if got := tree(t, dir); len(got) > 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// TestInspect checks that odd files of a working skill are reported as remarks, not as problems.
func TestInspect(t *testing.T) {
	f := newFixture(t, Options{})
	f.skill("a", "Does it.")
	check(t, os.Symlink("SKILL.md", filepath.Join(f.workspace, "skills", "a", "l")))
	s := f.one("", Shared, "a")
	for range 2 { // the remarks that the library keeps do not grow
		p := f.Inspect(s)
		if len(p.Problems) > 0 || len(p.Skill.Remarks) != len(s.Remarks)+1 || p.Hash == "" ||
			len(p.Files) != 2 {
			t.Errorf("Inspect = %+v", p)
		}
	}
	f.skill("a", "---")
	if p := f.Inspect(f.one("", Shared, "a")); len(p.Problems) != 1 || p.Hash == "" {
		t.Errorf("Inspect of a broken skill = %+v", p)
	}
}

// TestInstallRefuses checks that folders that nobody should install are refused, and that nothing
// of them is copied.
// What the author's .git has does not matter: it is not installed.
func TestInstallFromRepository(t *testing.T) {
	f := newFixture(t, Options{})
	files := map[string]string{"SKILL.md": text("tea", "Make tea.", "Boil.")}
	for i := range maxFiles {
		files[fmt.Sprintf(".git/objects/%d", i)] = "x"
	}
	dir := source(t, "tea", files)
	check(t, os.Symlink("objects", filepath.Join(dir, ".git", "link")))
	if p, err := f.Check(dir); err != nil || len(p.Problems) > 0 || len(p.Files) != 1 {
		t.Errorf("Check: %v, %q, %d files", err, p.Problems, len(p.Files))
	}
	p, err := f.Install(dir, false)
	if err != nil || len(p.Problems) > 0 {
		t.Fatalf("Install: %v, %q", err, p.Problems)
	}
	if got := tree(t, filepath.Join(f.workspace, "skills")); len(got) != 1 {
		t.Errorf("%d files are installed, want 1", len(got))
	}
	// The hash of a skill that is installed from where it is has all its files, as Inspect has.
	own := filepath.Join(f.workspace, "skills", "tea")
	check(t, os.Mkdir(filepath.Join(own, ".git"), 0o700))
	check(t, os.WriteFile(filepath.Join(own, ".git", "x"), []byte("x"), 0o600))
	if p, err = f.Install(own, false); err != nil || len(p.Problems) > 0 {
		t.Fatalf("Install in place: %v, %q", err, p.Problems)
	}
	if there := f.Inspect(f.List("")[slices.IndexFunc(f.List(""), func(s Skill) bool {
		return s.Name == "tea"
	})]); there.Hash != p.Hash {
		t.Errorf("installed with %s, Inspect returns %s", p.Hash, there.Hash)
	}
}

func TestInstallRefuses(t *testing.T) {
	good := text("tea", "Make tea.", "b")
	tests := []struct {
		label string
		files map[string]string
		spoil func(t *testing.T, dir string)
		want  string // a part of the reason
	}{
		{"not a file", map[string]string{"a": "b"}, nil, "no SKILL.md"},
		{"broken", map[string]string{"SKILL.md": "---\n"}, nil, "never ended"},
		{"link", map[string]string{"SKILL.md": good}, func(t *testing.T, dir string) {
			check(t, os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")))
		}, "passwd is a link"},
		{"link inside", map[string]string{"SKILL.md": good}, func(t *testing.T, dir string) {
			check(t, os.Symlink("SKILL.md", filepath.Join(dir, "other.md")))
		}, "a link"},
		{"link to a folder", map[string]string{"SKILL.md": good}, func(t *testing.T, dir string) {
			check(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
		}, "a link"},
		{"linked file", map[string]string{"x": good}, func(t *testing.T, dir string) {
			check(t, os.Symlink("x", filepath.Join(dir, "SKILL.md")))
		}, "a link"},
		{"pipe", map[string]string{"SKILL.md": good}, func(t *testing.T, dir string) {
			makePipe(t, filepath.Join(dir, "p"))
		}, "a pipe"},
		{"pipe as file", map[string]string{"x": "y"}, func(t *testing.T, dir string) {
			makePipe(t, filepath.Join(dir, "SKILL.md"))
		}, "not a file"},
		{"backslash", map[string]string{"SKILL.md": good, `..\x`: "y"}, nil, "name"},
		{"colon", map[string]string{"SKILL.md": good, "a:b": "y"}, nil, "name"},
		{"control", map[string]string{"SKILL.md": good, "a\x1b[31mb": "y"}, nil, "name"},
		{"direction", map[string]string{"SKILL.md": good, "a\u202eb": "y"}, nil, "name"},
		{"not UTF-8", map[string]string{"SKILL.md": good, "a\xff": "y"}, nil, "name"},
		{"space behind", map[string]string{"SKILL.md": good, "a ": "y"}, nil, "name"},
		{"deep", map[string]string{"SKILL.md": good, strings.Repeat("d/", 20) + "x": "y"}, nil,
			"folders"},
		{"many", map[string]string{"SKILL.md": good}, func(t *testing.T, dir string) {
			for i := range maxFiles {
				put(t, "", dir, "m", fmt.Sprint(i))
			}
		}, "more than 1000 files"},
		{"huge", map[string]string{"SKILL.md": good, "big": ""}, func(t *testing.T, dir string) {
			check(t, os.Truncate(filepath.Join(dir, "big"), maxBytes)) // a sparse file
		}, "more than 64 MB"},
	}
	for _, tt := range tests {
		t.Run(tt.label, func(t *testing.T) {
			f := newFixture(t, Options{})
			dir := source(t, "tea", tt.files)
			if tt.spoil != nil {
				tt.spoil(t, dir)
			}
			p, err := f.Install(dir, true)
			if err != nil || !strings.Contains(strings.Join(p.Problems, "; "), tt.want) {
				t.Errorf("Install: %v, trouble %q; want %q", err, p.Problems, tt.want)
			}
			for _, text := range p.Problems {
				if plaintext.OneLine(text) != text {
					t.Errorf("trouble %q can't be shown", text)
				}
			}
			if got := tree(t, f.workspace); len(got) > 0 {
				t.Errorf("copied %v", got)
			}
		})
	}
	f := newFixture(t, Options{})
	if _, err := f.Install(filepath.Join(t.TempDir(), "nothing"), false); err == nil {
		t.Error("nothing was installed")
	}
	bad := source(t, "...", map[string]string{"SKILL.md": "no name"})
	if p, err := f.Install(bad, false); err == nil && len(p.Problems) == 0 {
		t.Errorf("installed as %+v", p.Skill)
	}
	// If the folder of skills is a link, nothing is installed.
	outside := t.TempDir()
	check(t, os.Symlink(outside, filepath.Join(f.workspace, "skills")))
	if _, err := f.Install(source(t, "tea", map[string]string{"SKILL.md": good}), true); err == nil {
		t.Error("installed through a link")
	}
	if got := tree(t, outside); len(got) > 0 {
		t.Errorf("written outside: %v", got)
	}
}

// TestHash checks that the hash changes with any difference of the files, and is otherwise the
// same.
func TestHash(t *testing.T) {
	l := New(nil)
	hash := func(files map[string]string, change func(dir string)) string {
		t.Helper()
		dir := source(t, "x", files)
		if change != nil {
			change(dir)
		}
		p, err := l.Check(dir)
		if check(t, err); p.Hash == "" {
			t.Fatalf("no hash: %q", p.Problems)
		}
		return p.Hash
	}
	base := map[string]string{"SKILL.md": "x", "a": "1", "b": "2"}
	seen := map[string]string{}
	for label, h := range map[string]string{
		"base":    hash(base, nil),
		"content": hash(map[string]string{"SKILL.md": "x", "a": "1", "b": "3"}, nil),
		"swapped": hash(map[string]string{"SKILL.md": "x", "a": "2", "b": "1"}, nil),
		"renamed": hash(map[string]string{"SKILL.md": "x", "a": "1", "c": "2"}, nil),
		"folder":  hash(map[string]string{"SKILL.md": "x", "a/b": "12"}, nil),
		"joined":  hash(map[string]string{"SKILL.md": "x", "a": "12", "b": ""}, nil),
		"missing": hash(map[string]string{"SKILL.md": "x", "a": "1"}, nil),
		"mode":    hash(base, func(dir string) { check(t, os.Chmod(filepath.Join(dir, "a"), 0o755)) }),
		"link":    hash(base, func(dir string) { check(t, os.Symlink("a", filepath.Join(dir, "l"))) }),
		"link 2":  hash(base, func(dir string) { check(t, os.Symlink("b", filepath.Join(dir, "l"))) }),
	} {
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", label, other)
		}
		seen[h] = label
	}
	same := hash(base, func(dir string) {
		check(t, os.Chtimes(filepath.Join(dir, "a"), time.Now(), time.Now().Add(-time.Hour)))
		check(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
		check(t, os.Chmod(filepath.Join(dir, "a"), 0o444))
	})
	if seen[same] != "base" {
		t.Errorf("a time changes the hash")
	}
}

func TestPins(t *testing.T) {
	f := newFixture(t, Options{})
	file := filepath.Join(t.TempDir(), "skills.json")
	pins := Pins(file)
	for _, name := range []string{"same", "changed", "gone"} {
		p, err := f.Install(source(t, name, map[string]string{
			"SKILL.md": text(name, "d", "b"), "x": "y"}), false)
		check(t, err)
		check(t, pins.Set(name, p.Hash))
	}
	f.skill("own", text("own", "d", "b"))
	f.skill("changed", text("changed", "d", "other"))
	check(t, os.RemoveAll(filepath.Join(f.workspace, "skills", "gone")))
	want := map[string]string{"changed": "changed since it was installed",
		"own": "not installed by you"}
	if got, err := pins.Review(t.Context(), f.Library); err != nil || !maps.Equal(got, want) {
		t.Errorf("Review = %v, %v; want %v", got, err, want)
	}
	if s := f.one("", Shared, "changed"); !s.Available() {
		t.Errorf("a changed skill can't be used: %+v", s)
	}
	info, err := os.Stat(file)
	if check(t, err); info.Mode().Perm() != 0o600 && filepath.Separator == '/' {
		t.Errorf("the file has mode %v", info.Mode())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pins.Review(ended, f.Library); !errors.Is(err, context.Canceled) {
		t.Errorf("Review with an ended context: %v", err)
	}
}

// TestDamagedPins checks that a damaged file makes Review report all skills, and that it can be
// replaced. Files of earlier versions are read, too.
func TestDamagedPins(t *testing.T) {
	for _, damage := range []string{"", "{", `{"skills": 7}`, `[]`, "\x00\x00",
		`{"skills": {"a": {"hash"`} {
		f := newFixture(t, Options{})
		f.skill("a", text("a", "d", "b"))
		dir := t.TempDir()
		put(t, damage, dir, "skills.json")
		pins := Pins(filepath.Join(dir, "skills.json"))
		got, err := pins.Review(t.Context(), f.Library)
		if err != nil || got["a"] != "not installed by you" {
			t.Errorf("%q: Review = %v, %v", damage, got, err)
		}
		p := f.Inspect(f.one("", Shared, "a"))
		check(t, pins.Set("a", p.Hash))
		if got, err := pins.Review(t.Context(), f.Library); err != nil || len(got) > 0 {
			t.Errorf("%q: Review = %v, %v after the skill was installed", damage, got, err)
		}
		put(t, fmt.Sprintf(`{"skills": {"a": {"hash": %q, "installed": "2026-11-03T04:05:06Z",
			"from": "/from"}}}`, p.Hash), dir, "skills.json")
		if got, err := pins.Review(t.Context(), f.Library); err != nil || len(got) > 0 {
			t.Errorf("%q: Review = %v, %v with an earlier file", damage, got, err)
		}
	}
}

func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "builtin-skills")
	check(t, Unpack(dir))
	l := New(nil)
	for _, s := range l.List("") {
		got, err := os.ReadFile(filepath.Join(filepath.Dir(dir), filepath.FromSlash(s.Location)))
		if err != nil || string(got) == "" {
			t.Errorf("%s: %v", s.Location, err)
		}
	}
	before := tree(t, dir)
	when := time.Now().Add(-time.Hour).Truncate(time.Second)
	file := filepath.Join(dir, "weather", "SKILL.md")
	check(t, os.Chtimes(file, when, when))
	put(t, "tampered", dir, "tmux", "SKILL.md")
	check(t, os.Remove(filepath.Join(dir, "github", "SKILL.md")))
	put(t, "somebody's", dir, "mine", "SKILL.md")
	check(t, Unpack(dir))
	after := tree(t, dir)
	if after["mine/SKILL.md"] == "" {
		t.Error("what isn't ours was removed")
	}
	delete(after, "mine/SKILL.md")
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("what was spoilt is not as it was")
	}
	if info, err := os.Stat(file); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("what is the same was written again: %v", err)
	}
}

// TestUnpackOlder checks that files that an older version has unpacked are removed, and nothing
// else.
func TestUnpackOlder(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside.md")
	put(t, "x", outside)
	dir = filepath.Join(dir, "skills")
	older := fstest.MapFS{"b/old/SKILL.md": {Data: []byte("old")}, "b/old/x/y": {Data: []byte("y")},
		"b/kept/SKILL.md": {Data: []byte("1")}, "b/kept/z": {Data: []byte("z")}}
	check(t, unpack(dir, older, "b"))
	put(t, "own", dir, "old", "own.md")
	check(t, unpack(dir, fstest.MapFS{"b/kept/SKILL.md": {Data: []byte("2")}}, "b"))
	want := map[string]string{"kept/SKILL.md": "2", "old/own.md": "own",
		".unpacked": "kept/SKILL.md\n"}
	if got := tree(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	put(t, "../outside.md\n/etc/nothing\n.\n\n", dir, manifest)
	check(t, unpack(dir, fstest.MapFS{"b/kept/SKILL.md": {Data: []byte("2")}}, "b"))
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside: %v", err)
	}
}

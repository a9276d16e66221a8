package skills

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/store/plaintext"
)

// A fixture is a workspace with skills, and a memory with the skills of scopes.
type fixture struct {
	*Library
	t         *testing.T
	workspace string
	memory    string
	bins      map[string]bool
	log       *bytes.Buffer
}

func newFixture(t *testing.T, opts Options) *fixture {
	t.Helper()
	f := &fixture{t: t, workspace: t.TempDir(), memory: t.TempDir(),
		bins: make(map[string]bool), log: new(bytes.Buffer)}
	opts.Shared, opts.Memory = openRoot(t, f.workspace), openRoot(t, f.memory)
	if opts.LookPath == nil {
		opts.LookPath = func(name string) bool { return f.bins[name] }
	}
	opts.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	f.Library = New(&opts)
	return f
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return root
}

// put writes a file and creates its folders.
func put(t *testing.T, text string, elements ...string) {
	t.Helper()
	file := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// skill writes a skill in the workspace.
func (f *fixture) skill(name, text string) {
	put(f.t, text, f.workspace, "skills", name, "SKILL.md")
}

// found writes a skill in the memory of a scope.
func (f *fixture) found(scope, name, text string) {
	put(f.t, text, f.memory, scope, "skills", name, "SKILL.md")
}

// one returns the skill in a folder.
func (f *fixture) one(scope string, source Source, folder string) Skill {
	f.t.Helper()
	for _, s := range f.List(scope) {
		if s.Source == source && s.Folder == folder {
			return s
		}
	}
	f.t.Fatalf("no skill %s of %s in %v", folder, source, names(f.List(scope)))
	return Skill{}
}

func names(list []Skill) []string {
	var names []string
	for _, s := range list {
		names = append(names, fmt.Sprintf("%s/%s", s.Source, s.Name))
	}
	return names
}

// text returns the content of a SKILL.md file.
func text(name, description, body string, more ...string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n" +
		strings.Join(append(more, ""), "\n") + "---\n" + body + "\n"
}

func TestBuiltin(t *testing.T) {
	l := New(&Options{LookPath: func(string) bool { return true },
		Config: func(string) bool { return true }})
	want := []string{"github", "memory", "schedule", "skill-creator", "summarize", "tmux", "weather"}
	var got []string
	for _, s := range l.List("") {
		got = append(got, s.Name)
		if !s.Available() || len(s.Remarks) > 0 || s.Always {
			t.Errorf("%s: missing %q, problem %q, remarks %q, always %v", s.Name, s.Missing, s.Problem,
				s.Remarks, s.Always)
		}
		body, err := l.Body(s)
		if err != nil || !strings.HasPrefix(body, "# ") || !strings.Contains(body, "\n## Example\n") &&
			s.Name != "weather" && s.Name != "skill-creator" {
			t.Errorf("%s: %v, %.40q", s.Name, err, body)
		}
		if lines := strings.Count(body, "\n"); lines > 80 {
			t.Errorf("%s has %d lines; a skill is short", s.Name, lines)
		}
		if s.Location != "builtin-skills/"+s.Name+"/SKILL.md" {
			t.Errorf("%s is at %s", s.Name, s.Location)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("built in are %v, want %v", got, want)
	}
}

func TestPrecedence(t *testing.T) {
	f := newFixture(t, Options{Disabled: []string{"Tmux"}})
	f.skill("weather", text("weather", "mine", "w"))
	f.skill("github", "---\nunclosed")
	f.skill("other", text("deploy", "d1", "1"))
	f.skill("deploy", text("deploy", "d2", "2"))
	f.found("person-1", "weather", text("weather", "found", "f", "always: true"))
	f.found("person-1", "tea", text("tea", "Make tea.", "t", "always: true"))
	f.found("person-2", "coffee", text("coffee", "secret of two", "c"))

	list := f.List("person-1")
	want := []string{"shared/deploy", "shared/deploy", "shared/github", "builtin/github",
		"builtin/memory", "builtin/schedule", "builtin/skill-creator", "builtin/summarize", "found/tea",
		"builtin/tmux", "shared/weather", "found/weather"}
	if got := names(list); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if s := f.one("person-1", Shared, "weather"); s.Description != "mine" || !s.Available() {
		t.Errorf("the workspace's weather: %+v", s)
	}
	if s := f.one("person-1", Shared, "github"); !strings.Contains(s.Problem, "never ended") {
		t.Errorf("a broken skill of the workspace: %+v", s)
	}
	if s := f.one("person-1", Shared, "other"); !strings.Contains(s.Problem, "skills/deploy/") {
		t.Errorf("a second skill with that name: %+v", s)
	}
	if s := f.one("person-1", Shared, "deploy"); s.Problem != "" {
		t.Errorf("the skill that is called like its folder: %+v", s)
	}
	if s := f.one("person-1", Found, "weather"); !strings.Contains(s.Problem, "skills/weather/") {
		t.Errorf("a found skill hides another: %+v", s)
	}
	if s := f.one("person-1", Found, "tea"); s.Always || !s.Available() || s.Scope != "person-1" ||
		s.Location != "memory/skills/tea/SKILL.md" {
		t.Errorf("a found skill: %+v", s)
	}
	if s := f.one("", Builtin, "tmux"); !s.Disabled || s.Available() {
		t.Errorf("a disabled skill: %+v", s)
	}
	if text := activeOf(f.Library, "person-1"); text != "" {
		t.Errorf("what nobody decided is always active: %q", text)
	}
}

// TestScopes checks that a scope sees only its own skills, even if its name is invalid or leads
// elsewhere.
func TestScopes(t *testing.T) {
	f := newFixture(t, Options{})
	f.found("person-1", "one", text("one", "of one", "1"))
	f.found("person-2", "two", text("two", "secret of two", "2"))
	put(t, text("skills", "root", "r"), f.memory, "skills", "root", "SKILL.md")
	link := func(target string, elements ...string) {
		t.Helper()
		check(t, os.Symlink(target, filepath.Join(append([]string{f.memory}, elements...)...)))
	}
	link("../../person-2/skills/two", "person-1", "skills", "two")
	link("../../../person-2/skills/two/SKILL.md", "person-1", "skills", "one", "other.md")
	link("person-2", "person-3")
	if err := os.Mkdir(filepath.Join(f.memory, "person-4"), 0o700); err != nil {
		t.Fatal(err)
	}
	link("../person-2/skills", "person-4", "skills")
	for _, scope := range []string{"", "person-1", "person-3", "person-4", ".", "..",
		"person-1/../person-2", "/person-2", "person-2/", `..\person-2`,
		"person-5", "person-2/skills/.."} {
		shown := summaryOf(f.Library, scope) + activeOf(f.Library, scope)
		for _, s := range f.Mentioned(scope, "$two $one") {
			shown += s.Name
		}
		if strings.Contains(shown, "secret of two") {
			t.Errorf("scope %q sees another's:\n%s", scope, shown)
		}
		if got := strings.Contains(shown, "of one"); got != (scope == "person-1") {
			t.Errorf("scope %q sees the skills of person-1: %v", scope, got)
		}
	}
	two := f.one("person-2", Found, "two")
	two.Scope = "person-1"
	if body, err := f.Body(two); err == nil {
		t.Errorf("Body of another's skill = %q, want an error", body)
	}
	two.Scope = ""
	if body, err := f.Body(two); err == nil {
		t.Errorf("Body of nobody's skill = %q, want an error", body)
	}
	if got, err := f.Scopes(); err != nil || !slices.Equal(got, []string{"person-1", "person-2"}) {
		t.Errorf("Scopes = %v, %v", got, err)
	}
}

func TestMissing(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := newFixture(t, Options{OS: "linux", Now: func() time.Time { return now },
		Env:    func(name string) bool { return name == "THERE" },
		Config: func(key string) bool { return key == "exec.network" }})
	f.skill("much", text("much", "d", "b", `metadata: {"nanobot": {"requires": {"bins": ["gh", "sh"],`+
		` "anyBins": ["a", "b"], "env": ["THERE", "TOKEN"], "config": ["exec.network", "x.y"],`+
		` "os": ["darwin", "windows"]}}}`))
	f.skill("path", text("path", "d", "b", "requires: {bins: ../../bin/sh}"))
	f.bins["sh"], f.bins["../../bin/sh"] = true, true
	want := []string{"program gh", "one of the programs a, b", "environment variable TOKEN",
		"setting x.y", "darwin or windows instead of linux"}
	if got := f.one("", Shared, "much").Missing; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
	if got := f.one("", Shared, "path").Missing; len(got) != 1 {
		t.Errorf("a program in a folder: missing %q", got)
	}
	f.bins["gh"], f.bins["b"] = true, true
	if got := f.one("", Shared, "much").Missing; !slices.Equal(got, want) {
		t.Errorf("at once missing %q, want %q", got, want)
	}
	now = now.Add(answerTime)
	if got := f.one("", Shared, "much").Missing; !slices.Equal(got, want[2:]) {
		t.Errorf("later missing %q, want %q", got, want[2:])
	}
}

// TestIrregularFiles checks the problems of links, pipes and other files in the place of a skill.
func TestIrregularFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no links and pipes")
	}
	f := newFixture(t, Options{})
	dir := filepath.Join(f.workspace, "skills")
	outside := filepath.Join(t.TempDir(), "SKILL.md")
	put(t, text("outside", "secret outside", "b"), outside)
	f.skill("good", text("good", "Good.", "b"))
	put(t, "x", dir, "README.md")
	put(t, "x", dir, ".hidden", "SKILL.md")
	put(t, text("lower", "Lower.", "b"), dir, "lower", "skill.md")
	put(t, text("title", "Title.", "b"), dir, "title", "Skill.md")
	put(t, "x", dir, "without", "notes.md")
	put(t, "x", dir, "folder", "SKILL.md", "x")
	put(t, strings.Repeat("x", maxFile+1), dir, "huge", "SKILL.md")
	put(t, text("../../etc", "Path.", "b"), dir, "path", "SKILL.md")
	put(t, text("x", "Bad folder.", "b"), dir, "a\u202eb", "SKILL.md")
	put(t, "Bad folder.", dir, "\x1b[31m", "SKILL.md")
	for _, name := range []string{"pipe", "link-file", "link-out", "link-in"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target string, elements ...string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(append([]string{dir}, elements...)...)); err != nil {
			t.Fatal(err)
		}
	}
	link(outside, "link-out", "SKILL.md")
	link("../good/SKILL.md", "link-in", "SKILL.md")
	link("nothing", "link-file", "SKILL.md")
	link("good", "linked")
	link(filepath.Dir(outside), "folder-out")
	link("link-loop", "link-loop")
	makePipe(t, filepath.Join(dir, "pipe", "SKILL.md"))
	want := map[string]string{ // a part of the problem by folder; "" for none
		"good": "", "lower": "", "title": "", "path": "", "a\u202eb": "", "\x1b[31m": "can be shown",
		"without": "no SKILL.md", "folder": "not a file", "huge": "larger than", "pipe": "not a file",
		"link-out": "leads out", "folder-out": "leads out", "link-file": "leads nowhere",
		"link-in": "another skill", "linked": "another skill", "link-loop": "",
	}
	for _, s := range f.List("") {
		problem, ok := want[s.Folder]
		if s.Source == Builtin {
			continue
		}
		delete(want, s.Folder)
		if !ok || !strings.Contains(s.Problem, problem) || (problem == "") != (s.Problem == "") &&
			s.Folder != "link-loop" {
			t.Errorf("%q: problem %q, want %q", s.Folder, s.Problem, problem)
		}
		if s.Name != plaintext.OneLine(s.Name) || strings.Contains(s.Name, "/") {
			t.Errorf("%q: name %q", s.Folder, s.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %q", want)
	}
	shown := summaryOf(f.Library, "")
	if strings.Contains(shown, "secret") || strings.ContainsAny(shown, "\x1b\u202e") {
		t.Errorf("the list has what it should not:\n%s", shown)
	}
	if s := f.one("", Shared, "lower"); s.Location != "skills/lower/skill.md" {
		t.Errorf("location %s", s.Location)
	}
}

// TestHandEdits checks that each change that a person makes to the files is visible at the next
// call.
func TestHandEdits(t *testing.T) {
	f := newFixture(t, Options{})
	file := filepath.Join(f.workspace, "skills", "a", "SKILL.md")
	var age time.Duration // the age of the files: young files are read each time, old ones are not
	describe := func(want string) {
		t.Helper()
		for range 2 {
			got := ""
			for _, s := range f.List("") {
				if s.Folder == "a" {
					got = s.Description + s.Problem
				}
			}
			if !strings.Contains(got, want) || (want == "") != (got == "") {
				t.Fatalf("age %v: %q, want %q", age, got, want)
			}
		}
	}
	old := func() {
		when := time.Now().Add(-age)
		for _, name := range []string{file, filepath.Dir(file), filepath.Dir(filepath.Dir(file))} {
			if _, err := os.Stat(name); err == nil {
				check(t, os.Chtimes(name, when, when))
			}
		}
		age += time.Minute // each state has another time
	}
	for _, age = range []time.Duration{0, time.Hour} {
		describe("")
		put(t, text("a", "one", "b"), file)
		old()
		describe("one")
		put(t, text("a", "two", "b"), file) // truncated and written again with the same size
		old()
		describe("two")
		put(t, "---\nname: a\nde", file) // half written
		old()
		describe("never ended")
		put(t, text("a", "three", "b"), file)
		old()
		describe("three")
		put(t, text("a", "four", "b"), f.workspace, "skills", "a", ".SKILL.md.swp") // as vim does
		check(t, os.Rename(filepath.Join(filepath.Dir(file), ".SKILL.md.swp"), file))
		old()
		describe("four")
		check(t, os.Remove(file))
		old()
		describe("no SKILL.md")
		put(t, text("a", "five", "b"), f.workspace, "skills", "a", "skill.md")
		old()
		describe("five")
		put(t, text("a", "six", "b"), file)
		old()
		describe("six")
		check(t, os.RemoveAll(filepath.Dir(file)))
		old()
		describe("")
		put(t, text("a", "seven", "b"), f.workspace, "skills", ".new", "SKILL.md")
		check(t, os.Rename(filepath.Join(f.workspace, "skills", ".new"), filepath.Dir(file)))
		old()
		describe("seven")
		check(t, os.RemoveAll(filepath.Join(f.workspace, "skills")))
		describe("")
	}
}

// TestOldEdits checks that changes behind links and in one scope are noticed, even if all times
// look old.
func TestOldEdits(t *testing.T) {
	f := newFixture(t, Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	put(t, "One.", f.workspace, "skills", "a", "text.md")
	check(t, os.Symlink("text.md", filepath.Join(f.workspace, "skills", "a", "SKILL.md")))
	put(t, "Two.", f.workspace, "skills", ".b", "SKILL.md")
	check(t, os.Symlink(".b", filepath.Join(f.workspace, "skills", "b")))
	f.found("person-1", "c", "Three.")
	for _, want := range []string{"One. Two. Three.", "One! Two! Three!"} {
		for range 2 {
			got := f.one("person-1", Shared, "a").Description + " " +
				f.one("person-1", Shared, "b").Description + " " +
				f.one("person-1", Found, "c").Description
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		put(t, "One!", f.workspace, "skills", "a", "text.md")
		put(t, "Two!", f.workspace, "skills", ".b", "SKILL.md")
		f.found("person-1", "c", "Three!")
	}
	f.found("person-1", "d", "Four.")
	f.one("person-1", Found, "d")
}

// TestReplaced checks that another file with the same size and time is noticed.
func TestReplaced(t *testing.T) {
	f := newFixture(t, Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	when := time.Now().Add(-time.Hour).Truncate(time.Second)
	file := filepath.Join(f.workspace, "skills", "a", "SKILL.md")
	for _, want := range []string{"One.", "Two."} {
		put(t, want, file+"~")
		check(t, os.Chtimes(file+"~", when, when))
		check(t, os.Rename(file+"~", file))
		if got := f.one("", Shared, "a").Description; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f.found("person-1", "c", "Three.")
	f.one("person-1", Found, "c")
	f.found("person-1", "c", "Three, and more.")
	if got := f.one("person-1", Found, "c").Description; got != "Three, and more." {
		t.Errorf("got %q of a scope", got)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFolderOfSkills checks a file, a link and too many skills in the place of the folder of
// skills.
func TestFolderOfSkills(t *testing.T) {
	f := newFixture(t, Options{})
	put(t, "x", f.workspace, "skills")
	for range 3 {
		if got := len(f.List("")); got != 7 || strings.Count(f.log.String(), "not a folder") != 1 {
			t.Errorf("%d skills, log %s", got, f.log)
		}
	}
	check(t, os.Remove(filepath.Join(f.workspace, "skills")))
	outside := t.TempDir()
	put(t, text("a", "d", "b"), outside, "a", "SKILL.md")
	check(t, os.Symlink(outside, filepath.Join(f.workspace, "skills")))
	if got := len(f.List("")); got != 7 {
		t.Errorf("%d skills with a link that leads out", got)
	}
	check(t, os.Remove(filepath.Join(f.workspace, "skills")))
	for i := range maxSkills + 2 {
		f.skill(fmt.Sprintf("s%04d", i), "Does it.")
	}
	list := f.List("")
	if got := len(list); got != maxSkills+2+7 {
		t.Errorf("%d skills are listed", got)
	}
	if s := f.one("", Shared, "s0501"); !strings.Contains(s.Problem, "more than 500") {
		t.Errorf("one too many: %+v", s)
	}
}

// If there are more folders than List returns, it returns the first ones by name. The last of
// them says how many more there are. The file system has its own order.
func TestFoldersBeyondTheList(t *testing.T) {
	f := newFixture(t, Options{})
	const more = 3
	for i := range maxEntries + more {
		check(t, os.MkdirAll(filepath.Join(f.workspace, "skills", fmt.Sprintf("s%04d", i)), 0o700))
	}
	if got, want := len(f.List("")), maxEntries+7; got != want {
		t.Errorf("%d skills are listed, want %d", got, want)
	}
	last := f.one("", Shared, fmt.Sprintf("s%04d", maxEntries-1))
	if want := "neither it nor the 3 folders after it"; !strings.Contains(last.Problem, want) {
		t.Errorf("the last one: %+v, want %q", last, want)
	}
}

// TestConcurrent lists skills while they change.
func TestConcurrent(t *testing.T) {
	f := newFixture(t, Options{})
	f.skill("steady", text("steady", "Steady.", "b", "always: true"))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			scope := fmt.Sprintf("person-%d", i%2)
			for range 50 {
				if s := activeOf(f.Library, scope); !strings.Contains(s, "steady") {
					t.Errorf("active: %q", s)
				}
				if s := summaryOf(f.Library, scope); !strings.Contains(s, `name="weather"`) {
					t.Errorf("summary: %q", s)
				}
				f.Mentioned(scope, "$steady $moving")
			}
		})
	}
	for i := range 50 {
		f.skill("moving", text("moving", fmt.Sprint("Moves ", i), "b"))
		f.found("person-1", "moving", text("moving", fmt.Sprint("Moves ", i), "b"))
		if i%5 == 0 {
			check(t, os.RemoveAll(filepath.Join(f.workspace, "skills", "moving")))
		}
	}
	wg.Wait()
}

// Scopes without own skills share one cached text. If a scope gets a skill, only this scope sees
// it at the next look, until the skill is removed.
func TestSkillsOfOneScopeComeAndGo(t *testing.T) {
	f := newFixture(t, Options{})
	f.skill("steady", text("steady", "Steady.", "b"))
	all := summaryOf(f.Library, "")
	for i := range 10 {
		if got := summaryOf(f.Library, fmt.Sprintf("person-%d", i+1)); got != all {
			t.Errorf("person-%d sees\n%s\nwant\n%s", i+1, got, all)
		}
	}
	if got := len(f.views); got != 1 {
		t.Errorf("%d texts are remembered, want 1", got)
	}
	f.found("person-1", "tea", text("tea", "Make tea.", "b"))
	if got := summaryOf(f.Library, "person-1"); !strings.Contains(got, `name="tea"`) {
		t.Errorf("person-1 doesn't see their new skill:\n%s", got)
	}
	if got := summaryOf(f.Library, "person-2"); got != all {
		t.Errorf("person-2 sees\n%s\nwant\n%s", got, all)
	}
	check(t, os.RemoveAll(filepath.Join(f.memory, "person-1", "skills")))
	if got := summaryOf(f.Library, "person-1"); got != all {
		t.Errorf("without their skill person-1 sees\n%s\nwant\n%s", got, all)
	}
}

// TestScopesAreForgotten checks that the cache of scopes is bounded.
func TestScopesAreForgotten(t *testing.T) {
	f := newFixture(t, Options{})
	for i := range 2 * maxScopes {
		scope := fmt.Sprintf("person-%d", i+1)
		f.found(scope, "a", text("a", "d", "b"))
		f.List(scope)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.folders); n > maxScopes+1 {
		t.Errorf("%d scopes are remembered, want at most %d", n, maxScopes+1)
	}
}

// TestUnreadable checks the problem of a file without read permission. Root can read it
// nevertheless.
func TestUnreadable(t *testing.T) {
	want := "it may not be read"
	if os.Geteuid() == 0 {
		want = ""
	}
	f := newFixture(t, Options{})
	f.skill("a", text("a", "d", "b"))
	file := filepath.Join(f.workspace, "skills", "a", "SKILL.md")
	check(t, os.Chmod(file, 0))
	if s := f.one("", Shared, "a"); s.Problem != want {
		t.Errorf("problem %q, want %q", s.Problem, want)
	}
	check(t, os.Chmod(file, 0o600))
	if s := f.one("", Shared, "a"); s.Problem != "" {
		t.Errorf("problem %q", s.Problem)
	}
}

package files

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// ignoreCases are the lines of .gitignore files, with paths that they exclude and paths that they
// don't.
var ignoreCases = []struct {
	lines string
	out   []string // excluded paths; a path that ends in "/" is a directory
	in    []string // paths that are not excluded
}{
	{"a.log", []string{"a.log", "x/a.log", "a.log/"}, []string{"ba.log", "a.logs"}},
	{"*.log", []string{"a.log", ".log", "x/y/b.log"}, []string{"a.log.txt", "log"}},
	{"build/", []string{"build/", "x/build/"}, []string{"build", "x/build", "builds/"}},
	{"/build", []string{"build", "build/"}, []string{"x/build"}},
	{"/*.txt", []string{"a.txt"}, []string{"x/a.txt"}},
	{"x/a", []string{"x/a"}, []string{"y/x/a", "a"}},
	{"x/*.c", []string{"x/a.c"}, []string{"x/y/a.c", "y/x/a.c"}},
	{"**/a", []string{"a", "x/a", "x/y/a"}, []string{"ba"}},
	{"x/**", []string{"x/a", "x/y/b"}, []string{"x/", "y/x/a"}},
	{"x/**/a", []string{"x/a", "x/y/a", "x/y/z/a"}, []string{"a", "y/a"}},
	{"x**y", []string{"xy", "xaby", "d/xay"}, []string{"x/y"}},
	{"a?c", []string{"abc"}, []string{"ac", "a/c", "abbc"}},
	{"[ab].o", []string{"a.o", "b.o"}, []string{"c.o", "ab.o"}},
	{"[!ab].o", []string{"c.o"}, []string{"a.o"}},
	{"[^ab].o", []string{"c.o"}, []string{"a.o"}},
	{"[a-c]1", []string{"b1"}, []string{"d1"}},
	{"[]x]1", []string{"]1", "x1"}, []string{"a1"}},
	{"[[x]1", []string{"[1", "x1"}, []string{"a1"}},
	{"[[:digit:]].n", []string{"7.n"}, []string{"a.n", ":.n"}},
	{"{a,b}.x", []string{"{a,b}.x"}, []string{"a.x", "b.x"}},
	{"*.{a,b}", []string{"x.{a,b}"}, []string{"x.a"}},
	{"*.log\n!keep.log", []string{"a.log"}, []string{"keep.log", "x/keep.log"}},
	{"!a\na", []string{"a"}, nil},
	{"# a\n\\#b\n\\!c", []string{"#b", "!c"}, []string{"# a", "a", "b", "c"}},
	{"a \nb\\ ", []string{"a", "b "}, []string{"a ", "b"}},
	{"a\r\nb", []string{"a", "b"}, []string{"a\r"}},
	{"\ufeffa", []string{"a"}, nil},
	{"\n\n/\n", nil, []string{"a", "x/"}},
	{"[\nb\\", nil, []string{"[", "b", "b\\"}},
	{"*", []string{"a", "x/", ".b"}, nil},
	{"*\n!*/\n!*.go", []string{"a", "x/b"}, []string{"x/", "a.go"}},
	{"\\*", []string{"*"}, []string{"a"}},
	{"über*", []string{"überall"}, []string{"uber"}},
}

func TestIgnoreRules(t *testing.T) {
	for _, c := range ignoreCases {
		g := &ignores{git: parseIgnores(c.lines)}
		for i, list := range [][]string{c.out, c.in} {
			for _, p := range list {
				rel, isDir := strings.CutSuffix(p, "/")
				if got, want := g.ignored(t.Context(), rel, isDir), i == 0; got != want {
					t.Errorf("%q leaves out %q: %t, want %t", c.lines, p, got, want)
				}
			}
		}
	}
}

// The table agrees with git.
func TestIgnoreRulesAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	for _, c := range ignoreCases {
		dir := t.TempDir()
		run := func(args ...string) (string, error) {
			cmd := exec.CommandContext(t.Context(), git, args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
			b, err := cmd.Output()
			return string(b), err
		}
		if _, err := run("init", "-q"); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, gitIgnore), c.lines)
		for i, list := range [][]string{c.out, c.in} {
			for _, p := range list {
				rel, isDir := strings.CutSuffix(p, "/")
				if isDir { // git checks the type of the file
					if err := os.MkdirAll(filepath.Join(dir, rel), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				_, err := run("check-ignore", "-q", "--no-index", "--", "./"+rel)
				if got, want := err == nil, i == 0; got != want {
					t.Errorf("%q leaves out %q for git: %t (%v), want %t", c.lines, p, got, err, want)
				}
				if isDir {
					if err := os.RemoveAll(filepath.Join(dir, rel)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// newIgnoring returns a fixture in which some files are excluded.
func newIgnoring(t testing.TB) *fixture {
	f := newFixture(t)
	for name, text := range map[string]string{
		".gitignore": "*.log\n/build/\n!keep.log\n", "a.log": "", "a.txt": "", "keep.log": "",
		"build/out.txt": "", "src/build/in.txt": "", "src/.gitignore": "*.tmp\n!b.log\n",
		"src/a.tmp": "", "src/a.log": "", "src/b.log": "", "a.tmp": "",
		"other/.ignore": "secret.*\n!c.log\n", "other/secret.txt": "", "other/c.log": "",
		"repo/.git/HEAD": "", "repo/d.log": "", "repo/e.txt": "",
	} {
		f.write(t, name, cmp.Or(text, "needle"))
	}
	return f
}

// Searches exclude files that .gitignore and .ignore files name. Such a file applies to its own
// directory and the directories below.
func TestIgnored(t *testing.T) {
	f := newIgnoring(t)
	left := func(n string) string {
		return "left out: " + n + " that .gitignore or .ignore name, unless ignored is true"
	}
	const git = "not searched: 1 named .git, unless path leads there"
	tests := []struct{ name, tool, args, want string }{
		{"glob", "glob", `pattern=**/*.{txt,log,tmp}`, "a.tmp\na.txt\nkeep.log\nother/c.log\n" +
			"repo/d.log\nrepo/e.txt\nsrc/b.log\nsrc/build/in.txt\n\n(" + git + "; " + left("5") + ")"},
		{"all", "glob", `pattern=**/*.{txt,log,tmp} ignored=true`, "a.log\na.tmp\na.txt\n" +
			"build/out.txt\nkeep.log\nother/c.log\nother/secret.txt\nrepo/d.log\nrepo/e.txt\nsrc/a.log\n" +
			"src/a.tmp\nsrc/b.log\nsrc/build/in.txt\n\n(" + git + ")"},
		{"nothing found", "glob", `pattern=./*.log path=src/..`, "keep.log\n\n(" + left("2") + ")"},
		{"from above", "glob", `pattern=./* path=src`,
			"src/.gitignore\nsrc/b.log\n\n(" + left("2") + ")"},
		{"named directory", "glob", `pattern=* path=build`, "build/out.txt"},
		{"named in the pattern", "glob", `pattern=build/*`, "build/out.txt"},
		{"named file", "glob", `pattern=src/a.log`, "src/a.log"},
		{"grep", "grep", `pattern=needle output_mode=files_with_matches`, "a.tmp\na.txt\nkeep.log\n" +
			"other/c.log\nrepo/d.log\nrepo/e.txt\nsrc/b.log\nsrc/build/in.txt\n\n(" +
			git + "; " + left("5") + ")"},
		{"grep a named file", "grep", `pattern=needle path=src/a.log`, "src/a.log:1:needle"},
		{"grep all", "grep", `pattern=needle path=src output_mode=files_with_matches ignored=true`,
			"src/a.log\nsrc/a.tmp\nsrc/b.log\nsrc/build/in.txt"},
		{"grep finds nothing", "grep", `pattern=needle glob=*.tmp path=src`,
			"(nothing matches the pattern)\n\n(" + left("2") + ")"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.call(t, tt.tool, pairs(tt.args)...)
			if err != nil || got != tt.want {
				t.Errorf("%s %s = %q, %v; want %q", tt.tool, tt.args, got, err, tt.want)
			}
		})
	}
}

// A directory with many entries is read in parts. The rules already apply to the first part.
func TestIgnoredAmongMany(t *testing.T) {
	f := newFixture(t)
	for i := range readAtOnce + 100 {
		f.write(t, "many/"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+
			strings.Repeat("y", i/50)+".log", "")
	}
	f.write(t, "many/one.txt", "")
	f.write(t, "many/.gitignore", "*.log\n")
	got, err := f.call(t, "glob", "pattern", "many/*.{log,txt}")
	if err != nil || !strings.HasPrefix(got, "many/one.txt\n\n(left out: ") {
		t.Errorf("glob = %.200q, %v; want one.txt alone", got, err)
	}
}

// A .gitignore that is a directory or a link to the outside is not used, and it causes no error.
func TestIgnoreFileThatIsNone(t *testing.T) {
	f := newFixture(t)
	f.write(t, "a/.gitignore/x", "")
	f.write(t, "a/y", "")
	f.write(t, "b/z", "")
	if err := os.Symlink("/etc/passwd", filepath.Join(f.dir, "b", gitIgnore)); err != nil {
		t.Fatal(err)
	}
	got, err := f.call(t, "glob", "pattern", "**")
	if want := "a/.gitignore/x\na/y\nb/z"; err != nil || got != want {
		t.Errorf("glob = %q, %v; want %q", got, err, want)
	}
}

func FuzzIgnore(f *testing.F) {
	for _, c := range ignoreCases {
		for _, p := range slices.Concat(c.out, c.in) {
			f.Add(c.lines, p)
		}
	}
	f.Fuzz(func(t *testing.T, lines, rel string) {
		rules := parseIgnores(lines)
		if len(rules) > maxIgnores {
			t.Errorf("%d rules", len(rules))
		}
		g := &ignores{git: rules}
		out := g.ignored(t.Context(), rel, false)
		// The last rule wins.
		if utf8.ValidString(rel) && rel != "" && !strings.ContainsAny(rel, "/\\*?[!#\r\n ") &&
			len(rel) <= maxPattern && !strings.HasPrefix(rel, "\ufeff") {
			g.git = parseIgnores(lines + "\n!" + rel)
			if len(rules) < maxIgnores && g.ignored(t.Context(), rel, false) {
				t.Errorf("%q leaves out %q although it is taken back (%t before)", lines, rel, out)
			}
		}
	})
}

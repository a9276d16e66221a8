package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gateway/agent/tool"
)

// newTree returns a fixture with files, directories and links.
func newTree(t testing.TB) *fixture {
	f := newFixture(t)
	for _, name := range []string{"a.go", "b.txt", "src/main.go",
		"src/deep/x_test.go", "src/deep/y.md",
		".git/config.go", "web/node_modules/m/index.go", ".hidden/h.go", "new\nline.go"} {
		f.write(t, name, "package x // "+name+"\n")
	}
	writeFile(t, filepath.Join(f.docs, "manual/d.go"), "package docs\n")
	writeFile(t, filepath.Join(f.media, here.Folder(), "photo.txt"), "of the conversation\n")
	writeFile(t, filepath.Join(f.media, "tg/other/secret.go"), "package secret\n")
	writeFile(t, filepath.Join(f.dir, "media/shadowed.go"), "package shadowed\n")
	for link, target := range map[string]string{
		"link.go": "a.go", "out.go": "/etc/passwd", "linkdir": "src", "up": "..",
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestGlob(t *testing.T) {
	const skipped = "not searched: 1 named .git, unless path leads there"
	f := newTree(t)
	f.write(t, "src/[id]/[...rest].ts", "x")              // frameworks for web pages use such names
	f.write(t, "cafe\u0301s/Re\u0301sume\u0301.txt", "x") // as macOS writes accents
	tests := []struct{ name, args, want string }{
		{"deep", `pattern=**/*.go`, ".hidden/h.go\na.go\nlink.go\n\"new\\nline.go\"\n" +
			"src/deep/x_test.go\nsrc/main.go\n\n(" + skipped +
			"; not searched: 1 named node_modules, unless path leads there)"},
		{"by name", `pattern=*_test.go`, "src/deep/x_test.go\n\n(" + skipped +
			"; not searched: 1 named node_modules, unless path leads there)"},
		{"one level", `pattern=./*.go`, "a.go\nlink.go\n\"new\\nline.go\"\n\n(" + skipped + ")"},
		{"base", `pattern=src/**/*.{md,go}`, "src/deep/x_test.go\nsrc/deep/y.md\nsrc/main.go"},
		{"path", `pattern=*/*.md path=src`, "src/deep/y.md"},
		{"absolute", `pattern=` + f.dir + `/src/*.go`, "src/main.go"},
		{"exact", `pattern=src/main.go`, "src/main.go"},
		{"directories", `pattern=src/* entry_type=dir`, "src/[id]/\nsrc/deep/"},
		{"directories by nanobot's name", `pattern=src/* entry_type=dirs`,
			"src/[id]/\nsrc/deep/"},
		{"any", `pattern=src/* entry_type=any`, "src/[id]/\nsrc/deep/\nsrc/main.go"},
		{"other tree", `pattern=docs/**/*.go`, "docs/manual/d.go"},
		{"other tree by path", `pattern=**/*.go path=` + f.docs, "docs/manual/d.go"},
		{"media", `pattern=media/*`, "media/photo.txt"},
		{"named", `pattern=*.go path=.git`, ".git/config.go"},
		{"paged", `pattern=**/*.go head_limit=2 offset=1 path=src`,
			"src/main.go\n\n(results 2 to 2 of 2)"},
		{"first", `pattern=**/*.go head_limit=1 path=src`,
			"src/deep/x_test.go\n\n(results 1 to 1 of 2; more with offset 1)"},
		{"separate accents", "pattern=café*/*", "cafe\u0301s/Re\u0301sume\u0301.txt\n\n(" +
			skipped + "; not searched: 1 named node_modules, unless path leads there)"},
		{"joined accents", "pattern=cafe\u0301s/R*e\u0301.txt", "cafe\u0301s/Re\u0301sume\u0301.txt"},
		{"brackets in a name", `pattern=src/[id]/*`, "src/[id]/[...rest].ts"},
		{"only brackets", `pattern=src/[id]/[...rest].ts`, "src/[id]/[...rest].ts"},
		{"a class", `pattern=src/[a-m]ain.go`, "src/main.go"},
		{"nothing", `pattern=*.zzz path=src`, "(nothing matches the pattern)"},
		{"beyond", `pattern=*.go path=src offset=5`, "there are only 2 results"},
		{"bad", `pattern=[`, "not a valid pattern"},
		{"empty", `pattern=`, "the pattern is empty"},
		{"outside", `pattern=../**`, "outside the workspace"},
		{"outside by link", `pattern=up/*`, "symbolic link that leads out"},
		{"root", `pattern=/etc/*`, "outside the workspace"},
		{"missing", `pattern=sorc/*`, `there is no "sorc"`},
		{"file", `pattern=a.go/*`, "is a file, not a directory"},
		{"type", `pattern=* entry_type=link`, "want file, dir or any"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.call(t, "glob", pairs(tt.args)...)
			if err != nil {
				if got = err.Error(); !strings.Contains(got, tt.want) {
					t.Errorf("glob %s: %v, want %q", tt.args, err, tt.want)
				}
			} else if got != tt.want {
				t.Errorf("glob %s = %q, want %q", tt.args, got, tt.want)
			}
		})
	}
}

// pairs splits "name=value name=value" into a list of names and values.
func pairs(args string) []any {
	var list []any
	for _, f := range strings.Fields(args) {
		name, value, _ := strings.Cut(f, "=")
		list = append(list, name, value) // the registry converts numbers
	}
	return list
}

// withDirs returns a workspace of 30 directories with a file each.
func withDirs(t *testing.T) (f *fixture, at place) {
	t.Helper()
	f = newFixture(t)
	for i := range 30 {
		f.write(t, fmt.Sprintf("d%d/f", i), "")
	}
	at, err := f.files.trees.find(call, "")
	if err != nil {
		t.Fatal(err)
	}
	return f, at
}

func TestWalkBounds(t *testing.T) {
	f, at := withDirs(t)
	g := globber{start: at, pattern: "**", want: "any"}
	k := newWalk(f.files.trees, tool.Call{}, at, g.visit)
	k.seen = maxEntries - 40
	if err := k.run(t.Context()); err != nil || k.cut == "" || len(g.found) > 50 {
		t.Errorf("the walk found %d, %q, %v; want it cut", len(g.found), k.cut, err)
	}
}

// A panic of a worker reaches the caller, which can recover. Otherwise it would end the process.
func TestWalkPanics(t *testing.T) {
	f, at := withDirs(t)
	for name, run := range map[string]func(){
		"walk": func() {
			k := newWalk(f.files.trees, tool.Call{}, at, func(context.Context, string, []fs.DirEntry) {
				panic("a bug")
			})
			_ = k.run(t.Context())
		},
		"search": func() {
			s := search{start: at, parts: []part{{dir: "d1", names: []string{"f"}}}} // without a query
			s.args.Limit = 1
			_ = s.run(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the caller does not learn of the panic")
				}
			}()
			run()
		})
	}
}

// An endingContext ends after some calls of Err.
type endingContext struct {
	context.Context
	left atomic.Int32
}

// Err implements context.Context.
func (c *endingContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A walk ends with its context within a directory, because the patterns of a model or of a
// .gitignore file may take a second for each entry.
func TestWalkEndsWithContext(t *testing.T) {
	f := newFixture(t)
	const files = 300
	for i := range files {
		f.write(t, fmt.Sprintf("f%d.txt", i), "")
	}
	at, err := f.files.trees.find(call, "")
	if err != nil {
		t.Fatal(err)
	}
	run := func(all bool, visit func(context.Context, string, []fs.DirEntry)) *walk {
		ctx := &endingContext{Context: t.Context()}
		ctx.left.Store(files / 2)
		k := newWalk(f.files.trees, tool.Call{}, at, visit)
		k.all = all
		if err := k.run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the walk: %v, want it cancelled", err)
		}
		return k
	}
	g := globber{start: at, pattern: "*", want: "any"}
	if run(true, g.visit); len(g.found) >= files {
		t.Errorf("glob matched %d entries, want fewer than %d", len(g.found), files)
	}
	p := gatherer{globs: []string{"*"}}
	if run(true, p.visit); p.files >= files {
		t.Errorf("grep matched %d entries, want fewer than %d", p.files, files)
	}
	f.write(t, ".gitignore", "*.txt\n")
	visited := 0
	run(false, func(_ context.Context, _ string, entries []fs.DirEntry) { visited += len(entries) })
	if visited > 0 {
		t.Errorf("%d entries were visited although not all were compared with .gitignore", visited)
	}
}

// TestGlobDepth checks that a search does not read directories that are too deep for its pattern.
func TestGlobDepth(t *testing.T) {
	f := newFixture(t)
	f.write(t, "src/deep/node_modules/z.go", "package z\n")
	for pattern, note := range map[string]bool{"s*/*": false, "s*/*/*": true} {
		text, err := f.call(t, "glob", "pattern", pattern, "entry_type", "any")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "node_modules") != note {
			t.Errorf("%s finds %q, want a note on node_modules: %t", pattern, text, note)
		}
	}
}

package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"gateway/agent/tool"
)

// Limits of one call of grep.
const (
	grepShown  = 200     // results, by default
	maxGrep    = 1_000   // results
	maxOffset  = 100_000 // results to skip
	maxContext = 20      // lines before and after one
	maxSearch  = 5 << 20 // bytes; larger files are not searched
	maxFiles   = 500_000
)

const grepDescription = "Searches the lines of files for an RE2 expression. Leaves out binary " +
	"files, those over 5 MB and what .gitignore or .ignore name."

// grepArgs are the arguments of grep. Context stands for both Before and After. Limit and Skip
// count lines, or files in the other modes.
type grepArgs struct {
	Pattern   string `json:"pattern"`
	Path      string `json:"path,omitempty"`
	Glob      string `json:"glob,omitempty"`
	Type      string `json:"type,omitempty"`
	Mode      string `json:"output_mode,omitempty" jsonschema:"content, files_with_matches or count"`
	Before    int    `json:"before,omitempty"`
	After     int    `json:"after,omitempty"`
	Context   int    `json:"context,omitempty"`
	AnyCase   bool   `json:"ignore_case,omitempty"`
	Fixed     bool   `json:"fixed,omitempty" jsonschema:"plain text"`
	Multiline bool   `json:"multiline,omitempty"`
	Ignored   bool   `json:"ignored,omitempty"`
	Limit     int    `json:"head_limit,omitempty"`
	Skip      int    `json:"offset,omitempty"`
}

// grepAliases are nanobot's names of arguments.
var grepAliases = map[string]string{"context_before": "before", "context_after": "after",
	"fixed_strings": "fixed", "case_insensitive": "ignore_case"}

// The output modes.
const (
	modeContent = "content"
	modeFiles   = "files_with_matches"
	modeCount   = "count"
)

// check sets the defaults, reduces limits that are too large, and returns an error for the model if
// an argument is not valid.
func (a *grepArgs) check() error {
	if a.Limit < 0 || a.Skip < 0 || a.Before < 0 || a.After < 0 || a.Context < 0 {
		return errors.New("numbers can't be negative")
	}
	if a.Skip > maxOffset {
		return fmt.Errorf("an offset over %d is too far; use a narrower pattern or path", maxOffset)
	}
	a.Limit = min(cmp.Or(a.Limit, grepShown), maxGrep)
	a.Before = min(max(a.Before, a.Context), maxContext)
	a.After = min(max(a.After, a.Context), maxContext)
	a.Mode = cmp.Or(a.Mode, modeContent)
	if modes := []string{modeContent, modeFiles, modeCount}; !slices.Contains(modes, a.Mode) {
		return fmt.Errorf("output_mode %q is unknown; want %s", truncate(a.Mode), strings.Join(modes,
			", "))
	}
	if a.Type != "" && typePatterns[a.Type] == "" {
		return fmt.Errorf("type %q is unknown; use glob, or one of %s", truncate(a.Type),
			strings.Join(slices.Sorted(maps.Keys(typePatterns)), ", "))
	}
	if a.Glob != "" {
		return checkPattern(strings.TrimPrefix(a.Glob, "!"))
	}
	return nil
}

// typePatterns are the file name patterns of each language.
var typePatterns = map[string]string{
	"c": "*.{c,h}", "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}", "cs": "*.cs", "css": "*.{css,scss,less}",
	"csv": "*.{csv,tsv}", "go": "*.go", "html": "*.{html,htm}", "java": "*.java",
	"js": "*.{js,jsx,mjs,cjs}", "json": "*.{json,jsonl}", "kotlin": "*.{kt,kts}", "lua": "*.lua",
	"make": "{Makefile,makefile,*.mk}", "md": "*.{md,markdown}", "php": "*.php", "py": "*.{py,pyi}",
	"rb": "*.rb", "rust": "*.rs", "sh": "*.{sh,bash,zsh}", "sql": "*.sql", "swift": "*.swift",
	"tex": "*.tex", "toml": "*.toml", "ts": "*.{ts,tsx,mts,cts}", "txt": "*.txt", "xml": "*.xml",
	"yaml": "*.{yaml,yml}",
}

// grep implements the tool grep. Listing the files and searching them share one time limit.
func (b *browser) grep(ctx context.Context, c tool.Call, a grepArgs) (tool.Result, error) {
	if err := a.check(); err != nil {
		return tool.Result{}, err
	}
	q, err := newQuery(a.Pattern, a.Fixed, a.AnyCase, a.Multiline)
	if err != nil {
		return tool.Result{}, err
	}
	start, err := b.trees.find(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, maxWalk)
	defer cancel()
	s := &search{args: a, query: q, start: start}
	notes, err := b.gather(limited, c, s)
	if err == nil {
		err = s.run(limited)
	}
	switch {
	case ctx.Err() != nil:
		return tool.Result{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		notes = append(notes, "the search took too long and is not complete; give a narrower path")
	case err != nil:
		return tool.Result{}, err
	}
	text, err := s.text(ctx, notes)
	return tool.Result{Text: text, Foreign: foreign("files in", start),
		Trusted: b.trees.isTrusted(start)}, err
}

// gather lists the files for s to search, and records the files that it has left out.
func (b *browser) gather(ctx context.Context, c tool.Call, s *search) ([]string, error) {
	info, err := s.start.tree.dir.Stat(s.start.path)
	if err != nil {
		return nil, b.trees.explain(s.start, err)
	}
	if !info.IsDir() {
		// open says why the file can't be read; the search reads it by itself.
		f, _, err := b.trees.open(s.start)
		if err != nil {
			return nil, err
		}
		s.parts = []part{{names: []string{""}}}
		return nil, f.Close()
	}
	g := gatherer{}
	g.globs, g.without = s.args.patterns()
	k := newWalk(b.trees, c, s.start, g.visit)
	k.all = s.args.Ignored
	err = k.run(ctx)
	notes := k.notes()
	if g.files > maxFiles {
		notes = append(notes, fmt.Sprintf("only %d files are searched; give a narrower path", maxFiles))
	}
	// The walk finds directories in any order. Pages of results need a fixed one.
	slices.SortFunc(g.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.names[0], b.names[0]))
	})
	s.parts = g.parts
	return notes, err
}

// patterns returns the patterns that a path must match, all of them, and the pattern of the paths
// to leave out, or "". As in ripgrep, a glob after "!" says what to leave out.
func (a *grepArgs) patterns() (list []string, without string) {
	for _, p := range []string{a.Glob, typePatterns[a.Type]} {
		p, negated := strings.CutPrefix(p, "!")
		switch {
		case p == "":
			continue
		case strings.Contains(p, "/"):
			p = strings.TrimPrefix(strings.TrimPrefix(p, "./"), "/") // "./*.go" stays at the top
		default:
			p = "**/" + p
		}
		if negated {
			without = p
		} else {
			list = append(list, p)
		}
	}
	return list, without
}

// part is a set of files in one directory, searched by one worker. A single part with the
// name "" means that the start itself is a file.
type part struct {
	dir   string // below the start
	names []string
}

// partSize is the number of files in a part. Opening a directory costs little in comparison, and
// all workers have something to do.
const partSize = 64

// gatherer collects the files found by a walk.
type gatherer struct {
	globs   []string
	without string

	mu    sync.Mutex
	parts []part
	files int
}

// visit adds the regular files among the entries of a directory, in parts. It does not follow
// links.
func (g *gatherer) visit(ctx context.Context, dir string, entries []fs.DirEntry) {
	var names []string
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		if e.Type().IsRegular() && g.wants(path.Join(dir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	g.mu.Lock()
	defer g.mu.Unlock()
	for names := range slices.Chunk(names, partSize) {
		if g.files += len(names); g.files <= maxFiles {
			g.parts = append(g.parts, part{dir, names})
		}
	}
}

func (g *gatherer) wants(rel string) bool {
	return !slices.ContainsFunc(g.globs, func(pattern string) bool {
		return !matches(pattern, rel)
	}) && (g.without == "" || !matches(g.without, rel))
}

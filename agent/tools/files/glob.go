package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"

	"gateway/agent/tool"
)

// Limits of one call of glob.
const (
	globShown   = 200     // by default
	maxGlob     = 2_000   // entries
	maxFound    = 200_000 // matches that are kept to be sorted
	maxPattern  = 500     // bytes
	maxWildcard = 24      // in one pattern
	maxChoices  = 300     // combinations of alternatives in braces: each is tried
)

// wildcards are the characters that make a path a pattern.
const wildcards = `*?[{\`

const globDescription = `Finds files by path ("**/*.go", "src/{a,b}/*_test.py"; without "/" at ` +
	`any depth), sorted, without those that .gitignore or .ignore name.`

// globArgs are the arguments of glob. A Limit of 0 means globShown. Ignored includes what
// .gitignore and .ignore name.
type globArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path,omitempty"`
	Type    string `json:"entry_type,omitempty" jsonschema:"dir or any; default file"`
	Ignored bool   `json:"ignored,omitempty"`
	Limit   int    `json:"head_limit,omitempty"`
	Skip    int    `json:"offset,omitempty"`
}

// check returns an error for the model if an argument is not valid.
func (a globArgs) check() error {
	switch {
	case a.Limit < 0 || a.Skip < 0:
		return errors.New("offset and head_limit can't be negative")
	case a.Type != "" && entryTypes[a.Type] == "":
		return fmt.Errorf("entry_type %q is unknown; want file, dir or any", truncate(a.Type))
	}
	return checkPattern(a.Pattern)
}

// entryTypes are the accepted types of entries, including nanobot's names.
var entryTypes = map[string]string{
	"file": "file", "dir": "dir", "any": "any", "files": "file", "dirs": "dir", "both": "any",
}

// checkPattern returns an error for a pattern that is invalid or takes too long to match.
func checkPattern(pattern string) error {
	switch {
	case pattern == "":
		return errors.New(`the pattern is empty; want one such as "**/*.txt"`)
	case len(pattern) > maxPattern,
		strings.Count(pattern, "*")+strings.Count(pattern, "{") > maxWildcard:
		return errors.New("the pattern is too long; use several calls")
	case choices(pattern) > maxChoices:
		return errors.New("the pattern has too many alternatives in braces; use several calls")
	case !doublestar.ValidatePattern(pattern):
		return fmt.Errorf("%q is not a valid pattern: check its brackets and braces", truncate(pattern))
	}
	return nil
}

// choices returns an upper bound for the combinations of a pattern with these braces and commas.
// The product is largest if all braces have the same number of commas.
func choices(pattern string) float64 {
	braces := float64(strings.Count(pattern, "{"))
	if braces == 0 {
		return 1
	}
	return math.Pow(float64(strings.Count(pattern, ","))/braces+1, braces)
}

// glob implements the tool glob. Without ** the pattern says how deep the walk must go.
func (b *browser) glob(ctx context.Context, c tool.Call, a globArgs) (tool.Result, error) {
	if err := a.check(); err != nil {
		return tool.Result{}, err
	}
	// The walk begins where the pattern stops being a plain path.
	base, pattern := doublestar.SplitPattern(a.Pattern)
	dir := base
	if !filepath.IsAbs(base) && a.Path != "" {
		dir = strings.TrimSuffix(a.Path, "/") + "/" + base
	}
	// As in .gitignore, a name without a slash may be at any depth.
	if !strings.Contains(a.Pattern, "/") && strings.ContainsAny(pattern, wildcards) {
		pattern = "**/" + pattern
	}
	start, err := b.trees.find(c, dir)
	if err != nil {
		return tool.Result{}, err
	}
	if err := b.trees.wantDir(start); err != nil {
		return tool.Result{}, err
	}
	g := globber{start: start, pattern: pattern, want: cmp.Or(entryTypes[a.Type], "file")}
	k := newWalk(b.trees, c, start, g.visit)
	k.all = a.Ignored || !strings.ContainsAny(pattern, wildcards) // an explicit path
	if !strings.Contains(pattern, "**") {
		k.maxDepth = strings.Count(pattern, "/") + 1
	}
	limited, cancel := context.WithTimeout(ctx, maxWalk)
	defer cancel()
	// If only the time is over, what was found so far is the result.
	if err := k.run(limited); err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		k.cut = "the search took too long and is not complete; give a narrower path"
	}
	text, err := g.text(a, k)
	return tool.Result{Text: text, Foreign: foreign("directory", start),
		Trusted: b.trees.isTrusted(start)}, err
}

// wantDir returns an error unless a place is a directory.
func (ts *trees) wantDir(at place) error {
	info, err := at.tree.dir.Stat(at.path)
	if err != nil {
		return ts.explain(at, err)
	}
	if k := cmp.Or(kind(info.Mode()), "file"); k != "directory" {
		return fmt.Errorf("%q is a %s, not a directory", at.given, k)
	}
	return nil
}

// globber collects the matches of a pattern.
type globber struct {
	start   place
	pattern string
	want    string // file, dir or any

	mu    sync.Mutex
	found []string // paths below the start; directories end in "/"
	full  bool
}

// matches reports whether a pattern matches a path. Their Unicode normalization may differ: see
// place.normalized. Brackets may also stand for themselves, because frameworks for web pages have
// names such as "[id]".
func matches(pattern, rel string) bool {
	pattern, rel = norm.NFC.String(pattern), norm.NFC.String(rel)
	return doublestar.MatchUnvalidated(pattern, rel) ||
		strings.Contains(pattern, "[") && strings.Contains(rel, "[") &&
			doublestar.MatchUnvalidated(plainBrackets.Replace(pattern), rel)
}

// plainBrackets takes the meaning from the brackets of a pattern. Escapes stay as they are.
var plainBrackets = strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, `\]`, `\]`, "[", `\[`, "]", `\]`)

// visit adds the entries of a directory that match. It follows a link only to see whether it leads
// to a directory.
func (g *globber) visit(ctx context.Context, dir string, entries []fs.DirEntry) {
	var found []string
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		rel := path.Join(dir, e.Name())
		if !matches(g.pattern, rel) {
			continue
		}
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := g.start.tree.dir.Stat(g.start.under(rel).path)
			if err != nil && g.want != "any" {
				continue // a dangling link, or one that leads out
			}
			isDir = err == nil && info.IsDir()
		}
		switch {
		case g.want == "file" && isDir, g.want == "dir" && !isDir:
		case isDir:
			found = append(found, rel+"/")
		default:
			found = append(found, rel)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.found) < maxFound {
		g.found = append(g.found, found...)
		return
	}
	g.full = true
}

// text returns a page of the matches.
func (g *globber) text(a globArgs, k *walk) (string, error) {
	notes := k.notes()
	if g.full {
		notes = append(notes, fmt.Sprintf("more than %d results; give a narrower pattern", maxFound))
	}
	slices.Sort(g.found)
	if len(g.found) == 0 {
		return withNotes("(nothing matches the pattern)", notes), nil
	}
	if a.Skip >= len(g.found) {
		return "", fmt.Errorf("there are only %d results, so none at offset %d", len(g.found), a.Skip)
	}
	end := min(len(g.found), a.Skip+min(cmp.Or(a.Limit, globShown), maxGlob))
	var b strings.Builder
	for _, rel := range g.found[a.Skip:end] {
		b.WriteString(printable(g.start.under(rel).name) + "\n")
	}
	if a.Skip > 0 || end < len(g.found) {
		note := fmt.Sprintf("results %d to %d of %d", a.Skip+1, end, len(g.found))
		if end < len(g.found) {
			note += fmt.Sprintf("; more with offset %d", end)
		}
		notes = append([]string{note}, notes...)
	}
	return withNotes(strings.TrimSuffix(b.String(), "\n"), notes), nil
}

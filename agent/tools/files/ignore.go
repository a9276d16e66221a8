package files

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

// Files with patterns of paths that a search leaves out, in the format of gitignore(5).
// The rules of the second file override those of the first.
const (
	gitIgnore = ".gitignore"
	ownIgnore = ".ignore"
)

// gitDir is in the root of a repository. The .gitignore files above it do not apply below
// it.
const gitDir = ".git"

// Limits of such a file. The rest is not read.
const (
	maxIgnoreFile = 256 << 10 // bytes
	maxIgnores    = 2_000     // patterns
)

// ignores holds the patterns of a directory and of those above it. Nil ignores nothing.
type ignores struct {
	above *ignores
	dir   string // slash-separated path in the tree; "" is its top
	own   []ignoreRule
	git   []ignoreRule
	repo  bool // .gitignore files above do not apply
}

// ignoreRule is a line of such a file.
type ignoreRule struct {
	negated bool
	dirs    bool   // applies to directories only
	base    bool   // matches the last element of a path, not the whole path
	literal string // exact match; or
	prefix  string // a prefix,
	suffix  string // a suffix,
	glob    string // and a pattern; "" matches anything
}

// below returns g with the patterns of a directory added. has reports whether the directory has an
// entry with the given name.
func (g *ignores) below(at place, has func(name string) bool) *ignores {
	own, git, repo := has(ownIgnore), has(gitIgnore), has(gitDir)
	if !own && !git && !repo {
		return g
	}
	dir := filepath.ToSlash(at.path)
	if dir == "." {
		dir = ""
	}
	next := &ignores{above: g, dir: dir, repo: repo}
	if git {
		next.git = readIgnores(at, gitIgnore)
	}
	if own {
		next.own = readIgnores(at, ownIgnore)
	}
	return next
}

// has reports whether a directory has an entry with the given name.
func (p place) has(name string) bool {
	_, err := p.tree.dir.Lstat(filepath.Join(p.path, name))
	return err == nil
}

// ignoresAbove returns the patterns of the directories above a place. If they ignore the place
// itself it returns nil, because the caller named the place explicitly.
func ignoresAbove(ctx context.Context, at place) *ignores {
	var g *ignores
	if at.path == "." {
		return nil
	}
	done := "."
	for e := range strings.SplitSeq(filepath.ToSlash(at.path), "/") {
		above := place{tree: at.tree, path: done}
		g = g.below(above, above.has)
		done = filepath.Join(done, e)
		if g.ignored(ctx, filepath.ToSlash(done), true) {
			return nil
		}
	}
	return g
}

// ignored reports whether a path in the tree is ignored. It does not check the directories
// above the path. If ctx ends, the result may be wrong.
func (g *ignores) ignored(ctx context.Context, path string, isDir bool) bool {
	// The innermost directory with a matching rule decides. A rule of any .ignore comes before
	// those of .gitignore.
	for l := g; l != nil && ctx.Err() == nil; l = l.above {
		if out, known := decideIgnore(l.own, l.rel(path), isDir); known {
			return out
		}
	}
	for l := g; l != nil && ctx.Err() == nil; l = l.above {
		if out, known := decideIgnore(l.git, l.rel(path), isDir); known {
			return out
		}
		if l.repo {
			break
		}
	}
	return false
}

// rel converts a path in the tree to one relative to the directory of l.
func (g *ignores) rel(path string) string {
	if g.dir == "" {
		return path
	}
	return path[len(g.dir)+1:]
}

// decideIgnore returns the result of the last matching rule, and whether any rule matches.
func decideIgnore(rules []ignoreRule, rel string, isDir bool) (out, known bool) {
	if len(rules) == 0 {
		return false, false
	}
	base := path.Base(rel)
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].fits(rel, base, isDir) {
			return !rules[i].negated, true
		}
	}
	return false, false
}

// fits reports whether the rule matches a path with this last element. It checks the glob
// last, because that is slow and there are many paths.
func (r *ignoreRule) fits(rel, base string, isDir bool) bool {
	if r.dirs && !isDir {
		return false
	}
	if r.base {
		rel = base
	}
	if r.literal != "" {
		return rel == r.literal
	}
	return strings.HasPrefix(rel, r.prefix) && strings.HasSuffix(rel, r.suffix) &&
		(r.glob == "" || doublestar.MatchUnvalidated(r.glob, rel))
}

// readIgnores reads a file of patterns. It returns nil if the file can't be read.
func readIgnores(at place, name string) []ignoreRule {
	f, err := at.tree.dir.OpenFile(filepath.Join(at.path, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return nil
	}
	return parseIgnores(string(text))
}

// parseIgnores parses the rules of a file. As in Git, an invalid pattern matches nothing.
func parseIgnores(text string) []ignoreRule {
	var rules []ignoreRule
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if r, ok := parseIgnore(line); ok && len(rules) < maxIgnores {
			rules = append(rules, r)
		}
	}
	return rules
}

// ignoreMeta are the special characters of a pattern.
const ignoreMeta = `*?[\`

// parseIgnore parses a line. ok is false for comments, empty lines and patterns that are not valid
// or take too long to match. It splits off the plain text around the special characters, which is
// compared faster than a glob.
func parseIgnore(line string) (r ignoreRule, ok bool) {
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = trimSpaces(line)
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirs = strings.CutSuffix(line, "/")
	// As in Git, a pattern with a slash that is not its end is relative to the directory of its
	// file. Other patterns apply at any depth.
	r.base = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	switch {
	case line == "", len(line) > maxPattern, strings.Count(line, "*") > maxWildcard:
		return r, false
	case !strings.ContainsAny(line, ignoreMeta):
		r.literal = line
		return r, true
	}
	r.prefix = line[:strings.IndexAny(line, ignoreMeta)]
	// The suffix has no slash, because "**/" may also match nothing.
	r.suffix = line[strings.LastIndexAny(line, ignoreMeta+"]/")+1:]
	if r.base && line == "*"+r.suffix {
		return r, true
	}
	if inside, ok := strings.CutSuffix(line, "/**"); ok {
		line = inside + "/**/*" // everything in it, but not the directory itself
	}
	r.glob = globOf(line)
	return r, doublestar.ValidatePattern(r.glob)
}

// trimSpaces removes unescaped spaces at the end of a line.
func trimSpaces(line string) string {
	for strings.HasSuffix(line, " ") {
		rest := strings.TrimSuffix(line, " ")
		escapes := len(rest) - len(strings.TrimRight(rest, `\`))
		if escapes%2 == 1 {
			break
		}
		line = rest
	}
	return line
}

// classes replaces the named character classes in brackets.
var classes = strings.NewReplacer("[:alpha:]", "a-zA-Z", "[:digit:]", "0-9",
	"[:alnum:]", "a-zA-Z0-9", "[:upper:]", "A-Z", "[:lower:]", "a-z",
	"[:space:]", " \t\n\r\v\f", "[:blank:]", " \t", "[:xdigit:]", "0-9a-fA-F")

// globOf converts a pattern to doublestar's syntax: braces have no special meaning in it,
// and a bracket at the beginning of brackets is literal.
func globOf(pattern string) string {
	var b strings.Builder
	pattern = classes.Replace(pattern)
	first := -1 // index where a class begins; -1 outside of one
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			b.WriteByte(c)
			i++
			b.WriteByte(pattern[i])
			continue
		case c == '{', c == '}', first >= 0 && c == '[', c == ']' && i == first:
			b.WriteByte('\\')
		case c == '[':
			first = i + 1
			if strings.HasPrefix(pattern[first:], "!") || strings.HasPrefix(pattern[first:], "^") {
				first++
			}
		case c == ']':
			first = -1
		}
		b.WriteByte(c)
	}
	return b.String()
}

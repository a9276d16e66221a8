package files

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

// The files that say what a search leaves out, in the format of gitignore(5). The rules of the
// second count before those of the first.
const (
	gitIgnore = ".gitignore"
	ownIgnore = ".ignore"
)

// gitDir is in a directory that is a repository of its own, where no .gitignore above it holds.
const gitDir = ".git"

// The bounds of such a file: what is beyond is not read.
const (
	maxIgnoreFile = 256 << 10 // bytes
	maxIgnores    = 2_000     // patterns
)

// An ignores is what the files of a directory, and of those above it, leave out. Nil leaves out
// nothing.
type ignores struct {
	above *ignores
	dir   string // below the tree, with slashes; "" is the tree itself
	own   []ignoreRule
	git   []ignoreRule
	repo  bool // .gitignore above does not hold here
}

// An ignoreRule is a line of such a file.
type ignoreRule struct {
	negated bool
	dirs    bool   // only directories
	base    bool   // the last element of a path is meant, and else the whole path
	literal string // what that is; or
	prefix  string // what that begins with,
	suffix  string // what that ends in,
	glob    string // and what that fits; "": anything
}

// below returns g with what the files of a directory say. names are the entries that it has, as
// far as they matter here.
func (g *ignores) below(at place, names ignoreNames) *ignores {
	if names == (ignoreNames{}) {
		return g
	}
	dir := filepath.ToSlash(at.path)
	if dir == "." {
		dir = ""
	}
	next := &ignores{above: g, dir: dir, repo: names.repo}
	if names.git {
		next.git = readIgnores(at, gitIgnore)
	}
	if names.own {
		next.own = readIgnores(at, ownIgnore)
	}
	return next
}

// ignoreNames says which entries that matter a directory has.
type ignoreNames struct{ git, own, repo bool }

// note takes in the name of an entry.
func (n *ignoreNames) note(name string) {
	switch name {
	case gitIgnore:
		n.git = true
	case ownIgnore:
		n.own = true
	case gitDir:
		n.repo = true
	}
}

// everyName is for a directory of which not all entries are known.
func everyName(at place) ignoreNames {
	_, err := at.tree.dir.Lstat(filepath.Join(at.path, gitDir))
	return ignoreNames{git: true, own: true, repo: err == nil}
}

// ignoresAbove returns what the directories above a place leave out below it. If the place itself
// is left out that is nothing: who names it wants it.
func ignoresAbove(at place) *ignores {
	var g *ignores
	if at.path == "." {
		return nil
	}
	done := "."
	for e := range strings.SplitSeq(filepath.ToSlash(at.path), "/") {
		above := place{tree: at.tree, path: done}
		g = g.below(above, everyName(above))
		done = filepath.Join(done, e)
		if g.ignored(filepath.ToSlash(done), true) {
			return nil
		}
	}
	return g
}

// ignored reports whether a path below the tree is left out. Directories above it are not checked.
func (g *ignores) ignored(path string, isDir bool) bool {
	for l := g; l != nil; l = l.above {
		if out, known := decideIgnore(l.own, l.rel(path), isDir); known {
			return out
		}
	}
	for l := g; l != nil; l = l.above {
		if out, known := decideIgnore(l.git, l.rel(path), isDir); known {
			return out
		}
		if l.repo {
			break
		}
	}
	return false
}

// rel returns a path below the tree as one below the directory of l.
func (g *ignores) rel(path string) string {
	if g.dir == "" {
		return path
	}
	return path[len(g.dir)+1:]
}

// decideIgnore returns what the last of the rules that fits says.
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

// fits reports whether a path with this last element is meant. The glob is looked at last: it takes
// the most time, and there are many paths.
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

// readIgnores reads a file of a directory. One that can't be read leaves out nothing.
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

// parseIgnores reads the rules of a file. As with git, a line that is not a pattern fits nothing.
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

// ignoreMeta are the signs that mean more than themselves in a pattern.
const ignoreMeta = `*?[\`

func parseIgnore(line string) (r ignoreRule, ok bool) {
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = trimSpaces(line)
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirs = strings.CutSuffix(line, "/")
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
	r.suffix = line[strings.LastIndexAny(line, ignoreMeta+"]/")+1:]
	if r.base && line == "*"+r.suffix {
		return r, true
	}
	if inside, ok := strings.CutSuffix(line, "/**"); ok {
		line = inside + "/**/*" // not the directory itself
	}
	r.glob = globOf(line)
	return r, doublestar.ValidatePattern(r.glob)
}

// trimSpaces removes spaces from the end of a line, except for an escaped one.
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

// classes are what stands in brackets for kinds of characters.
var classes = strings.NewReplacer("[:alpha:]", "a-zA-Z", "[:digit:]", "0-9",
	"[:alnum:]", "a-zA-Z0-9", "[:upper:]", "A-Z", "[:lower:]", "a-z",
	"[:space:]", " \t\n\r\v\f", "[:blank:]", " \t", "[:xdigit:]", "0-9a-fA-F")

// globOf returns a pattern of such a file as one of doublestar: braces mean nothing in it, and a
// bracket that comes first in brackets is meant itself.
func globOf(pattern string) string {
	var b strings.Builder
	pattern = classes.Replace(pattern)
	first := -1 // where a class begins; -1 outside of one
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

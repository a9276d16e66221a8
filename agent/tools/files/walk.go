package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gateway/agent/tool"
	"gateway/agent/tools/files/osfile"
)

// Limits of a walk.
const (
	maxEntries = 1_000_000
	maxWalk    = 30 * time.Second
	readAtOnce = 4_096 // entries
)

// skippedDirs are directories that a walk skips, because they hold internal files of
// programs.
var skippedDirs = []string{".git", ".hg", ".svn", "node_modules"}

// walk visits the directories below a place, several at a time. It follows no links.
type walk struct {
	start    place
	hidden   []string // entries of the start that are hidden by other trees
	maxDepth int      // depth limit; 0: none
	all      bool     // include files ignored by .gitignore and .ignore
	call     tool.Call

	// visit is called for each directory with its entries. It may be called concurrently, and must
	// end with ctx.
	visit func(ctx context.Context, dir string, entries []fs.DirEntry)

	// mu guards the fields below. They may be read without it when run has returned.
	mu      sync.Mutex
	free    sync.Cond // uses mu; signals a directory to read, or the end
	pending []step
	busy    int // workers that may add directories
	seen    int // entries
	skipped map[string]int
	ignored int // ignored entries
	failed  int // directories that could not be read
	cut     string
}

// step is a directory to read.
type step struct {
	dir   string   // relative to the start, with slashes; "" is the start
	above *ignores // patterns of the directories above
}

// newWalk returns a walk below a place.
func newWalk(
	ts *trees, c tool.Call, start place,
	visit func(ctx context.Context, dir string, entries []fs.DirEntry),
) *walk {
	k := &walk{call: c, start: start, hidden: ts.hiddenIn(start), visit: visit,
		pending: []step{{}}, skipped: make(map[string]int)}
	k.free.L = &k.mu
	return k
}

// hiddenIn returns the entries of a directory in whose place the tools show other trees.
func (ts *trees) hiddenIn(at place) (names []string) {
	if at.tree != ts.workspace || at.path != "." {
		return nil
	}
	for _, t := range ts.roots {
		names = append(names, t.name)
	}
	for _, t := range []*tree{ts.media, ts.memory} {
		if t != nil {
			names = append(names, t.name)
		}
	}
	if ts.shared != nil {
		names = append(append(names, skillsFolder), sharedFiles...)
	}
	return names
}

// run walks until everything is visited, a limit is reached, or ctx ends. It returns only the error
// of ctx: directories that can't be read are counted.
func (k *walk) run(ctx context.Context) error {
	if !k.all {
		k.pending[0].above = ignoresAbove(ctx, k.start)
	}
	onProcessors(func() { k.work(ctx) })
	return ctx.Err()
}

// onProcessors calls f on one goroutine per processor. If f panics there, onProcessors panics here,
// where the caller can recover.
func onProcessors(f func()) {
	var wg sync.WaitGroup
	panicked := make(chan any, runtime.GOMAXPROCS(0))
	for range cap(panicked) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked <- p
				}
			}()
			f()
		})
	}
	wg.Wait()
	select {
	case p := <-panicked:
		panic(p)
	default:
	}
}

// work reads directories until there are none left.
func (k *walk) work(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		// A busy worker may still add directories.
		for len(k.pending) == 0 && k.busy > 0 {
			k.free.Wait()
		}
		if len(k.pending) == 0 || ctx.Err() != nil || k.cut != "" {
			k.pending = nil
			k.free.Broadcast()
			return
		}
		// The newest first: the walk goes into depth, so few directories are pending.
		next := k.pending[len(k.pending)-1]
		k.pending = k.pending[:len(k.pending)-1]
		if err := k.readUnlocked(ctx, next); err != nil {
			k.failed++
		}
	}
}

// readUnlocked unlocks k.mu while it reads a directory.
func (k *walk) readUnlocked(ctx context.Context, v step) error {
	k.busy++
	k.mu.Unlock()
	defer func() { // also if read panics: the other workers wait for this one
		k.mu.Lock()
		k.busy--
		k.free.Broadcast()
	}()
	return k.read(ctx, v)
}

// read reads a directory. The caller must not hold k.mu.
func (k *walk) read(ctx context.Context, v step) error {
	f, err := k.start.tree.dir.OpenFile(filepath.Join(k.start.path, filepath.FromSlash(v.dir)),
		os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if v.dir == "" && osfile.IsPseudo(f) {
		return errors.New("a part of the system")
	}
	list, err := osfile.WithKinds(f)
	if err != nil {
		return err
	}
	defer list.Close()
	for first := true; ctx.Err() == nil; first = false {
		entries, err := list.ReadDir(readAtOnce)
		// The patterns of a directory apply to its own entries, too.
		if first && !k.all {
			at := k.at(v.dir)
			has := at.has // the entry may be among those that are not read yet
			if len(entries) < readAtOnce {
				has = func(name string) bool {
					return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
				}
			}
			v.above = v.above.below(at, has)
		}
		if !k.found(ctx, v, entries) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shown returns the entries of a directory without the withheld ones.
func shown(c tool.Call, at place, entries []fs.DirEntry) []fs.DirEntry {
	if len(c.Limits.Folders) == 0 || at.tree.isWorkspace() {
		return entries
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.IsDir() && withheld(c, at.under(e.Name()))
	})
}

// at returns a directory below the start.
func (k *walk) at(dir string) place {
	return place{tree: k.start.tree, path: filepath.Join(k.start.path, filepath.FromSlash(dir))}
}

// without returns the entries of a directory that are not ignored, and the number of
// ignored ones. If ctx ends, neither is complete.
func (k *walk) without(
	ctx context.Context, v step, entries []fs.DirEntry,
) ([]fs.DirEntry, int) {
	if v.above == nil {
		return entries, 0
	}
	all, dir := len(entries), ""
	if at := k.at(v.dir).path; at != "." {
		dir = filepath.ToSlash(at) + "/"
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return v.above.ignored(ctx, dir+e.Name(), e.IsDir())
	})
	return entries, all - len(entries)
}

// found records entries of a directory, and reports whether to continue.
func (k *walk) found(ctx context.Context, v step, entries []fs.DirEntry) bool {
	dir, seen := v.dir, len(entries)
	if dir == "" && len(k.hidden) > 0 {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			return slices.Contains(k.hidden, e.Name())
		})
	}
	entries = shown(k.call, k.at(dir), entries)
	entries, ignored := k.without(ctx, v, entries)
	if ctx.Err() != nil {
		return false
	}
	// The lock is not held, so that several workers can match at once.
	k.visit(ctx, dir, entries)
	depth := 1 // of the entries
	if dir != "" {
		depth = strings.Count(dir, "/") + 2
	}
	descend := k.maxDepth == 0 || depth < k.maxDepth
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ignored += ignored
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case slices.Contains(skippedDirs, e.Name()):
			k.skipped[e.Name()]++
		case descend:
			k.pending = append(k.pending, step{path.Join(dir, e.Name()), v.above})
		}
	}
	k.free.Broadcast()
	// Ignored and hidden entries count, too: the limit is about the time to read them.
	if k.seen += seen; k.seen > maxEntries {
		k.cut = fmt.Sprintf("only %d entries were read; give a narrower path", maxEntries)
	}
	return k.cut == ""
}

// notes describes what the walk has left out.
func (k *walk) notes() []string {
	var notes []string
	if k.cut != "" {
		notes = append(notes, k.cut)
	}
	for _, name := range skippedDirs {
		if n := k.skipped[name]; n > 0 {
			notes = append(notes, fmt.Sprintf(
				"not searched: %d named %s, unless path leads there", n, name))
		}
	}
	if k.ignored > 0 {
		notes = append(notes, fmt.Sprintf(
			"left out: %d that .gitignore or .ignore name, unless ignored is true", k.ignored))
	}
	if k.failed > 0 {
		notes = append(notes, fmt.Sprintf("%d directories could not be read", k.failed))
	}
	return notes
}

// withNotes returns text followed by notes.
func withNotes(text string, notes []string) string {
	if len(notes) == 0 {
		return text
	}
	return strings.TrimLeft(text+"\n\n("+strings.Join(notes, "; ")+")", "\n")
}

package skills

import (
	"cmp"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options name the folders of skills and describe the system that the skills run on. With the zero
// value a Library has only the built-in skills.
type Options struct {
	Shared   *os.Root // contains the folder "skills"; may be nil
	Memory   *os.Root // a folder per scope, with "skills" in it; may be nil
	Disabled []string // names of disabled skills

	// The requirements of skills. A view remembers the answers for 15 s. A setting is asked
	// for as KEY, which must be there, or as KEY=VALUE.
	LookPath func(program string) bool // default: it is in the PATH
	Env      func(name string) bool    // default: the variable is set
	Config   func(setting string) bool // default: none is there
	OS       string                    // default: runtime.GOOS

	Now    func() time.Time // default: time.Now
	Logger *slog.Logger     // default: none
}

// The folders of skills as the model sees them.
const (
	skillsFolder  = "skills"
	builtinFolder = "builtin-skills"
	foundFolder   = "memory/skills"
)

// maxScopes is the number of scopes whose skills are cached.
const maxScopes = 64

// A Library gives access to the skills. It is safe for concurrent use.
type Library struct {
	opts     Options
	disabled map[string]bool
	builtin  func() []*cachedSkill

	clock    atomic.Uint64 // incremented by each [Library.Mark]
	mu       sync.Mutex
	lastScan scan                    // the newest scan of the shared folder
	folders  map[string]*folderCache // by scope; "" for the shared folder
	views    map[string]*view        // by scope
}

// New returns a library. It reads skills only when a caller asks for them.
func New(opts *Options) *Library {
	o := *cmp.Or(opts, new(Options))
	if o.LookPath == nil {
		o.LookPath = func(program string) bool {
			_, err := exec.LookPath(program)
			return err == nil
		}
	}
	if o.Env == nil {
		o.Env = func(name string) bool { return os.Getenv(name) != "" }
	}
	if o.Config == nil {
		o.Config = func(string) bool { return false }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.OS = cmp.Or(o.OS, runtime.GOOS)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &Library{opts: o, disabled: make(map[string]bool), builtin: sync.OnceValue(readBuiltin),
		folders: make(map[string]*folderCache), views: make(map[string]*view)}
	for _, name := range o.Disabled {
		l.disabled[strings.ToLower(name)] = true
	}
	return l
}

// A Mark is a point in time. A caller passes a Mark to see all changes that were made before it.
type Mark uint64

// anew is later than all marks: it forces a new scan of the folder.
const anew Mark = math.MaxUint64

// Mark returns a mark for now.
func (l *Library) Mark() Mark { return Mark(l.clock.Add(1)) }

// List returns all skills visible to a scope, ordered by name. The scope is the name of
// its folder, "" for none. The caller must not modify the skills.
//
// A shared skill replaces the built-in one with the same name. A found skill replaces
// nothing: on a conflict it is listed with a Problem. Skills that can't be read are also
// listed with a Problem.
func (l *Library) List(scope string) []Skill {
	v := l.view(scope, anew)
	list := make([]Skill, len(v.skills))
	for i, b := range v.skills {
		list[i] = b.skill
	}
	return list
}

// view is the list of skills visible to a scope. It is immutable.
type view struct {
	shared, found *folderCache  // its sources
	until         time.Time     // when the requirements must be checked again
	skills        []cachedSkill // by name
	active        string
	summary       string
}

// view returns the skills visible to a scope at some time after a mark.
func (l *Library) view(scope string, since Mark) *view {
	v := &view{shared: l.sharedFolder(since)}
	if scope != "" {
		v.found = l.cachedFolder(scope)
	}
	if v.found == nil {
		scope = "" // it has no skills of its own
	}
	now := l.opts.Now()
	l.mu.Lock()
	old := l.views[scope]
	l.mu.Unlock()
	// The folders are the same pointers as long as nothing has changed on the disk.
	if old != nil && old.shared == v.shared && old.found == v.found && now.Before(old.until) {
		return old
	}
	v.until = now.Add(answerTime)
	used := make(map[string]string) // lower-case names to the places of skills
	v.skills = l.collect(nil, used, Shared, "", v.shared.list())
	v.skills = l.collect(v.skills, used, Builtin, "", l.builtin())
	v.skills = l.collect(v.skills, used, Found, scope, v.found.list())
	slices.SortStableFunc(v.skills, func(a, b cachedSkill) int {
		return strings.Compare(a.skill.Name, b.skill.Name)
	})
	// Other skills can be looked up only now that all are known.
	for i := range v.skills {
		for _, name := range v.skills[i].skill.Requires.Skills {
			if !slices.ContainsFunc(v.skills, func(k cachedSkill) bool {
				return strings.EqualFold(k.skill.Name, name) && k.skill.Problem == "" && !k.skill.Disabled
			}) {
				v.skills[i].skill.Missing = append(v.skills[i].skill.Missing, "skill "+name)
			}
		}
	}
	v.active, v.summary = renderActive(v.skills), renderSummary(v.skills)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.views) > maxScopes {
		forget(l.views)
	}
	l.views[scope] = v
	return v
}

// collect appends the skills of a source to list.
func (l *Library) collect(
	list []cachedSkill, used map[string]string, source Source, scope string, skills []*cachedSkill,
) []cachedSkill {
	first := len(list)
	for own := range 2 { // skills named like their folder come first
		for _, b := range skills {
			if (b.skill.Name == b.skill.Folder) != (own == 0) {
				continue
			}
			c := *b
			s := &c.skill
			s.Source, s.Scope = source, scope
			s.Location = location(source, s.Folder, s.file)
			key := strings.ToLower(s.Name)
			if s.Problem == "" {
				place, ok := used[key]
				switch {
				case ok && source == Builtin:
					continue // replaced by a shared skill
				case ok:
					s.Problem = "there is another skill with its name, " + place
				default:
					used[key] = s.Location
				}
			}
			s.Disabled = l.disabled[key]
			s.Missing = l.missing(s.Requires)
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list[first:], func(a, b cachedSkill) int {
		return strings.Compare(a.skill.Folder, b.skill.Folder)
	})
	return list
}

// location returns the path by which the model reads a skill.
func location(source Source, folder, file string) string {
	switch source {
	case Builtin:
		return path.Join(builtinFolder, folder, file)
	case Found:
		return path.Join(foundFolder, folder, file)
	}
	return path.Join(skillsFolder, folder, file)
}

// place returns the root and the folder below it with the skills of a scope, or the shared
// ones for "". It reports false if there can be none.
func (l *Library) place(scope string) (*os.Root, string, bool) {
	if scope == "" {
		return l.opts.Shared, skillsFolder, l.opts.Shared != nil
	}
	ok := l.opts.Memory != nil && filepath.IsLocal(scope) && scope != "." &&
		!strings.ContainsAny(scope, `/\`)
	return l.opts.Memory, filepath.Join(scope, skillsFolder), ok
}

// scan is the result of reading the shared skills, with the time at which it began.
type scan struct {
	folder *folderCache
	since  Mark
}

// sharedFolder returns the shared skills at some time after a mark, nil if there are none.
// Concurrent callers share one scan of the disk.
func (l *Library) sharedFolder(since Mark) *folderCache {
	l.mu.Lock()
	newest := l.lastScan
	l.mu.Unlock()
	// A scan that began after the mark has seen all changes before it.
	if newest.since >= since {
		return newest.folder
	}
	// The mark is read before the scan begins.
	mine := scan{since: Mark(l.clock.Load())}
	mine.folder = l.cachedFolder("")
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine.since > l.lastScan.since {
		l.lastScan = mine
	}
	return mine.folder
}

// cachedFolder returns the current skills of a scope, or the shared ones for "", nil if
// there are none. It returns the same pointer until something changes.
func (l *Library) cachedFolder(scope string) *folderCache {
	root, name, ok := l.place(scope)
	if !ok {
		return nil
	}
	l.mu.Lock()
	old := l.folders[scope]
	l.mu.Unlock()
	if old.same() {
		return old
	}
	// The lock is not held during the scan. Two callers may scan at the same time, and the later
	// result stays.
	s, err := readFolder(root, name, old, l.opts.Now())
	if err != nil {
		s = &folderCache{problem: err.Error()}
		if old == nil || old.problem != s.problem { // log once, not several times in each turn
			l.opts.Logger.Warn("skills can't be read", "folder", name, "err", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == nil {
		delete(l.folders, scope)
		return nil
	}
	if len(l.folders) > maxScopes {
		forget(l.folders)
	}
	l.folders[scope] = s
	return s
}

// forget removes one scope from a cache.
func forget[T any](remembered map[string]T) {
	for scope := range remembered {
		if scope != "" {
			delete(remembered, scope)
			return
		}
	}
}

// Scopes returns the scopes with skills of their own, sorted.
func (l *Library) Scopes() ([]string, error) {
	if l.opts.Memory == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(l.opts.Memory.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("skills: list scopes: %w", err)
	}
	var scopes []string
	for _, e := range entries {
		if info, err := l.opts.Memory.Lstat(filepath.Join(e.Name(), skillsFolder)); err == nil &&
			e.IsDir() && info.IsDir() {
			scopes = append(scopes, e.Name())
		}
	}
	return scopes, nil
}

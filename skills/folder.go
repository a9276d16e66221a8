package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The bounds of a folder of skills.
const (
	maxSkills  = 500  // skills in it that are looked at
	maxEntries = 2000 // files and folders in it, or in a skill, that are listed
)

// settleTime is more than the unit in which file systems count time: what changed longer ago than
// that shows any later change in its time.
const settleTime = 3 * time.Second

// A folderCache is a folder of skills as it was when it was looked at. It doesn't change.
type folderCache struct {
	seen    seen
	skills  []*cachedSkill // by the names of their folders
	problem string         // why none can be read; ""
}

// A cachedSkill is a skill in its folder as it was when it was read. It doesn't change; a [view]
// has copies.
type cachedSkill struct {
	skill   Skill
	text    string // what is always part of the prompt; "" otherwise
	inlined bool   // it is part of the prompt, in a view
	seen    []seen
}

// A seen is the state of a file or folder, to find out cheaply whether it has changed. It is looked
// at by its path, which says no more than that something may be different: what is different is
// read through the root, which a path can't leave.
type seen struct {
	path    string
	info    fs.FileInfo
	settled bool
}

func see(path string, info fs.FileInfo, now time.Time) seen {
	// A link says nothing about what it leads to.
	settled := info.Mode()&fs.ModeSymlink == 0 && now.Sub(info.ModTime()).Abs() > settleTime
	return seen{path, info, settled}
}

// same reports whether the file is what it was.
func (s seen) same() bool {
	if !s.settled {
		return false
	}
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(info, s.info) && info.Size() == s.info.Size() &&
		info.Mode() == s.info.Mode() && info.ModTime().Equal(s.info.ModTime())
}

// same reports whether the skill is what it was.
func (b *cachedSkill) same() bool {
	for _, s := range b.seen {
		if !s.same() {
			return false
		}
	}
	return len(b.seen) > 0
}

// same reports whether the folder and all skills in it are what they were.
func (s *folderCache) same() bool {
	if s == nil || !s.seen.same() {
		return false
	}
	for _, b := range s.skills {
		if !b.same() {
			return false
		}
	}
	return true
}

// openSkills opens the folder of skills that is called name below root. It is a folder and no link,
// so that one scope's is never another's.
func openSkills(root *os.Root, name string) (*os.Root, fs.FileInfo, error) {
	for dir := name; dir != "."; dir = filepath.Dir(dir) {
		info, err := root.Lstat(dir)
		switch {
		case err != nil:
			return nil, nil, err
		case !info.IsDir():
			return nil, nil, fmt.Errorf("%s is not a folder", dir)
		}
	}
	folder, err := root.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := folder.Stat(".")
	if err == nil {
		var outside fs.FileInfo
		outside, err = root.Lstat(name)
		if err == nil && !os.SameFile(info, outside) {
			err = fmt.Errorf("%s was replaced just now", name)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, folder.Close())
	}
	return folder, info, nil
}

// readFolder looks at the folder of skills that is called name below root. A skill that is in old
// and hasn't changed is not read again. There is no folder if it returns nil and no error.
func readFolder(root *os.Root, name string, old *folderCache, now time.Time) (*folderCache, error) {
	folder, info, err := openSkills(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	known := make(map[string]*cachedSkill)
	if old != nil {
		for _, b := range old.skills {
			known[b.skill.Folder] = b
		}
	}
	path, private := filepath.Join(root.Name(), name), name != skillsFolder
	s := &folderCache{seen: see(path, info, now)}
	names, left, err := folders(folder)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		b := known[name]
		switch {
		case i >= maxSkills:
			b = &cachedSkill{skill: Skill{Name: shown(name), Folder: name, file: fileNames[0],
				Problem: fmt.Sprintf("there are more than %d skills; it isn't looked at", maxSkills)}}
			if left > 0 && i == len(names)-1 {
				b.skill.Problem = fmt.Sprintf("there are more than %d skills; neither it nor the %d "+
					"folders after it are looked at", maxSkills, left)
			}
			b.seen = []seen{{path, info, true}}
		case b == nil || !b.same():
			b = readSkill(folder, name, name, filepath.Join(path, name), now)
			if private {
				b.text, b.skill.Always = "", false // nobody has decided that
			}
		}
		s.skills = append(s.skills, b)
	}
	return s, nil
}

// folders returns the names of the folders in a folder, and of links, in order: the first
// [maxEntries], and how many there are besides. Names that begin with a dot are left out.
func folders(root *os.Root) (names []string, left int, err error) {
	f, err := openFile(root, ".")
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	for {
		// A folder is read in the order of the disk, so that all of it must be seen to know the first.
		entries, err := f.ReadDir(maxEntries)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") && isFolder(root, e) {
				names = append(names, e.Name())
			}
		}
		slices.Sort(names)
		if n := len(names) - maxEntries; n > 0 {
			names, left = names[:maxEntries], left+n
		}
		if errors.Is(err, io.EOF) {
			return names, left, nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// isFolder reports whether e is a folder, or a link to one, or to what can't be told.
func isFolder(root *os.Root, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := root.Stat(e.Name())
	return err != nil || info.IsDir()
}

// openFile opens a file or folder to read it. A pipe would hang without O_NONBLOCK.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// list returns the skills, none if there is no folder.
func (s *folderCache) list() []*cachedSkill {
	if s == nil {
		return nil
	}
	return s.skills
}

// readDir returns what is in a folder, at most [maxEntries].
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return entries, nil
}

// fileNames are what the file of a skill may be called; the first that is there counts.
var fileNames = []string{"SKILL.md", "Skill.md", "skill.md"}

// readSkill reads the skill in the folder dir below root, which is called name and has the given
// path.
func readSkill(root *os.Root, dir, name, path string, now time.Time) *cachedSkill {
	b := &cachedSkill{skill: Skill{Name: shown(name), Folder: name, file: fileNames[0]}}
	info, err := root.Lstat(dir)
	if err != nil {
		b.skill.Problem = reason(err)
		return b
	}
	b.seen = []seen{see(path, info, now)}
	entries, err := readDir(root, dir)
	if err != nil {
		b.skill.Problem = reason(err)
		return b
	}
	var files []string
	for _, e := range entries {
		if slices.Contains(fileNames, e.Name()) {
			files = append(files, e.Name())
		}
	}
	slices.Sort(files) // SKILL.md comes first, as it happens, and skill.md last
	if len(files) == 0 {
		b.skill.Problem = "it has no SKILL.md"
		return b
	}
	b.skill.file = files[0]
	file := filepath.Join(dir, files[0])
	data, err := b.readFile(root, file, filepath.Join(path, files[0]), now)
	if err != nil {
		b.skill.Problem = reason(err)
		return b
	}
	b.fill(parse(data))
	if len(files) > 1 {
		b.skill.Remarks = append(b.skill.Remarks,
			fmt.Sprintf("it has a %s besides its %s, which counts", files[1], files[0]))
	}
	return b
}

// readFile reads the file of a skill, and remembers in which state it was.
func (b *cachedSkill) readFile(root *os.Root, name, path string, now time.Time) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	s := see(path, info, now)
	data, err := readText(root, name)
	// If the file is there, then it shows what is different. Only for another name, which another
	// file may have the better of, the folder must be looked at, too.
	if err == nil && b.skill.file == fileNames[0] && b.seen[0].info.IsDir() {
		b.seen = []seen{s}
	} else {
		b.seen = append(b.seen, s)
	}
	return data, err
}

var (
	errNoFile  = errors.New("it is not a file")
	errTooLong = fmt.Errorf("it is larger than %d KB", maxFile>>10)
)

// readText reads the file of a skill.
func readText(root *os.Root, name string) ([]byte, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNoFile
	case info.Size() > maxFile:
		return nil, errTooLong
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLong
	}
	return data, err
}

// fill takes what stands in the document.
func (b *cachedSkill) fill(d document) {
	s := &b.skill
	s.Description, s.Always, s.Manual = d.description, d.always, d.manual
	s.Requires, s.License, s.Compatibility = d.requires, d.license, d.compatibility
	s.AllowedTools, s.Remarks, s.Problem = d.tools, d.remarks, d.problem
	switch {
	case d.name == "":
	case !harmless(d.name):
		s.Remarks = append(s.Remarks, "its name can't be said, so that its folder's counts")
	default:
		s.Name = d.name
	}
	switch {
	case !harmless(s.Name) && s.Problem == "":
		s.Problem = "neither it nor its folder has a name that can be said"
	case !validName(s.Name):
		s.Remarks = append(s.Remarks, fmt.Sprintf("its name should be at most %d lower-case letters, "+
			"digits and single hyphens", maxName))
	case s.Name != s.Folder:
		s.Remarks = append(s.Remarks, "its name is not that of its folder")
	}
	if s.Always && s.Problem == "" {
		b.text = cut(d.body, s)
	}
}

// shown returns the name of a folder as it can be shown.
func shown(name string) string {
	if name = clip(oneLine(name), maxName); name == "" {
		return "?"
	}
	return name
}

// reason says in words why a skill can't be read.
func reason(err error) string {
	switch {
	case errors.Is(err, errNoFile), errors.Is(err, errTooLong):
		return err.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "it is gone, or a link that leads nowhere"
	case errors.Is(err, fs.ErrPermission):
		return "it may not be read"
	case errors.Is(err, syscall.ENOTDIR):
		return "its folder is not a folder"
	case strings.Contains(err.Error(), "escapes"): // the os package has no name for this error
		return "it is a link that leads out of the folder of skills"
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // without the path
	}
	return "it can't be read: " + clip(oneLine(err.Error()), 200)
}

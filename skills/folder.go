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

	"gateway/store/plaintext"
)

// Limits of a folder of skills.
const (
	maxSkills  = 500  // skills in it that are read
	maxEntries = 2000 // files and folders in it, or in a skill, that are listed
)

// settleTime is longer than the time resolution of file systems. If something was last
// changed longer ago than that, any later change shows in its time.
const settleTime = 3 * time.Second

// folderCache is the content of a folder of skills when it was read. It is immutable.
type folderCache struct {
	state   fileState
	skills  []*cachedSkill // by the names of their folders
	problem string         // why no skill can be read, or ""
}

// cachedSkill is a skill in its folder when it was read. It is immutable; a [view] has
// copies.
type cachedSkill struct {
	skill   Skill
	text    string // text that is always part of the prompt, or ""
	inlined bool   // the view has the text in the prompt
	states  []fileState
}

// fileState is the state of a file or folder, for a cheap check of whether it has changed. The
// check uses the path and can only tell that something may have changed. Changed files are
// then read through the root, which a path can't leave.
type fileState struct {
	path    string
	info    fs.FileInfo
	settled bool
}

func stateOf(path string, info fs.FileInfo, now time.Time) fileState {
	// The time of a link does not show changes of its target.
	settled := info.Mode()&fs.ModeSymlink == 0 && now.Sub(info.ModTime()).Abs() > settleTime
	return fileState{path, info, settled}
}

// same reports whether the file is unchanged.
func (s fileState) same() bool {
	if !s.settled {
		return false
	}
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(info, s.info) && info.Size() == s.info.Size() &&
		info.Mode() == s.info.Mode() && info.ModTime().Equal(s.info.ModTime())
}

// same reports whether the skill is unchanged.
func (b *cachedSkill) same() bool {
	changed := func(s fileState) bool { return !s.same() }
	return len(b.states) > 0 && !slices.ContainsFunc(b.states, changed)
}

// same reports whether the folder and all skills in it are unchanged.
func (s *folderCache) same() bool {
	changed := func(b *cachedSkill) bool { return !b.same() }
	return s != nil && s.state.same() && !slices.ContainsFunc(s.skills, changed)
}

// openSkills opens the folder of skills with the given name below root. It refuses a link,
// so that no scope can see the folder of another. It also refuses a folder that was replaced by a
// link between the check and the opening.
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

// readFolder reads the folder of skills with the given name below root. It reuses
// unchanged skills of old. If there is no such folder, it returns nil and no error.
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
	for _, b := range old.list() {
		known[b.skill.Folder] = b
	}
	path, private := filepath.Join(root.Name(), name), name != skillsFolder
	s := &folderCache{state: stateOf(path, info, now)}
	names, left, err := folders(folder)
	if err != nil {
		return nil, err
	}
	// Skills beyond the limit are listed without being read, so that people see why they have no
	// effect.
	for i, name := range names {
		b := known[name]
		switch {
		case i >= maxSkills:
			b = &cachedSkill{skill: Skill{Name: displayName(name), Folder: name, file: fileNames[0],
				Problem: fmt.Sprintf("there are more than %d skills; it isn't looked at", maxSkills)}}
			if left > 0 && i == len(names)-1 {
				b.skill.Problem = fmt.Sprintf("there are more than %d skills; neither it nor the %d "+
					"folders after it are looked at", maxSkills, left)
			}
			b.states = []fileState{{path, info, true}}
		case b == nil || !b.same():
			b = readSkill(folder, name, name, filepath.Join(path, name), now)
			if private {
				b.text, b.skill.Always = "", false // only the owner may decide that
			}
		}
		s.skills = append(s.skills, b)
	}
	return s, nil
}

// folders returns the names of the folders and links in a folder, sorted: the first
// [maxEntries], and the number of the others. It skips names that begin with a dot.
func folders(root *os.Root) (names []string, left int, err error) {
	f, err := openFile(root, ".")
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	for {
		// The order of entries on disk is arbitrary, so all must be read to find the first ones by
		// name.
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

// isFolder reports whether e is a folder, or a link that leads to one or can't be
// followed.
func isFolder(root *os.Root, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := root.Stat(e.Name())
	return err != nil || info.IsDir()
}

// openFile opens a file or folder for reading. Opening a pipe without O_NONBLOCK would
// block.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// list returns the skills, or nil if there is no folder.
func (s *folderCache) list() []*cachedSkill {
	if s == nil {
		return nil
	}
	return s.skills
}

// readDir returns at most [maxEntries] entries of a folder.
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

// fileNames are the accepted names of a skill's file. The first that exists is used.
var fileNames = []string{"SKILL.md", "Skill.md", "skill.md"}

// readSkill reads the skill in the folder dir below root. name is the folder's name, path
// its path on disk.
func readSkill(root *os.Root, dir, name, path string, now time.Time) *cachedSkill {
	b := &cachedSkill{skill: Skill{Name: displayName(name), Folder: name, file: fileNames[0]}}
	info, err := root.Lstat(dir)
	if err != nil {
		b.skill.Problem = reason(err)
		return b
	}
	b.states = []fileState{stateOf(path, info, now)}
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
	slices.Sort(files) // sorts SKILL.md first and skill.md last
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
			fmt.Sprintf("it has a %s besides its %s, which is used", files[1], files[0]))
	}
	return b
}

// readFile reads the file of a skill, and records its state.
func (b *cachedSkill) readFile(root *os.Root, name, path string, now time.Time) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	s := stateOf(path, info, now)
	data, err := readText(root, name)
	// If the first name exists, changes show in its state. For another name the folder must be
	// checked, too, because a preferred file may appear in it.
	if err == nil && b.skill.file == fileNames[0] && b.states[0].info.IsDir() {
		b.states = []fileState{s}
	} else {
		b.states = append(b.states, s)
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

// fill adds what a parsed document says.
func (b *cachedSkill) fill(d document) {
	s := &b.skill
	name := d.Name
	d.Name, d.Folder, d.file = s.Name, s.Folder, s.file
	*s = d.Skill
	switch {
	case name == "":
	case !isShowable(name):
		s.Remarks = append(s.Remarks, "its name can't be mentioned, so its folder's name is used")
	default:
		s.Name = name
	}
	switch {
	case !isShowable(s.Name) && s.Problem == "":
		s.Problem = "neither its name nor that of its folder can be shown"
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

// displayName returns the name of a folder in a form that can be shown.
func displayName(name string) string {
	if name = plaintext.Line(name, maxName); name == "" {
		return "?"
	}
	return name
}

// reason explains why a skill can't be read.
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
	case strings.Contains(err.Error(), "escapes"): // package os does not export this error
		return "it is a link that leads out of the folder of skills"
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // without the path
	}
	return "it can't be read: " + plaintext.Line(err.Error(), 200)
}

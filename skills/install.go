package skills

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/store/plaintext"
)

// ErrExists means that a shared skill with that name exists already.
var ErrExists = errors.New("there is such a skill already")

// A Package is a skill with all its files, checked.
type Package struct {
	Skill Skill
	Files []File
	Hash  string // hash of all files; "" if they can't be read

	// Problems lists the reasons why the skill can't be used or, from [Library.Check], can't be
	// installed; nil if there are none.
	Problems []string
}

// Check examines a skill in any folder.
func (l *Library) Check(dir string) (Package, error) {
	root, name, err := openFolder(dir)
	if err != nil {
		return Package{}, fmt.Errorf("skills: check: %w", err)
	}
	defer root.Close()
	return l.check(root, name, dir, repository), nil
}

// Inspect examines a skill of [Library.List].
func (l *Library) Inspect(s Skill) Package {
	p := Package{Skill: s}
	if s.Problem != "" {
		p.Problems = append(p.Problems, s.Problem)
	}
	var err error
	p.Files, p.Hash, err = l.files(s)
	p.Skill.Remarks = slices.Concat(s.Remarks, fileProblems(p.Files, err))
	return p
}

// openFolder opens a folder given by a user, and returns its base name.
func openFolder(dir string) (*os.Root, string, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(full)
	return root, filepath.Base(full), err
}

// repository is the author's Git history, which is not part of a skill that is installed.
const repository = ".git"

// check examines the skill in root, whose folder is called name, except the file or folder with the
// name without.
func (l *Library) check(root *os.Root, name, dir, without string) Package {
	b := readSkill(root, ".", name, dir, l.opts.Now())
	p := Package{Skill: b.skill}
	p.Skill.Location = filepath.Join(dir, b.skill.file)
	p.Skill.Missing = l.missing(b.skill.Requires)
	if b.skill.Problem != "" {
		p.Problems = append(p.Problems, b.skill.Problem)
	}
	var err error
	p.Files, p.Hash, err = survey(folderOf(root), without)
	p.Problems = append(p.Problems, fileProblems(p.Files, err)...)
	return p
}

// fileProblems returns the problems of files. err is the error, if any, that ended the reading of
// the files.
func fileProblems(files []File, err error) []string {
	const most = 20
	var wrong []string
	if err != nil {
		wrong = append(wrong, "its files can't be read: "+plaintext.OneLine(err.Error()))
	}
	for _, f := range files {
		switch {
		case len(wrong) >= most:
			return wrong
		case f.Irregular != "":
			wrong = append(wrong, fmt.Sprintf("%s is %s", shownPath(f.Name), f.Irregular))
		case !isPortable(f.Name):
			wrong = append(wrong, shownPath(f.Name)+" has a name that no file should have")
		}
	}
	return wrong
}

func shownPath(name string) string { return plaintext.Line(name, 200) }

// Install copies the skill in the folder dir into the shared folder. It replaces a skill
// with the same name only if force is set; otherwise it returns an error that wraps
// [ErrExists]. The new skill becomes visible only when it is complete. If dir is already a
// shared skill, Install only checks it. A skill with any Problems is returned and not
// installed.
func (l *Library) Install(dir string, force bool) (Package, error) {
	if l.opts.Shared == nil {
		return Package{}, errors.New("skills: install: there is no shared folder")
	}
	from, name, err := openFolder(dir)
	if err != nil {
		return Package{}, fmt.Errorf("skills: install: %w", err)
	}
	defer from.Close()
	p := l.check(from, name, dir, repository)
	if len(p.Problems) > 0 {
		return p, nil
	}
	if err := l.opts.Shared.Mkdir(skillsFolder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return p, fmt.Errorf("skills: install: %w", err)
	}
	skillsDir, _, err := openSkills(l.opts.Shared, skillsFolder)
	if err != nil {
		return p, fmt.Errorf("skills: install: %w", err)
	}
	defer skillsDir.Close()
	if err := putBack(skillsDir); err != nil {
		return p, fmt.Errorf("skills: install: %w", err)
	}
	sweep(skillsDir, l.opts.Now())
	// The folder gets the name of the skill if that is a good one. A skill that is already there
	// keeps its folder.
	if p.Skill.Folder = name; validName(p.Skill.Name) && !isIn(skillsDir, name, from) {
		p.Skill.Folder = p.Skill.Name
	}
	if p, err = l.put(skillsDir, from, p, force); err != nil {
		return p, fmt.Errorf("skills: install %s: %w", p.Skill.Name, err)
	}
	p.Skill.Source = Shared
	p.Skill.Location = location(Shared, p.Skill.Folder, p.Skill.file)
	return p, nil
}

// put copies a checked skill into the shared folder. It checks the copy again before the
// copy becomes visible.
func (l *Library) put(skillsDir, from *os.Root, p Package, force bool) (Package, error) {
	name := p.Skill.Folder
	if !isShowable(name) || !isPortable(name) {
		return p, fmt.Errorf("%q is not a name for its folder", displayName(name))
	}
	if isIn(skillsDir, name, from) { // the skill stays there with all its files
		p = l.check(from, name, filepath.Dir(p.Skill.Location), "")
		p.Skill.Folder = name
		return p, nil
	}
	if _, err := skillsDir.Lstat(name); err == nil && !force {
		return p, ErrExists
	}
	staged := temporary()
	if err := skillsDir.Mkdir(staged, 0o700); err != nil {
		return p, err
	}
	// The source can change while it is copied, so only the check of the copy counts.
	done, err := l.stage(skillsDir, staged, from, p)
	if err == nil && len(done.Problems) == 0 {
		err = exchange(skillsDir, staged, name)
	}
	if err != nil || len(done.Problems) > 0 {
		return done, errors.Join(err, skillsDir.RemoveAll(staged))
	}
	return done, nil
}

// isIn reports whether folder is the one called name in skillsDir.
func isIn(skillsDir *os.Root, name string, folder *os.Root) bool {
	here, err := folder.Stat(".")
	if err != nil {
		return false
	}
	there, err := skillsDir.Lstat(name)
	return err == nil && os.SameFile(here, there)
}

// Recover completes or undoes the exchanges of shared skills during which an installation was
// killed.
func (l *Library) Recover() error {
	if l.opts.Shared == nil {
		return nil
	}
	skillsDir, _, err := openSkills(l.opts.Shared, skillsFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer skillsDir.Close()
		err = putBack(skillsDir)
	}
	if err != nil {
		return fmt.Errorf("skills: recover: %w", err)
	}
	return nil
}

// putBack renames the old folders of exchanges back if there is no folder in their place, and
// removes the others.
func putBack(skillsDir *os.Root) error {
	entries, err := readDir(skillsDir, ".")
	errs := []error{err}
	for _, e := range entries {
		_, name, ok := strings.Cut(strings.TrimPrefix(e.Name(), replacedPrefix), "-")
		if !ok || !strings.HasPrefix(e.Name(), replacedPrefix) || !isShowable(name) {
			continue
		}
		switch _, err := skillsDir.Lstat(name); {
		case err == nil:
			errs = append(errs, removeReplaced(skillsDir, e.Name()))
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, skillsDir.Rename(e.Name(), name))
		default: // it may be the only copy
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeReplaced removes the folder of a replaced skill. It first gives the folder a name that
// putBack does not know, because a kill can leave a part of it. sweep removes that part, and what
// can't be removed now.
func removeReplaced(skillsDir *os.Root, folder string) error {
	rest := temporary()
	err := skillsDir.Rename(folder, rest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process was faster
	}
	if err == nil {
		_ = skillsDir.RemoveAll(rest)
	}
	return err
}

// sweep removes the temporary folders of installations that were killed.
func sweep(skillsDir *os.Root, now time.Time) {
	entries, err := readDir(skillsDir, ".")
	if err != nil {
		return // the installation reports the same error
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), temporaryPrefix) &&
			now.Sub(info.ModTime()) > time.Hour {
			_ = skillsDir.RemoveAll(e.Name()) // harmless if it fails; retried next time
		}
	}
}

// stage copies a skill's files to a folder, and checks the copy.
func (l *Library) stage(
	skillsDir *os.Root, staged string, from *os.Root, p Package,
) (Package, error) {
	to, err := skillsDir.OpenRoot(staged)
	if err != nil {
		return p, err
	}
	defer to.Close()
	left := int64(maxBytes)
	for _, f := range p.Files {
		if err := copyFile(to, from, f, &left); err != nil {
			return p, err
		}
	}
	done := l.check(to, p.Skill.Folder, staged, "")
	done.Skill.Folder = p.Skill.Folder
	return done, nil
}

// copyFile copies a file of at most left bytes.
func copyFile(to, from *os.Root, f File, left *int64) error {
	name := filepath.FromSlash(f.Name)
	if dir := path.Dir(f.Name); dir != "." {
		if err := to.MkdirAll(filepath.FromSlash(dir), 0o700); err != nil {
			return err
		}
	}
	in, err := openFile(from, name)
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is no longer a file", f.Name))
	}
	mode := fs.FileMode(0o600)
	if f.run {
		mode = 0o700
	}
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = fmt.Errorf("more than %d MB", maxBytes>>20)
	}
	// The rename must not reach the disk before the content.
	return errors.Join(err, out.Sync(), out.Close())
}

// exchange renames a staged folder to name, and replaces an existing folder. The two renames are
// not one step: after a kill in between, putBack finds the old folder by its name.
func exchange(skillsDir *os.Root, staged, name string) error {
	old := replacedPrefix + rand.Text() + "-" + name
	err := skillsDir.Rename(name, old)
	if errors.Is(err, fs.ErrNotExist) {
		return skillsDir.Rename(staged, name)
	}
	if err != nil {
		return err
	}
	if err := skillsDir.Rename(staged, name); err != nil {
		return errors.Join(err, skillsDir.Rename(old, name))
	}
	return removeReplaced(skillsDir, old)
}

// The beginnings of names that no skill can have. The folder of a skill that is being replaced has
// the second one, a random text without a hyphen, and the name of the skill.
const (
	temporaryPrefix = ".gateway-"
	replacedPrefix  = temporaryPrefix + "replaced-"
)

// temporary returns such a name.
func temporary() string { return temporaryPrefix + rand.Text() }

// Remove removes a skill of [Library.List] that is not built in, with all its files.
func (l *Library) Remove(s Skill) error {
	if s.Source == Builtin {
		return fmt.Errorf("skills: remove %s: it is built in", s.Name)
	}
	skillsDir, err := l.open(s)
	if err == nil {
		defer skillsDir.Close()
		if err = putBack(skillsDir); err != nil { // later it would put an older skill in this place
			return fmt.Errorf("skills: remove %s: %w", s.Name, err)
		}
		old := temporary() // atomic: nobody reads half a skill
		if err = skillsDir.Rename(s.Folder, old); err == nil {
			err = skillsDir.RemoveAll(old)
		}
	}
	if err != nil {
		return fmt.Errorf("skills: remove %s: %w", s.Name, err)
	}
	return nil
}

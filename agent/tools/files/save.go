package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"gateway/agent/tool"
	"gateway/agent/tools/files/osfile"
)

// Modes of created files and folders, before the process's umask.
const (
	newFile = 0o644
	newDir  = 0o755

	onlyOurs = 0o700 // of them, in a private tree
)

// mode returns the mode of a new file or folder in t, of which usual is the one elsewhere.
func (t *tree) mode(usual fs.FileMode) fs.FileMode {
	if t.private {
		return usual & onlyOurs
	}
	return usual
}

// change is a change of one file.
type change struct {
	target
	content []byte
	remove  bool
	like    fs.FileInfo // source of a new file's owner and mode, or nil
}

// staged is a prepared change: the new content is in a temporary file beside the file.
type staged struct {
	change
	dir    *os.Root // the directory
	temp   string   // the new content, or ""
	backup string   // the old file's second name, or ""
	made   []string // directories that were made for it, the innermost first
	done   bool
}

// save makes all changes or none. It writes all new contents to disk before it changes
// anything. If one of several changes then fails, it undoes the others. The caller holds
// e.lock.
func (e *editor) save(ctx context.Context, c tool.Call, changes ...change) error {
	list := make([]*staged, 0, len(changes))
	err := func() error {
		for _, ch := range changes {
			if err := ctx.Err(); err != nil {
				return err
			}
			s := &staged{change: ch}
			list = append(list, s)
			if err := s.prepare(e.trees, len(changes) > 1); err != nil {
				return e.trees.explain(ch.place, err)
			}
		}
		// From here on the files change, one after another.
		for _, s := range list {
			if err := s.commit(); errors.Is(err, errChanged) {
				return changedSince(s.place)
			} else if err != nil {
				return e.trees.explain(s.place, err)
			}
		}
		return nil
	}()
	if err != nil {
		// In reverse order: a later change may be in a directory that an earlier one has made.
		for _, s := range slices.Backward(list) {
			err = errors.Join(err, s.rollback())
		}
	}
	for _, s := range list {
		if err == nil {
			e.finish(c, s)
		}
		s.clean()
	}
	return err
}

// errChanged means that a file is no longer the one that was read.
var errChanged = errors.New("changed meanwhile")

// prepare does everything before the change itself. keep means that the change may have to be
// undone. A single change needs no backup: if its rename fails, the old file is still there.
func (s *staged) prepare(ts *trees, keep bool) error {
	d := descent{trees: ts, at: s.place, create: !s.remove}
	var err error
	s.dir, err = d.open()
	s.made = d.made
	if err != nil {
		return err
	}
	if !s.remove {
		if err := s.writeTemp(); err != nil {
			return err
		}
	}
	if keep && s.info != nil {
		return s.backUp()
	}
	return nil
}

// tempName returns a name that no file has.
func tempName() string { return ".gateway-" + rand.Text() + ".tmp" }

// writeTemp writes the new content to a temporary file with the final owner and mode.
func (s *staged) writeTemp() error {
	name := tempName()
	f, err := s.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.tree.mode(newFile))
	if err != nil {
		return err
	}
	s.temp = name
	_, err = f.Write(s.content)
	if like := cmp.Or(s.info, s.like); err == nil && like != nil {
		osfile.KeepOwner(f, like)
		err = f.Chmod(like.Mode().Perm())
	}
	if err == nil {
		// Otherwise a crash could leave the new name with an empty file.
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// backUp makes a hard link to the old file, or a copy if links are not possible.
func (s *staged) backUp() error {
	name := tempName()
	base := filepath.Base(s.path)
	err := s.dir.Link(base, name)
	if err == nil {
		s.backup = name
		return nil
	}
	old, err := s.dir.ReadFile(base)
	if err != nil {
		return err
	}
	// Only the owner may read the copy before it has its mode.
	if err := s.dir.WriteFile(name, old, newFile&0o600); err != nil {
		return err
	}
	s.backup = name
	return s.dir.Chmod(name, s.info.Mode().Perm())
}

// commit makes the change, if the file is still the one that was read. Another process can still
// change the file between the check and the rename.
func (s *staged) commit() error {
	base := filepath.Base(s.path)
	info, err := s.dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.info == nil:
	case errors.Is(err, fs.ErrNotExist):
		return errChanged
	case err != nil:
		return err
	case s.info == nil || !same(s.info, info):
		return errChanged
	}
	if s.remove {
		err = s.dir.Remove(base)
	} else if err = s.dir.Rename(s.temp, base); err == nil {
		s.temp = ""
	}
	s.done = err == nil
	return err
}

// rollback undoes the change. Its error continues the sentence of the error that made it necessary.
func (s *staged) rollback() error {
	base := filepath.Base(s.path)
	var err error
	switch {
	case !s.done:
	case s.backup != "":
		if err = s.dir.Rename(s.backup, base); err != nil {
			err = fmt.Errorf("%w; its old content is in %q", err,
				path.Join(path.Dir(s.name), s.backup))
		}
		s.backup = "" // it is the file now, or the only copy of it
	case s.info == nil:
		err = s.dir.Remove(base)
	}
	s.discard()
	for _, d := range s.made {
		_ = s.tree.dir.Remove(d) // fails if it is not empty
	}
	if err != nil {
		return fmt.Errorf("and %q could not be put back: %w", s.given, err)
	}
	return nil
}

// finish makes a change durable, and records the new state for the session.
func (e *editor) finish(c tool.Call, s *staged) {
	if d, err := s.dir.Open("."); err == nil {
		_ = d.Sync() // not supported everywhere; the file itself is synced
		_ = d.Close()
	}
	if info, err := s.dir.Lstat(filepath.Base(s.path)); err == nil && !s.remove {
		e.seen.record(c.Session, s.place, info)
	}
}

// discard removes temporary files.
func (s *staged) discard() {
	for _, name := range []*string{&s.temp, &s.backup} {
		if *name != "" && s.dir != nil {
			_ = s.dir.Remove(*name) // a temporary file of ours
			*name = ""
		}
	}
}

// clean releases the resources of the change.
func (s *staged) clean() {
	s.discard()
	if s.dir != nil {
		_ = s.dir.Close() // nothing was written through it
	}
}

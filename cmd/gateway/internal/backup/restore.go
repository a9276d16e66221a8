package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gateway/store"
)

// RestoreOptions are the settings of [Restore].
type RestoreOptions struct {
	Migrations []store.Migration // that this gateway knows
	Force      bool              // existing data is moved aside
	Now        time.Time         // names the folder that gets it
	// Place says where a part goes: an absolute path, or false for a name that is not of a gateway's
	// data.
	Place func(name string) (Part, bool)
	// Adopt makes a database fit to go on, before anything is changed: name is that of its part, and
	// path where it was unpacked. May be nil.
	Adopt func(ctx context.Context, name, path string) error
	// Home is the data directory. While parts are being replaced it has a file Unfinished.
	Home string
}

// Unfinished is the file that is in the data directory while a restore replaces its parts. A
// gateway must not start there.
const Unfinished = "restore-unfinished"

// A Restored says what [Restore] has done.
type Restored struct {
	Manifest Manifest
	Aside    []string // folders with what was there before
}

// Restore puts back what is in the archive that r reads. The caller holds the lock of the database.
//
// Nothing is changed before all of the archive was unpacked and every sum is right. What is there
// already is moved into a folder before-restore-TIME beside it, never deleted. It reports
// [ErrForeign], [ErrNewer], [store.ErrNewer] or, without Force, [ErrExists].
func Restore(ctx context.Context, r io.Reader, o RestoreOptions) (*Restored, error) {
	u := &unpacker{o: o, roots: make(map[string]*part)}
	err := u.unpack(ctx, r)
	var done *Restored
	if err == nil {
		err = u.adopt(ctx)
	}
	if err == nil {
		done, err = u.swap()
	}
	if err = errors.Join(err, u.close()); err != nil {
		return nil, fmt.Errorf("backup: restore: %w", err)
	}
	return done, nil
}

// adopt lets the caller change databases that were checked.
func (u *unpacker) adopt(ctx context.Context) error {
	if u.o.Adopt == nil {
		return nil
	}
	for _, p := range u.parts {
		if p.Kind != Database {
			continue
		}
		if err := u.o.Adopt(ctx, p.Name, filepath.Join(p.stage, p.Name)); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// swap puts each part in its place.
func (u *unpacker) swap() (*Restored, error) {
	done := &Restored{Manifest: u.manifest}
	for _, p := range u.parts {
		for _, path := range p.files() {
			if _, err := os.Lstat(path); err == nil && !u.o.Force {
				return nil, fmt.Errorf("%s: %w", path, ErrExists)
			}
		}
	}
	if len(u.parts) == 0 || u.parts[0].Kind != Database {
		return nil, foreign("it has no database")
	}
	mark := filepath.Join(u.o.Home, Unfinished)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, err
	}
	if err := syncDir(u.o.Home); err != nil {
		return nil, err
	}
	for _, p := range u.parts {
		if err := u.moveAside(p, done); err != nil {
			return nil, err
		}
		if err := os.Rename(filepath.Join(p.stage, p.Name), p.Path); err != nil {
			return nil, err
		}
		if err := syncDir(filepath.Dir(p.Path)); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(mark); err != nil {
		return nil, err
	}
	return done, syncDir(u.o.Home)
}

// A part is one that was unpacked.
type part struct {
	Part
	stage  string // folder in which it was, on the file system of its place
	unlock func() error
	root   *os.Root
}

// files returns the paths that the part takes. What SQLite keeps beside a database belongs to it: a
// log that is not this database's own would be written into it.
func (p *part) files() []string {
	if p.Kind == Database {
		return []string{p.Path, p.Path + "-wal", p.Path + "-shm", p.Path + "-journal"}
	}
	return []string{p.Path}
}

// moveAside moves what is in the part's place into a folder beside it, and notes that in done.
func (u *unpacker) moveAside(p *part, done *Restored) error {
	for _, path := range p.files() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		dir, err := u.asideFolder(filepath.Dir(path), done)
		if err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

// asideFolder returns the folder in dir that gets what was there, which it makes once.
func (u *unpacker) asideFolder(dir string, done *Restored) (string, error) {
	for _, known := range done.Aside {
		if filepath.Dir(known) == dir {
			return known, nil
		}
	}
	base := filepath.Join(dir, "before-restore-"+u.o.Now.UTC().Format("20060102-150405"))
	name, err := base, os.Mkdir(base, 0o700)
	for n := 2; errors.Is(err, fs.ErrExist); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
		err = os.Mkdir(name, 0o700)
	}
	if err == nil {
		done.Aside = append(done.Aside, name)
	}
	return name, err
}

// close removes what was unpacked and is in no place.
func (u *unpacker) close() error {
	var errs []error
	for _, p := range u.roots {
		errs = append(errs, p.root.Close(), p.unlock(), os.RemoveAll(p.stage))
	}
	return errors.Join(errs...)
}

// open returns the part that a name of the archive belongs to.
func (u *unpacker) open(name string) (*part, error) {
	top, _, _ := strings.Cut(name, "/")
	if p, ok := u.roots[top]; ok {
		return p, nil
	}
	place, ok := u.o.Place(top)
	if !ok {
		return nil, foreign("%q is not a part of a gateway's data", top)
	}
	place.Name = top
	p := &part{Part: place}
	dir := filepath.Dir(p.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.prepare(dir); err != nil {
		return nil, err
	}
	u.roots[top] = p
	u.parts = append(u.parts, p)
	return p, nil
}

// prepare makes the stage of p in dir, after it has removed those that a kill has left there.
func (p *part) prepare(dir string) error {
	err := sweep(dir, restorePattern)
	if err != nil {
		return err
	}
	if p.stage, err = os.MkdirTemp(dir, restorePattern); err != nil {
		return err
	}
	if p.unlock, err = store.Lock(filepath.Join(p.stage, lockName)); err != nil {
		return errors.Join(err, os.RemoveAll(p.stage))
	}
	if p.root, err = os.OpenRoot(p.stage); err != nil {
		return errors.Join(err, p.unlock(), os.RemoveAll(p.stage))
	}
	return nil
}

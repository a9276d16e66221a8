package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"gateway/store"
)

// WriteOptions are the settings of [Write].
type WriteOptions struct {
	Version string    // version of the gateway
	Force   bool      // replaces an existing archive
	Stream  io.Writer // destination instead of a file
	Scratch string    // folder for the copies; required with Stream

	// Copied, if not nil, is called after the first part, the gateway's database, was copied and
	// before anything else is copied. It may open the copy at path.
	Copied func(ctx context.Context, path string) error
}

// Write writes an archive of parts. The first part is the gateway's database. The file gets its
// name when it is complete and synced; only its owner can read it. Write skips parts that don't
// exist, except the first.
func Write(ctx context.Context, file string, parts []Part, o WriteOptions) (*Manifest, error) {
	dir := o.Scratch
	if o.Stream == nil {
		dir = filepath.Dir(file)
		if _, err := os.Lstat(file); err == nil && !o.Force {
			return nil, fmt.Errorf("backup: write %s: %w", file, ErrExists)
		}
	}
	s, err := newStage(dir)
	if err != nil {
		return nil, fmt.Errorf("backup: write %s: %w", file, err)
	}
	m, err := s.write(ctx, file, parts, o)
	if err = errors.Join(err, s.close()); err != nil {
		return nil, fmt.Errorf("backup: write %s: %w", file, err)
	}
	return m, nil
}

// write copies all parts into the stage, computes their sums, and writes the archive. It skips
// parts that don't exist, but the database must.
func (s *stage) write(
	ctx context.Context, file string, parts []Part, o WriteOptions,
) (*Manifest, error) {
	m := &s.manifest
	*m = Manifest{Program: program, Format: Format, Version: o.Version,
		Created: time.Now().UTC().Truncate(time.Millisecond)}
	for i, p := range parts {
		err := s.copyPart(ctx, p)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			continue
		}
		if err == nil && i == 0 {
			err = s.database(ctx, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := s.sum(ctx); err != nil {
		return nil, err
	}
	if o.Stream != nil {
		return m, s.pack(ctx, o.Stream)
	}
	return m, s.publish(ctx, file)
}

// database reads the schema versions from the copied database and calls Copied.
func (s *stage) database(ctx context.Context, o WriteOptions) error {
	path := filepath.Join(s.dir, treeName, s.names[0])
	var err error
	if s.manifest.Schema, err = store.Versions(ctx, path); err != nil || o.Copied == nil {
		return err
	}
	return o.Copied(ctx, path)
}

// publish writes the archive to a temporary file and renames it.
func (s *stage) publish(ctx context.Context, file string) error {
	temp := filepath.Join(s.dir, "archive")
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = s.pack(ctx, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

// syncDir syncs a folder, so that renames in it survive a crash. Some systems don't support that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some systems can't sync folders; the files themselves are synced
	return d.Close()
}

// pack writes the copied files as an archive.
func (s *stage) pack(ctx context.Context, w io.Writer) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed) // leaves CPU time to the running gateway
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	text, err := json.MarshalIndent(&s.manifest, "", " ")
	if err != nil {
		return err
	}
	if int64(len(text)) > maxManifest { // Restore would refuse the archive
		return fmt.Errorf("the list of the %d files and their paths has more than %d MB",
			len(s.manifest.Entries), maxManifest>>20)
	}
	err = out.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(text)),
		ModTime: s.manifest.Created, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = out.Write(text)
	}
	for _, e := range s.manifest.Entries {
		if err == nil {
			err = s.packEntry(ctx, out, e)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(out.Close(), zip.Close())
}

// packEntry adds a file or a folder to the archive. The size in the manifest must be that of the
// file.
func (s *stage) packEntry(ctx context.Context, out *tar.Writer, e Entry) error {
	f, err := os.Open(filepath.Join(s.dir, treeName, filepath.FromSlash(e.Name)))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: e.Name, Mode: int64(e.Mode), ModTime: info.ModTime(),
		Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: e.Size}
	if info.IsDir() {
		h.Typeflag = tar.TypeDir
		return out.WriteHeader(h)
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(out, contextReader{ctx, f})
	if err == nil && n != e.Size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// A stage is the temporary folder that contains the copies of all parts.
type stage struct {
	dir      string
	unlock   func() error
	names    []string // names of the copied parts
	manifest Manifest
}

const (
	stagePattern   = ".gateway-backup-*"
	restorePattern = ".gateway-restore-*"
	treeName       = "tree" // the folder with the content of the archive
	lockName       = "lock"
	staleAge       = time.Minute // minimum age of an unlocked stage that is removed
)

// newStage creates a stage in dir. It first removes stages that a killed process has left.
func newStage(dir string) (*stage, error) {
	if err := sweep(dir, stagePattern); err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(dir, stagePattern)
	if err != nil {
		return nil, err
	}
	s := &stage{dir: own}
	if s.unlock, err = store.Lock(filepath.Join(own, lockName)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	if err := os.Mkdir(filepath.Join(own, treeName), 0o700); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// Sweep removes the copies of data in dir that killed backups and restores have left.
func Sweep(dir string) error {
	err := errors.Join(sweep(dir, stagePattern), sweep(dir, restorePattern))
	return store.Wrap(err, "backup: remove copies in %s", dir)
}

// sweep removes the stages in dir that match pattern and whose processes have ended. A folder
// without a lock file is somebody else's.
func sweep(dir, pattern string) error {
	list, err := fs.Glob(os.DirFS(dir), pattern) // dir is not a pattern: it may contain brackets
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range list {
		old := filepath.Join(dir, name)
		info, err := os.Lstat(old)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < staleAge {
			continue
		}
		lock := filepath.Join(old, lockName)
		if info, err := os.Lstat(lock); err != nil || !info.Mode().IsRegular() {
			continue
		}
		unlock, err := store.Lock(lock)
		if err != nil {
			continue // in use, or not writable for this user
		}
		errs = append(errs, unlock(), os.RemoveAll(old))
	}
	return errors.Join(errs...)
}

func (s *stage) close() error { return errors.Join(s.unlock(), os.RemoveAll(s.dir)) }

// copyPart copies a part into the stage. The error wraps [fs.ErrNotExist] if the part does not
// exist.
func (s *stage) copyPart(ctx context.Context, p Part) error {
	to := filepath.Join(s.dir, treeName, p.Name)
	var err error
	switch p.Kind {
	case Database:
		err = store.Copy(ctx, p.Path, to)
	case File:
		err = copyFile(ctx, p.Path, to)
	default:
		err = s.copyFolder(ctx, p, ".", to)
	}
	if err == nil {
		s.names = append(s.names, p.Name)
	}
	return err
}

// copyFolder copies the files at name below a part's folder to the same place below to. The agent
// may change files meanwhile, so files that disappear are no error.
func (s *stage) copyFolder(ctx context.Context, p Part, name, to string) error {
	root, err := os.OpenRoot(p.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), name, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), temporary().MatchString(path.Base(name)),
			p.Kind == Frozen && strings.HasSuffix(name, ".part"):
			return leave(d) // removed meanwhile, or still being written
		case !utf8.ValidString(name), isClosed(p, err):
			s.skip(path.Join(p.Name, name))
			return leave(d)
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		target := filepath.Join(to, filepath.FromSlash(name))
		switch {
		case d.IsDir():
			err = os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular():
			err = errIrregular
		default:
			err = s.copyBelow(ctx, p, root, name, target)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case isClosed(p, err), errors.Is(err, errIrregular),
			errors.Is(err, syscall.ENAMETOOLONG): // commands can nest folders without a limit
			s.skip(path.Join(p.Name, name))
			return leave(d)
		}
		return err
	})
}

// leave skips d in a walk. d is nil if it could not be read.
func leave(d fs.DirEntry) error {
	if d != nil && d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// isClosed reports whether err says that this user may not read a file in a Folder. Commands
// create files there and can change their modes. Such a file must not make backups fail.
func isClosed(p Part, err error) bool {
	return p.Kind == Folder && errors.Is(err, fs.ErrPermission)
}

// temporary matches the names that the gateway gives: of files, of skills that are installed or
// replaced, and of the folders of this package. The agent may use other names that begin so.
var temporary = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\.gateway-(?:.*\.tmp|[A-Z2-7]{26}|(?:replaced|backup|restore)-.*)$`)
})

func (s *stage) skip(name string) {
	name = strings.ToValidUTF8(name, "�")
	if len(s.manifest.Skipped) < maxSkipped {
		s.manifest.Skipped = append(s.manifest.Skipped, name)
	}
}

// copyBelow copies the file at name below a part's folder. If possible it links a file that never
// changes, which takes no space.
func (s *stage) copyBelow(ctx context.Context, p Part, root *os.Root, name, target string) error {
	from := filepath.Join(p.Path, filepath.FromSlash(name))
	if p.Kind == Frozen && os.Link(from, target) == nil {
		return nil // linking fails on another file system or on one without links
	}
	// A pipe may have taken its place since the folder was listed. It would block without O_NONBLOCK.
	r, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	var filter func(w io.Writer, r io.Reader) error
	if p.Filter != nil {
		filter = func(w io.Writer, r io.Reader) error { return p.Filter(name, w, r) }
	}
	return copyOpen(ctx, r, target, filter)
}

func copyFile(ctx context.Context, from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	return copyOpen(ctx, r, to, nil)
}

var errIrregular = errors.New("not a regular file")

// copyOpen copies r up to its present size to a new file with the same times and permissions.
func copyOpen(
	ctx context.Context, r *os.File, to string, filter func(w io.Writer, r io.Reader) error,
) error {
	info, err := r.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", r.Name(), errIrregular)
	}
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// A file that grows, such as a history, is copied as it was at the beginning.
	in := contextReader{ctx, io.LimitReader(r, info.Size())}
	if filter != nil {
		err = filter(w, in)
	} else {
		_, err = io.Copy(w, in)
	}
	return errors.Join(err, w.Chmod(info.Mode().Perm()), w.Close(),
		os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// sum adds an entry for each copied file to the manifest.
func (s *stage) sum(ctx context.Context) error {
	tree := filepath.Join(s.dir, treeName)
	for _, name := range s.names {
		err := filepath.WalkDir(filepath.Join(tree, name),
			func(file string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(tree, file)
				if err != nil {
					return err
				}
				e, err := entry(ctx, file, filepath.ToSlash(rel), d)
				if err == nil && len(s.manifest.Entries) == maxEntries {
					err = fmt.Errorf("more than %d files", maxEntries)
				}
				s.manifest.Entries = append(s.manifest.Entries, e)
				return err
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// entry returns the entry for a copied file or folder. It reads the copy, because the original can
// change.
func entry(ctx context.Context, file, name string, d fs.DirEntry) (Entry, error) {
	if d.IsDir() {
		return Entry{Name: name + "/", Mode: 0o700}, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, contextReader{ctx, f})
	return Entry{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)),
		Mode: uint32(info.Mode().Perm())}, err
}

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
	"slices"
	"strings"
	"time"

	"gateway/store"
)

// RestoreOptions are the settings of [Restore].
type RestoreOptions struct {
	Migrations []store.Migration // the tables that this gateway knows
	Force      bool              // moves existing data aside instead of failing
	Now        time.Time         // names the folder for the old data
	// Place returns the part with a name and its absolute path, or false if the name is unknown.
	Place func(name string) (Part, bool)
	// Adopt prepares an unpacked database before any data is replaced. name is the name of its
	// part, path the unpacked file. It may be nil.
	Adopt func(ctx context.Context, name, path string) error
	// Replaced returns the paths of data that the parts of an archive replace, besides their own
	// paths. It may be nil.
	Replaced func(m *Manifest) []string
	// Home is the data directory. It contains the file Unfinished while parts are being replaced.
	Home string
}

// Unfinished is a file in the data directory that exists while a restore replaces its parts. A
// gateway must not start there.
const Unfinished = "restore-unfinished"

// A Restored describes the result of [Restore].
type Restored struct {
	Manifest Manifest
	Aside    []string // folders with the old data
}

// Restore replaces the gateway's data with the archive that r reads. The caller holds the lock of
// the database.
//
// Restore first unpacks the whole archive and checks every sum; only then it changes data. It
// moves existing data into a folder before-restore-TIME beside it and never deletes it. If it can't
// move something, such as a folder that is a mount point, it moves everything back. The error can
// be [ErrForeign], [ErrNewer], [store.ErrNewer] or, without Force, [ErrExists].
func Restore(ctx context.Context, r io.Reader, o RestoreOptions) (*Restored, error) {
	u := &unpacker{opts: o, roots: make(map[string]*part)}
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

// maxSingle limits the size of a file that [ReadFile] returns.
const maxSingle = 16 << 20

// ReadFile returns the content of one file of the archive that r reads, or nil if the archive does
// not have it. It checks the sum of that file only. The error can be [ErrForeign], [ErrNewer] or
// [store.ErrNewer].
func ReadFile(
	ctx context.Context, r io.Reader, name string, migrations []store.Migration,
) (content []byte, err error) {
	defer func() { err = store.Wrap(err, "backup: read %s", name) }()
	u := &unpacker{opts: RestoreOptions{Migrations: migrations}}
	_, in, err := u.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, e := range u.manifest.Entries {
		h, err := in.Next()
		if err != nil {
			return nil, ended(ctx, err, "it ends before %s", e.Name)
		}
		if h.Name != name || e.Name != name {
			continue
		}
		content, err = io.ReadAll(io.LimitReader(in, maxSingle))
		if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != e.SHA256 {
			return nil, ended(ctx, err, "%s is damaged", name)
		}
		return content, nil
	}
	return nil, nil
}

// adopt calls Adopt for each unpacked database.
func (u *unpacker) adopt(ctx context.Context) error {
	if u.opts.Adopt == nil {
		return nil
	}
	for _, p := range u.parts {
		if p.Kind != Database {
			continue
		}
		if err := u.opts.Adopt(ctx, p.Name, filepath.Join(p.stage, p.Name)); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// swap moves the existing data aside and each unpacked part to its path. If that fails half way, it
// moves everything back.
func (u *unpacker) swap() (*Restored, error) {
	done := &Restored{Manifest: u.manifest}
	var more, all []string
	if u.opts.Replaced != nil {
		more = u.opts.Replaced(&u.manifest)
	}
	all = more
	for _, p := range u.parts {
		all = slices.Concat(all, p.files())
	}
	for _, path := range all {
		if _, err := os.Lstat(path); err == nil && !u.opts.Force {
			return nil, fmt.Errorf("%s: %w", path, ErrExists)
		}
	}
	// A missing database is noticed before anything is moved.
	if len(u.parts) == 0 || u.parts[0].Kind != Database {
		return nil, foreign("it has no database")
	}
	// The mark and each rename are synced in this order, so that a power loss in between leaves the
	// mark.
	mark := filepath.Join(u.opts.Home, Unfinished)
	_, err := os.Lstat(mark)
	again := err == nil // an earlier restore was interrupted
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, err
	}
	if err := syncDir(u.opts.Home); err != nil {
		return nil, err
	}
	if err := u.replace(more, done); err != nil {
		if undone := u.undo(done); undone != nil || again {
			return nil, errors.Join(err, undone)
		}
		return nil, errors.Join(fmt.Errorf("%w; everything is as it was before", err),
			os.Remove(mark))
	}
	if err := os.Remove(mark); err != nil {
		return nil, err
	}
	return done, syncDir(u.opts.Home)
}

// replace moves the data at the paths in more and the existing parts aside, and each unpacked part
// to its path.
func (u *unpacker) replace(more []string, done *Restored) error {
	if err := u.moveAside(more, done); err != nil {
		return err
	}
	for _, p := range u.parts {
		if err := u.moveAside(p.files(), done); err != nil {
			return err
		}
		if err := u.move(filepath.Join(p.stage, p.Name), p.Path); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(p.Path)); err != nil {
			return err
		}
	}
	return nil
}

// A move is a rename that can be undone.
type move struct{ from, to string }

func (u *unpacker) move(from, to string) error {
	err := os.Rename(from, to)
	if err == nil {
		u.moves = append(u.moves, move{from, to})
	}
	return err
}

// undo moves everything back that replace has moved, in the reverse order. An error leaves the rest
// where it is.
func (u *unpacker) undo(done *Restored) error {
	for _, m := range slices.Backward(u.moves) {
		if err := os.Rename(m.to, m.from); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(m.from)); err != nil {
			return err
		}
	}
	for _, dir := range done.Aside {
		_ = os.Remove(dir) // an empty folder more does no harm
	}
	return nil
}

// A part is an unpacked Part.
type part struct {
	Part
	stage  string // folder with the unpacked part, on the file system of its path
	unlock func() error
	root   *os.Root
}

// files returns the paths that belong to the part. Those of a database include the files that
// SQLite keeps beside it, because SQLite would apply a log of another database to this one. They
// also include the log of sent messages, because the next start empties it.
func (p *part) files() []string {
	if p.Kind == Database {
		return []string{
			p.Path, p.Path + "-wal", p.Path + "-shm", p.Path + "-journal", p.Path + "-sent",
		}
	}
	return []string{p.Path}
}

// moveAside moves the existing ones of some files into a folder beside them and adds it to
// done.Aside.
func (u *unpacker) moveAside(files []string, done *Restored) error {
	for _, path := range files {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		dir, err := u.asideFolder(filepath.Dir(path), done)
		if err != nil {
			return err
		}
		if err := u.move(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

// asideFolder returns the folder in dir for the old data. The first call creates it.
func (u *unpacker) asideFolder(dir string, done *Restored) (string, error) {
	for _, known := range done.Aside {
		if filepath.Dir(known) == dir {
			return known, nil
		}
	}
	base := filepath.Join(dir, "before-restore-"+u.opts.Now.UTC().Format("20060102-150405"))
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

// close removes the stages, with all files that were not moved to their paths.
func (u *unpacker) close() error {
	var errs []error
	for _, p := range u.roots {
		errs = append(errs, p.root.Close(), p.unlock(), os.RemoveAll(p.stage))
	}
	return errors.Join(errs...)
}

// open returns the part to which a name in the archive belongs. The first call for a part creates
// its stage.
func (u *unpacker) open(name string) (*part, error) {
	top, _, _ := strings.Cut(name, "/")
	if p, ok := u.roots[top]; ok {
		return p, nil
	}
	place, ok := u.opts.Place(top)
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

// prepare creates the stage of p in dir. It first removes stages that a killed process has left.
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

// An unpacker unpacks an archive into stages beside the paths of its parts.
type unpacker struct {
	opts     RestoreOptions
	manifest Manifest
	roots    map[string]*part // by part name
	parts    []*part          // in the order of the archive
	moves    []move           // of data and parts, in their order
}

// begin reads the manifest of the archive.
func (u *unpacker) begin(ctx context.Context, r io.Reader) (*gzip.Reader, *tar.Reader, error) {
	zip, err := gzip.NewReader(contextReader{ctx, r})
	if err != nil {
		return nil, nil, ended(ctx, err, "it is not compressed")
	}
	in := tar.NewReader(zip)
	return zip, in, u.readManifest(ctx, in)
}

// unpack reads the whole archive. It reads no more data than the manifest lists.
func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	zip, in, err := u.begin(ctx, r)
	if err != nil {
		return err
	}
	for _, e := range u.manifest.Entries {
		h, err := in.Next()
		if err != nil {
			return ended(ctx, err, "it ends before %s", e.Name)
		}
		if err := u.unpackEntry(ctx, in, h, e); err != nil {
			return err
		}
	}
	if h, err := in.Next(); err == nil {
		return foreign("%q is not in its manifest", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return ended(ctx, err, "it is damaged at its end")
	}
	// Reading up to the end checks the gzip checksum.
	n, err := io.Copy(io.Discard, io.LimitReader(zip, maxPadding))
	if err != nil || n == maxPadding {
		return ended(ctx, err, "it is damaged at its end")
	}
	return nil
}

// maxPadding limits the padding after the tar's end, which fills up its last block.
const maxPadding = 1 << 20

// ended returns the error of ctx, or an [ErrForeign] with the reason if ctx has not ended.
func ended(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		format, args = format+": %v", append(args, err)
	}
	return foreign(format, args...)
}

// readManifest reads the first file of the archive. It refuses archives of a newer format, and
// databases with tables of a newer gateway.
func (u *unpacker) readManifest(ctx context.Context, in *tar.Reader) error {
	h, err := in.Next()
	if err != nil {
		return ended(ctx, err, "it has no manifest")
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return foreign("it has no manifest")
	}
	m := &u.manifest
	if err := json.NewDecoder(in).Decode(m); err != nil {
		return ended(ctx, err, "its manifest is damaged")
	}
	switch {
	case m.Program != program || m.Format < 1:
		return foreign("its manifest is from another program")
	case m.Format > Format:
		return fmt.Errorf("%w (%s): upgrade this one", ErrNewer, m.Version)
	case len(m.Entries) > maxEntries:
		return foreign("it lists more than %d files", maxEntries)
	}
	return store.CheckVersions(m.Schema, u.opts.Migrations)
}

// unpackEntry unpacks a file or folder. It must match e, the next entry of the manifest.
func (u *unpacker) unpackEntry(ctx context.Context, in io.Reader, h *tar.Header, e Entry) error {
	name, isDir := strings.CutSuffix(e.Name, "/")
	kind := byte(tar.TypeReg)
	if isDir {
		kind = tar.TypeDir
	}
	switch {
	case h.Name != e.Name || h.Typeflag != kind || h.Size != e.Size || e.Size < 0:
		return foreign("%q differs from its entry in the manifest", h.Name)
	case !fs.ValidPath(name) || name == "." || strings.Contains(name, "\x00"),
		// On Windows a backslash would separate path elements.
		filepath.Separator == '\\' && strings.Contains(name, `\`):
		return foreign("%q can't be the name of a file here", h.Name)
	}
	p, err := u.open(name)
	if err != nil {
		return err
	}
	if isDir {
		return p.root.MkdirAll(name, 0o700)
	}
	if err := p.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := p.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return foreign("%q occurs twice", h.Name)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), in)
	if err != nil {
		err = damaged(ctx, err, e.Name)
	} else if got := hex.EncodeToString(sum.Sum(nil)); got != e.SHA256 {
		err = foreign("%s is damaged", e.Name)
	}
	mode := fs.FileMode(e.Mode) & 0o755 // not writable for others, and no setuid
	return errors.Join(err, f.Chmod(mode|0o600), f.Sync(), f.Close(),
		p.root.Chtimes(name, h.ModTime, h.ModTime))
}

// damaged returns [ErrForeign] if the archive can't be read, but a write error unchanged.
func damaged(ctx context.Context, err error, name string) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return ended(ctx, err, "%s is damaged", name)
}

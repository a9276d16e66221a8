package export

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/bus"
)

// A Folder is a [Target] that writes files into a folder. Only the user who runs the process can
// read them. It is not safe for concurrent use.
type Folder struct {
	root *os.Root
	file *os.File
}

// ErrExists reports that the folder for an export has files already.
var ErrExists = errors.New("the folder is not empty")

// NewFolder returns a Folder in dir, and creates dir if it is missing. If dir is not empty, it
// returns an error that wraps [ErrExists].
func NewFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		return nil, errors.Join(err, ErrExists)
	}
	root, err := os.OpenRoot(dir)
	return &Folder{root: root}, err
}

// Create implements [Target].
func (f *Folder) Create(name string) (w io.Writer, err error) {
	if err := f.end(); err != nil {
		return nil, err
	}
	if err := f.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f.file, err = f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return f.file, err
}

// Room implements [Target].
func (*Folder) Room() int64 { return math.MaxInt64 }

// end closes the file that Create has begun last, if any.
func (f *Folder) end() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Close closes the last file and the folder.
func (f *Folder) Close() error { return errors.Join(f.end(), f.root.Close()) }

// A Zip is a [Target] that writes a zip archive. It is not safe for concurrent use.
type Zip struct {
	// archive writes to out, which counts the bytes.
	archive *zip.Writer
	out     *bounded
	now     time.Time
}

// ErrTooLarge reports that an export without any files does not fit into its archive.
var ErrTooLarge = errors.New("the export is too large")

// NewZip returns a Zip that writes approximately most bytes to w at most; 0 means no limit. Beyond
// the limit, writes fail with [ErrTooLarge]. now is the time of the files in the archive.
func NewZip(w io.Writer, most int64, now time.Time) *Zip {
	out := &bounded{w, cmp.Or(most, math.MaxInt64)}
	return &Zip{zip.NewWriter(out), out, now}
}

const perFile = 512 // bytes of a zip archive, beside the content

// Create implements [Target].
func (z *Zip) Create(name string) (io.Writer, error) {
	z.out.left -= perFile
	name = strings.ReplaceAll(name, `\`, "_") // on Windows it separates folders
	return z.archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: z.now})
}

// Room implements [Target].
func (z *Zip) Room() int64 {
	// README.md is written last and needs room in any case.
	const readme = 64 << 10
	// left counts only what has reached the writer below.
	if z.archive.Flush() != nil {
		return 0
	}
	return z.out.left - readme
}

// Close writes the directory of the archive. It does not close the writer below it.
func (z *Zip) Close() error {
	z.out.left = max(z.out.left, 1<<20) // for the directory, which perFile has counted
	return z.archive.Close()
}

// A bounded writer returns ErrTooLarge instead of writing more than left bytes.
type bounded struct {
	to   io.Writer
	left int64
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, ErrTooLarge
	}
	return b.to.Write(p)
}

// FileName returns a readable and unique file name for s. The hash tells names apart that differ
// only in replaced characters or behind the cut.
func FileName(s string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, s)
	sum := sha256.Sum256([]byte(s))
	return name[:min(len(name), 60)] + "-" + hex.EncodeToString(sum[:4])
}

// A found is a file that may be copied.
type found struct {
	name string
	info fs.FileInfo
}

// copyFolder copies the files of a folder, newest first, as long as there is room. It does not
// follow links. If texts is set, the files are texts, and secrets in them are replaced. Otherwise
// files that contain a secret are left out.
func (r *run) copyFolder(
	ctx context.Context, root *os.Root, folder, to string, texts bool,
) error {
	var list []found
	err := fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		// A file of Media may be incomplete, or an export itself.
		temporary := root == r.Media && (strings.HasSuffix(name, ".part") ||
			strings.HasPrefix(path.Base(name), bus.ExportPrefix))
		if err != nil || !d.Type().IsRegular() || temporary {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		list = append(list, found{name, info})
		return err
	})
	slices.SortStableFunc(list, func(a, b found) int {
		return b.info.ModTime().Compare(a.info.ModTime())
	})
	for _, f := range list {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = r.copyFile(root, f, to+strings.TrimPrefix(f.name, folder), texts)
		}
	}
	return err
}

// copyFile copies one file, or leaves it out and says so in the README. It returns an error only if
// the export can't go on.
func (r *run) copyFile(root *os.Root, from found, to string, text bool) error {
	to = filepath.ToSlash(to)
	// How much a file shrinks in the archive is not known before.
	if r.to.Room() < from.info.Size()+perFile {
		r.leaveOut(to, "there is no room for it")
		return nil
	}
	f, err := root.Open(from.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed in the meantime
	}
	if err != nil {
		r.leaveOut(to, "it can't be read")
		return nil
	}
	defer f.Close()
	if !text {
		secret, err := r.HasSecret(f)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil || secret {
			r.leaveOut(to, "it contains a secret of the gateway, or can't be read")
			return nil
		}
	}
	w, err := r.to.Create(to)
	if err != nil {
		return err
	}
	if !text {
		_, err = io.Copy(w, f)
		return err
	}
	lines := &lineCleaner{to: w, clean: r.clean}
	_, err = io.Copy(lines, f)
	return errors.Join(err, lines.flush())
}

// maxLeftOut is the number of lines in the README from which on it names no further file. It must
// not become too large itself.
const maxLeftOut = 500

// leaveOut adds a line to the README.
func (r *run) leaveOut(name, why string) {
	if len(r.leftOut) >= maxLeftOut {
		r.unnamed++
		return
	}
	r.leftOut = append(r.leftOut, fmt.Sprintf("%s: %s", name, why))
}

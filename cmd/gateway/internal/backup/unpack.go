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
	"strings"

	"gateway/store"
)

// An unpacker unpacks an archive into stages beside the paths of its parts.
type unpacker struct {
	opts     RestoreOptions
	manifest Manifest
	roots    map[string]*part // by part name
	parts    []*part          // in the order of the archive
}

// unpack reads the whole archive. It reads no more data than the manifest lists.
func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	zip, err := gzip.NewReader(contextReader{ctx, r})
	if err != nil {
		return ended(ctx, err, "it is not compressed")
	}
	in := tar.NewReader(zip)
	if err := u.readManifest(ctx, in); err != nil {
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
	var path *fs.PathError
	if errors.As(err, &path) {
		return err
	}
	return ended(ctx, err, "%s is damaged", name)
}

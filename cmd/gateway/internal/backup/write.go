package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

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

package version

import (
	"compress/zlib"
	"context"
	"crypto/sha1" // the name of an object in Git
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// prepare makes the repository ready to be written: a new one if there is none, and one that a
// kill has left half-written as it was before.
func (g *gitStore) prepare(ctx context.Context) error {
	if _, err := os.Stat(g.dir); errors.Is(err, fs.ErrNotExist) {
		return g.create(ctx)
	}
	// Whoever has made these locks is gone, for the history's own lock is ours.
	for _, pattern := range []string{"*.lock", "refs/heads/*.lock", "objects/info/*.lock"} {
		locks, err := filepath.Glob(filepath.Join(g.dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range locks {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(g.dirty()); err == nil {
		if err := g.removeBroken(); err != nil {
			return err
		}
	}
	if err := g.check(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return g.putAside(ctx, err)
	}
	return os.RemoveAll(g.dirty())
}

// create makes the repository, which has its name only when it is whole.
func (g *gitStore) create(ctx context.Context) error {
	fresh := *g
	fresh.dir = g.dir + ".new"
	if err := os.RemoveAll(fresh.dir); err != nil {
		return err
	}
	_, err := fresh.run(ctx, "", "init", "--quiet", "--bare", "--template=", fresh.dir)
	if err == nil {
		_, err = fresh.run(ctx, "", "symbolic-ref", "HEAD", branch)
	}
	if err == nil {
		err = os.Chmod(fresh.dir, 0o700)
	}
	if err == nil {
		err = os.Rename(fresh.dir, g.dir)
	}
	return err
}

// check reports whether the newest version can be read; after a kill, whether all can.
func (g *gitStore) check(ctx context.Context) error {
	head, err := g.head(ctx)
	if err != nil || head == "" {
		return err
	}
	if _, err := os.Stat(g.dirty()); err == nil {
		_, err := g.run(ctx, "", "fsck", "--connectivity-only", "--no-dangling", "--no-progress", head)
		return err
	}
	_, err = g.run(ctx, "", "cat-file", "-e", head+"^{tree}")
	return err
}

// putAside renames a damaged repository and makes a new one.
func (g *gitStore) putAside(ctx context.Context, cause error) error {
	to := fmt.Sprintf("%s.damaged-%d", g.dir, g.now().UnixMilli())
	if err := os.Rename(g.dir, to); err != nil {
		return errors.Join(cause, err)
	}
	g.logger.ErrorContext(ctx, "a history is damaged; it was put aside and a new one begun",
		"file", filepath.Base(to), "err", cause)
	return g.create(ctx)
}

// removeBroken removes objects that were not written to their end: git takes them for written,
// and would not write them again.
func (g *gitStore) removeBroken() error {
	list, err := filepath.Glob(filepath.Join(g.dir, "objects", "[0-9a-f][0-9a-f]", "*"))
	if err != nil {
		return err
	}
	for _, path := range list {
		name := filepath.Base(filepath.Dir(path)) + filepath.Base(path)
		if strings.Contains(name, "tmp_obj_") || objectName(path) != name {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// objectName returns what an object must be called for its content, or "".
func objectName(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	r, err := zlib.NewReader(f)
	if err != nil {
		return ""
	}
	h := sha1.New()
	if _, err := io.Copy(h, io.LimitReader(r, 64<<20)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"gateway/bus"
)

// Run removes old files at the start, at intervals, and when the total is too large, until ctx is
// done.
func (m *Store) Run(ctx context.Context) error {
	for {
		if err := m.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			m.opts.Logger.WarnContext(ctx, "old files could not be removed", "err", err)
		}
		timer := time.NewTimer(m.opts.Every)
		select {
		case <-timer.C:
		case <-m.tooLarge:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// Sweep removes the files older than the retention time, unless the clock may be wrong, and then
// the oldest files until the total is within MaxTotal.
func (m *Store) Sweep(ctx context.Context, now time.Time) error {
	trusted := m.opts.TrustsClock(ctx)
	counted := m.total.Load()
	files, err := m.files(ctx)
	if err != nil {
		return err
	}
	// The oldest files go first, until the total is small enough.
	slices.SortFunc(files, func(a, b storedFile) int { return a.time.Compare(b.time) })
	var total int64
	for _, f := range files {
		total += f.size
	}
	var errs []error
	removed := 0
	for _, f := range files {
		age := m.opts.Retention
		switch {
		case strings.HasSuffix(f.name, partSuffix):
			age = min(age, staleTime)
		case strings.HasPrefix(path.Base(f.name), offloadPrefix):
			age = m.opts.Offloads
		case strings.HasPrefix(path.Base(f.name), bus.ExportPrefix):
			age = min(age, exportAge)
		}
		if total <= m.opts.MaxTotal && (!trusted || now.Sub(f.time) <= age) {
			continue
		}
		if err := m.root.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		total -= f.size
		removed++
	}
	// Files that were stored during the sweep are counted by grow. So only the difference is added.
	m.total.Add(total - counted)
	if removed > 0 {
		m.opts.Logger.InfoContext(ctx, "old files removed", "files", removed, "kept_bytes", total)
	}
	return cmp.Or(errors.Join(errs...), ctx.Err())
}

// A storedFile is a file in the folder.
type storedFile struct {
	name string
	time time.Time
	size int64
}

// files lists the regular files in the folder. It leaves out those that are removed meanwhile.
func (m *Store) files(ctx context.Context) ([]storedFile, error) {
	var list []storedFile
	err := fs.WalkDir(m.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		if err != nil {
			return err
		}
		list = append(list, storedFile{name, info.ModTime(), info.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("media: list files: %w", err)
	}
	return list, nil
}

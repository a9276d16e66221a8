// Package watch reports when the content of a file has changed.
//
// A [File] watches the folders that lead to the file, so that every way of changing it is noticed:
// written in place, replaced by another file of its name, removed for a while, behind a link that
// now leads elsewhere (as Kubernetes does with a ConfigMap), or in a folder that was replaced.
// Where the system can't report changes, the file is read from time to time.
//
// Only the content counts: a file with a newer time and the same bytes has not changed. An empty
// file counts as missing, since many programs empty a file for a moment before they write it. The
// file has to fit into memory. The package owns no files.
package watch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Options are the optional settings of a [File].
type Options struct {
	// Settle is how long a file has to rest before it is read; default 200 ms. One that
	// never rests is read every ten times that.
	Settle time.Duration

	// Poll is the time between two looks where the system doesn't tell of changes; default 5 s.
	Poll time.Duration

	Logger *slog.Logger // default none
}

// A File is a file that is watched.
type File struct {
	path         string
	settle, poll time.Duration
	log          *slog.Logger
	open         func() (*events, error)
}

// An events tells what has changed in folders, as the system says.
type events struct {
	changed  <-chan string // paths
	troubles <-chan error  // some changes may be missing
	add      func(folder string) error
	close    func() error
}

// New returns the file at an absolute path, which need not be there.
func New(path string, opts *Options) *File {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	return &File{
		path:   filepath.Clean(path),
		settle: cmp.Or(o.Settle, 200*time.Millisecond),
		poll:   cmp.Or(o.Poll, 5*time.Second),
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		open:   newEvents,
	}
}

// Run calls changed whenever the file has another content, until ctx ends, and returns nil then.
// It calls it once soon after the beginning if the file is there, since it may have changed after
// the caller has read it. While the file is away nothing is called.
func (f *File) Run(ctx context.Context, changed func(context.Context)) error {
	seen, warned := content{}, false
	for first := true; ctx.Err() == nil; first = false {
		steps := f.steps()
		w, err := f.watch(steps)
		if err != nil && !warned {
			warned = true
			f.log.WarnContext(ctx, "the system can't tell of changes of the configuration file: "+
				"it is read from time to time", "every", f.poll, "err", err)
		}
		// Changes from now on are reported; earlier ones are found by reading the file here.
		if now := f.read(); !first && now.there && now != seen {
			seen = now
			changed(ctx)
		}
		again := first || !maps.Equal(steps, f.steps())
		f.wait(ctx, w, steps, again, err != nil || !reliable)
		if w != nil {
			_ = w.close() // nothing more is wanted of it
		}
	}
	return nil
}

// reliable is whether all changes can be watched. Elsewhere than on Linux the folder above that of
// the file is left alone, since watching one may open every file in it.
const reliable = runtime.GOOS == "linux"

// A content is what is in a file, or why it can't be read.
type content struct {
	there bool
	sum   [sha256.Size]byte
}

func (f *File) read() content {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return content{}
	}
	if err != nil {
		b = []byte(err.Error())
	}
	return content{true, sha256.Sum256(b)}
}

// maxLinks is how many links lead to a file at most, as on Linux.
const maxLinks = 40

// steps returns the paths at which a change can mean another content: the file, the links on the
// way to it, and the folder that it is in, with those above as far as they are missing.
func (f *File) steps() map[string]bool {
	steps := make(map[string]bool)
	path := f.path
	for range maxLinks {
		link, next := firstLink(path)
		if link == "" {
			break
		}
		steps[link] = true
		path = next
	}
	steps[path] = true
	if !reliable {
		return steps
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		steps[dir] = true
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return steps
		}
	}
}

// firstLink returns the first part of path that is a link, and path with what that leads to in its
// place; "" if there is none.
func firstLink(path string) (link, next string) {
	dir := filepath.Dir(path)
	if dir != path {
		if link, next = firstLink(dir); link != "" {
			return link, filepath.Join(next, filepath.Base(path))
		}
	}
	target, err := os.Readlink(path)
	if err != nil {
		return "", ""
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	return path, filepath.Clean(target)
}

// watch watches the folders of steps. With an error it watches as many of them as it can.
func (f *File) watch(steps map[string]bool) (*events, error) {
	w, err := f.open()
	if err != nil {
		return nil, err
	}
	var errs []error
	for step := range steps {
		// A folder that isn't there yet shows in the one above, which is among the steps.
		if err := w.add(filepath.Dir(step)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return w, errors.Join(errs...)
}

// wait returns when one of steps has changed, or has if changed is set, and rests, or when it is
// time to look, or ctx ends.
func (f *File) wait(
	ctx context.Context, w *events, steps map[string]bool, changed, poll bool,
) {
	var (
		paths        <-chan string
		troubles     <-chan error
		look         <-chan time.Time
		rests, tired <-chan time.Time // nil until something has changed
	)
	if w != nil {
		paths, troubles = w.changed, w.troubles
	}
	if poll {
		look = time.After(f.poll)
	}
	happened := func() {
		rests = time.After(f.settle)
		if tired == nil {
			tired = time.After(10 * f.settle)
		}
	}
	if changed {
		happened()
	}
	for {
		select {
		case path := <-paths:
			if steps[path] {
				happened()
			}
		case <-troubles: // some events may be lost
			happened()
		case <-rests:
			return
		case <-tired:
			return
		case <-look:
			return
		case <-ctx.Done():
			return
		}
	}
}

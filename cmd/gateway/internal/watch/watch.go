// Package watch reports when the content of a file has changed.
//
// A [File] is read once a second, so that every way of changing it is noticed: written in place,
// replaced by another file of its name, removed for a while, behind a link that now leads elsewhere
// (as Kubernetes does with a ConfigMap), or in a folder that was replaced. To be told by the system
// would need a watch on each folder and link on the way, and another kind of it on each system; to
// read a small file costs 20 µs.
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
	"os"
	"time"
)

// A File is a file that is watched.
type File struct {
	// Path is where the file is, or will be.
	Path string

	// Every is the time between two looks; by default a second. A change counts when two looks in
	// a row have found the same, as the file may be half written at the first.
	Every time.Duration
}

// Run calls changed whenever the file has another content, until ctx ends. It calls it once soon
// after the beginning if the file is there, since it may have changed after the caller has read it.
// While the file is away nothing is called.
func (f File) Run(ctx context.Context, changed func(context.Context)) {
	ticker := time.NewTicker(cmp.Or(f.Every, time.Second))
	defer ticker.Stop()
	var last, told content
	for {
		now := f.read()
		if now.there && now == last && now != told {
			told = now
			changed(ctx)
		}
		last = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// A content is what is in a file, or why it can't be read.
type content struct {
	there bool
	sum   [sha256.Size]byte
}

func (f File) read() content {
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return content{}
	}
	if err != nil {
		b = []byte(err.Error())
	}
	return content{true, sha256.Sum256(b)}
}

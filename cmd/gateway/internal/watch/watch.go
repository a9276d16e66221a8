// Package watch reports when the content of a file has changed.
//
// A [File] is read once a second. So it notices every way of changing a file: writing in place,
// replacing it, removing it for a while, changing a link on its path (as Kubernetes does with a
// ConfigMap), or replacing its folder. Notifications of the operating system would need a watch
// on each folder and link of the path, and different code on each system. Reading a small file
// takes 20 µs.
//
// Only the content counts: a file with a newer time and the same bytes has not changed. An empty
// file counts as missing, since many programs truncate a file before they write it. The file must
// fit into memory. The package owns no files.
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

// A File watches one file.
type File struct {
	// Path is the path of the file. It need not exist yet.
	Path string

	// Every is the time between two reads; default: 1 second. A change counts when two reads in a
	// row return the same content, since the file may be half written at the first.
	Every time.Duration
}

// Run calls changed whenever the content of the file has changed, until ctx ends. It also calls
// changed soon after the start if the file exists, since the file may have changed after the
// caller read it. It does not call changed while the file is missing.
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

// A content is the checksum of a file's content, or of the error if it can't be read.
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

package agent

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// documentNames are the files of the workspace that are part of the prompt, in its order.
var documentNames = []string{"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md"}

// maxDocument is how much of a document is put into the prompt, in bytes.
const maxDocument = 32 << 10

// A listing remembers which documents there are, so that a turn need not look for each. It
// holds while its folder is unchanged. The zero value is ready for use.
type listing struct {
	mu      sync.Mutex
	changed time.Time // the folder's time when it was looked at
	settled bool      // that was long enough ago for a later change to show in the time
	names   []string
}

// settleTime is more than the unit in which file systems count time.
const settleTime = 3 * time.Second

// documents returns the names of the documents that there are, in the order of the prompt.
func (d *Dispatcher) documents() []string {
	root := d.opts.Workspace
	if root == nil {
		return nil
	}
	folder, err := root.Stat(".")
	if err != nil {
		d.opts.Logger.Warn("documents left out of the prompt", "err", err)
		return nil
	}
	l := &d.listing
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled && folder.ModTime().Equal(l.changed) {
		return l.names
	}
	l.changed, l.settled = folder.ModTime(), time.Since(folder.ModTime()) > settleTime
	l.names = nil
	for _, name := range documentNames {
		if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			l.names = append(l.names, name)
		}
	}
	return l.names
}

// document returns a file of the workspace, "" if it is not there or can't be read as text.
func (d *Dispatcher) document(file string) string {
	f, err := d.opts.Workspace.Open(file)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.opts.Logger.Warn("document left out of the prompt", "file", file, "err", err)
		}
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		d.opts.Logger.Warn("document left out of the prompt", "file", file, "err", err)
		return ""
	}
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	if len(s) > maxDocument {
		s = clip(s, maxDocument) + "\n[… the rest of " + file + " is left out: it is too long]"
	}
	return strings.TrimSpace(s)
}

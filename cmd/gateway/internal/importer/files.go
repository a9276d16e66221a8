package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gateway/memory/document"
)

// elsewhere is what of a workspace is moved in its own way, or is of use there only.
var elsewhere = []string{"memory", "sessions", "skills", "cron", "state", ".git", "config.json",
	"heartbeat.log", ".dream"}

// A count says what became of the files below one entry of the workspace.
type count struct {
	files, bytes     int64
	same, kept, left int64
}

// files imports the other files of the workspace.
func (m *mover) files(ctx context.Context) {
	entries, err := m.list(m.workspace)
	if err != nil {
		m.failed("file", m.workspace, err)
		return
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		name := e.Name()
		isDocument := func(p place) bool { return p.from == name }
		if slices.Contains(elsewhere, name) || slices.ContainsFunc(places, isDocument) {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 { // which WalkDir would follow
			m.sayFiles(name, count{left: 1}, nil)
			continue
		}
		n, err := m.below(ctx, m.in(name))
		m.sayFiles(name, n, err)
	}
}

// below moves a file, or all files of a folder.
func (m *mover) below(ctx context.Context, name string) (n count, err error) {
	err = fs.WalkDir(m.root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			n.left++
			return nil
		}
		return m.file(ctx, p, strings.TrimPrefix(p, m.workspace+"/"), &n)
	})
	return n, err
}

func (m *mover) sayFiles(name string, n count, err error) {
	var texts []string
	for _, part := range []struct {
		n    int64
		text string
	}{
		{n.files, fmt.Sprintf("%d files, %d bytes", n.files, n.bytes)},
		{n.same, fmt.Sprintf("%d are the same here", n.same)},
		{n.kept, fmt.Sprintf("%d are others here, and stay", n.kept)},
		{n.left, fmt.Sprintf("%d links and special files are left out", n.left)},
	} {
		if part.n > 0 {
			texts = append(texts, part.text)
		}
	}
	state := Left
	switch {
	case err != nil:
		state = Failed
		texts = append(texts, plain(err))
	case n.files > 0:
		state = New
	case n.kept > 0:
		state = Kept
	case n.same > 0:
		state = Same
	case n.left == 0:
		return // an empty folder
	}
	m.say("file", m.in(name), "workspace/"+name, state, strings.Join(texts, "; "))
}

// file copies one file, if nothing of its name is here.
func (m *mover) file(ctx context.Context, from, to string, n *count) error {
	in, err := m.open(from)
	if err != nil {
		return fmt.Errorf("%s: %s", from, plain(err))
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	kept := document.Versioned(to)
	to = filepath.FromSlash(to)
	switch _, err := m.Workspace.Lstat(to); {
	case err == nil && m.equal(in, to):
		n.same++
		return nil
	case err == nil:
		n.kept++
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %s", to, plain(err))
	}
	n.files, n.bytes = n.files+1, n.bytes+info.Size()
	if m.dry {
		return nil
	}
	if kept {
		if err := m.begin(ctx, ""); err != nil {
			return err
		}
	}
	return m.copy(in, to, info.Mode().Perm()&0o700|0o600)
}

// equal reports whether a file here has the content of in, which it leaves at its beginning.
func (m *mover) equal(in io.ReadSeeker, here string) bool {
	info, err := m.Workspace.Lstat(here)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := m.Workspace.Open(here)
	if err != nil {
		return false
	}
	defer f.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(in, a)
		k, errB := io.ReadFull(f, b)
		if n != k || !bytes.Equal(a[:n], b[:k]) {
			return false
		}
		if errA != nil || errB != nil {
			return errors.Is(errA, io.EOF) == errors.Is(errB, io.EOF)
		}
	}
}

// copy writes a file beside its place, and then moves it there.
func (m *mover) copy(in io.Reader, to string, mode fs.FileMode) error {
	if err := m.Workspace.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("%s: %s", to, plain(err))
	}
	temp := filepath.Join(filepath.Dir(to), ".importing-"+path.Base(filepath.ToSlash(to)))
	out, err := m.Workspace.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("%s: %s", to, plain(err))
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = m.Workspace.Rename(temp, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %s", to, plain(err)), m.Workspace.Remove(temp))
	}
	return nil
}

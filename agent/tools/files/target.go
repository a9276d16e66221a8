package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"gateway/agent/tool"
)

// maxEdit is the size up to which a file can be edited, in bytes. An edit keeps the old and the new
// text in memory.
const maxEdit = 16 << 20

// target is a file that a call is about to change.
type target struct {
	place             // without symbolic links
	info  fs.FileInfo // of the file that is there, or nil
}

// An editor implements the tools that change files. It runs one call at a time, so that no call
// replaces what another has just written. writing is a channel and not a mutex, because a call must
// not wait longer than its context.
type editor struct {
	trees   *trees
	seen    *seen
	writing chan struct{} // holds a token while a call changes files
}

// lock waits for exclusive permission to change files. The caller must call unlock.
func (e *editor) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case e.writing <- struct{}{}:
		return func() { <-e.writing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// target returns the file that a model means by name, if the call may change it.
func (e *editor) target(c tool.Call, name string) (target, error) {
	at, err := e.trees.find(c, name)
	switch {
	case err != nil:
		return target{}, err
	case at.tree == e.trees.media:
		return target{}, fmt.Errorf("%q was sent by people and can't be changed; "+
			"write the result to the workspace, outside of media", name)
	case !at.tree.write:
		return target{}, fmt.Errorf("%q can't be changed: %s may only be read", name, at.tree.title())
	case strings.HasSuffix(name, "/") || name == "":
		return target{}, fmt.Errorf("%q names a directory; want the path of a file", name)
	}
	// All further checks are about the file that would be written.
	if at, err = at.resolved(); err != nil {
		return target{}, e.trees.explain(at, err)
	}
	if at.tree == e.trees.memory {
		err = at.checkOwn()
	} else if at.tree == e.trees.shared {
		err = e.trees.checkShared(c, at)
	}
	if err != nil {
		return target{}, err
	}
	info, err := at.tree.dir.Lstat(at.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if strings.ContainsFunc(at.path, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return target{}, fmt.Errorf("a file can't have the name %q: "+
				"it has invisible characters", name)
		}
		return target{at, nil}, nil
	case err != nil:
		return target{}, e.trees.explain(at, err)
	case !info.Mode().IsRegular():
		return target{}, fmt.Errorf("%q is a %s and can't be written; only regular files can",
			name, kind(info.Mode()))
	case info.Mode()&0o222 == 0:
		// The rename at the end would not be stopped by the mode of the file.
		return target{}, fmt.Errorf("%q is write-protected (mode %#o); ask before changing that",
			name, info.Mode().Perm())
	}
	return target{at, info}, nil
}

// wantUnchanged refuses a file that was changed since the session read it.
func (e *editor) wantUnchanged(c tool.Call, t target) error {
	if t.info != nil && e.seen.changed(c.Session, t.place, t.info) {
		return changedSince(t.place)
	}
	return nil
}

// changedSince returns the error for a file that is not in the state that the session knows.
func changedSince(at place) error {
	return fmt.Errorf("%q has changed since you read it, and was left as it is; "+
		"read it again and then decide", at.given)
}

// wholeText returns the content of a text file that is about to be changed, and the target
// with its state at that moment.
func (e *editor) wholeText(t target) (string, target, error) {
	f, info, err := e.trees.open(t.place)
	if err != nil {
		return "", t, err
	}
	defer f.Close()
	if info.Size() > maxEdit {
		return "", t, fmt.Errorf("%q has %d bytes, and only files up to %d can be changed in parts; "+
			"use a command", t.given, info.Size(), maxEdit)
	}
	// If the file grows meanwhile, commit finds that it differs from info.
	data, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	if err != nil {
		return "", t, e.trees.explain(t.place, err)
	}
	if !isText(data[:min(len(data), sniffLen)]) || !utf8.Valid(data) {
		return "", t, fmt.Errorf("%q is not UTF-8 text and can't be changed in parts", t.given)
	}
	t.info = info
	return string(data), t, nil
}

// A contentError is an error whose text may quote the file at a place.
type contentError struct {
	error
	at place
}

// Unwrap returns the error itself.
func (e contentError) Unwrap() error { return e.error }

// refused returns the result of a call that fails with err. A quoted file is foreign text, as it is
// when it is read.
func (ts *trees) refused(err error) (tool.Result, error) {
	var r tool.Result
	if quotes, ok := errors.AsType[contentError](err); ok && !ts.isTrusted(quotes.at) {
		r.Foreign = foreign("file", quotes.at)
	}
	return r, err
}

// rewrite replaces the text of an existing file by the result of apply, which also returns a
// message about the change. hint continues the error for a file that does not exist. apply must not
// change anything; if it fails, the file stays as it is.
func (e *editor) rewrite(
	ctx context.Context, c tool.Call, name, hint string,
	apply func(old string) (text, report string, err error),
) (tool.Result, error) {
	unlock, err := e.lock(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	defer unlock()
	t, err := e.target(c, name)
	if err != nil {
		return tool.Result{}, err
	}
	if t.info == nil {
		return tool.Result{}, fmt.Errorf("%w%s", e.trees.missing(t.place), hint)
	}
	old, t, err := e.wholeText(t)
	if err != nil {
		return tool.Result{}, err
	}
	// t has the state in which the text was read, so nothing can change unnoticed between the two.
	if err := e.wantUnchanged(c, t); err != nil {
		return tool.Result{}, err
	}
	text, report, err := apply(old)
	if err == nil && text == old {
		err = errors.New("it is the same after these edits")
	}
	if err != nil {
		err = fmt.Errorf("%s was not changed: %w", printable(t.name), err)
		return e.trees.refused(contentError{err, t.place})
	}
	err = e.save(ctx, c, change{target: t, content: []byte(text)})
	return tool.Result{Text: printable(t.name) + report}, err
}

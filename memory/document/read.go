package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"gateway/memory"
)

// Limits of reading.
const (
	maxFile       = 4 << 20  // bytes per document
	maxKnown      = 64 << 20 // bytes of all cached texts
	maxKnownDocs  = 8_192
	bytesPerToken = 4
)

// settleTime is longer than the time resolution of file systems. If a file was last
// changed longer ago than that, any later change shows in its time.
const settleTime = 3 * time.Second

// key identifies a document. The scope "" stands for the shared documents.
type key struct {
	scope memory.Scope
	name  string
}

// cached is a document in memory.
type cached struct {
	doc     Doc
	info    fs.FileInfo // of the file read; nil if a change would not show in it
	checked uint64      // value of [Documents.clock] before the last check of doc
}

// always is greater than any value of the clock: the document is checked again.
const always = math.MaxUint64

// errNone means that the folder of documents does not exist.
var errNone = errors.New("there are no documents here")

// place returns the path of a document.
func (d *Documents) place(k key) (root *os.Root, path string, err error) {
	root, path = d.shared, filepath.FromSlash(k.name)
	if k.scope != "" {
		if _, err := memory.ParseScope(string(k.scope)); err != nil {
			return nil, "", err
		}
		root, path = d.scopes, filepath.Join(string(k.scope), path)
	}
	switch {
	case root == nil:
		return nil, "", errNone
	case !filepath.IsLocal(filepath.FromSlash(k.name)):
		return nil, "", fmt.Errorf("%q is not a document's name", k.name)
	}
	return root, path, nil
}

// doc returns a document as it was at some time after the clock had the value since. It
// returns the cached document if that was checked since then, or if its file is unchanged.
func (d *Documents) doc(k key, since uint64) Doc {
	c, known := d.recall(k)
	if known && c.checked >= since {
		return c.doc
	}
	root, path, err := d.place(k)
	if errors.Is(err, errNone) {
		return Doc{Name: k.name}
	}
	checked := d.clock.Load()
	var info fs.FileInfo
	if err == nil {
		info, err = root.Lstat(path)
	}
	if isNone(err) {
		d.rememberNone(k, checked)
		return Doc{Name: k.name}
	}
	if err != nil {
		return d.unreadable(k, err)
	}
	if known && c.info != nil && same(c.info, info) {
		c.checked = checked
		d.remember(k, c)
		return c.doc
	}
	now := d.opts.Now()
	data, info, err := d.load(k, root, path)
	switch {
	case isNone(err):
		d.rememberNone(k, checked)
		return Doc{Name: k.name}
	case err != nil:
		d.forget(k)
		return d.unreadable(k, err)
	}
	doc := d.parse(k, data)
	if doc.Problem != "" {
		d.opts.Logger.Warn("document left out of the prompt", "file", path, "err", doc.Problem)
	}
	if now.Sub(info.ModTime()) <= settleTime {
		info = nil
	}
	d.remember(k, cached{doc, info, checked})
	return doc
}

// rememberNone caches that a shared document does not exist. Missing documents of scopes
// are not cached: there would be too many.
func (d *Documents) rememberNone(k key, checked uint64) {
	if k.scope != "" {
		d.forget(k)
		return
	}
	d.remember(k, cached{doc: Doc{Name: k.name}, checked: checked})
}

func isNone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// same reports whether a file was not written between a and b.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) &&
		a.Mode() == b.Mode()
}

// unreadable returns the Doc of a file that can't be read.
func (d *Documents) unreadable(k key, err error) Doc {
	d.opts.Logger.Warn("document left out of the prompt", "file", k.name, "scope", k.scope, "err", err)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err // leave out the absolute path
	}
	return Doc{Name: k.name, Problem: fmt.Sprintf("%s can't be read: %v", k.name, err)}
}

// load reads a file and returns its content and FileInfo.
func (d *Documents) load(k key, root *os.Root, path string) ([]byte, fs.FileInfo, error) {
	data, info, err := d.loadOnce(k, root, path)
	for range maxTries {
		if !errors.Is(err, errReplaced) {
			break
		}
		data, info, err = d.loadOnce(k, root, path)
	}
	return data, info, err
}

// maxTries limits the attempts to read a file that is being replaced.
const maxTries = 20

var errReplaced = errors.New("it is replaced all the time")

func (d *Documents) loadOnce(k key, root *os.Root, path string) ([]byte, fs.FileInfo, error) {
	if k.scope != "" {
		// A link to the folder of another scope stays within the root, but must be refused.
		if err := wantFolder(root, string(k.scope)); err != nil {
			return nil, nil, err
		}
	}
	if err := wantPlain(root.Lstat(path)); err != nil {
		return nil, nil, err
	}
	// The file may have become a pipe since the check. Opening a pipe without O_NONBLOCK would
	// block.
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err := wantPlain(info, err); err != nil {
		return nil, nil, err
	}
	if now, err := root.Lstat(path); err != nil || !os.SameFile(now, info) {
		return nil, nil, errReplaced // or it was a link when opened
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, info, err
}

const errNoText = unfitError("it is not text in UTF-8")

var errTooLarge = unfitError(fmt.Sprintf("it is larger than %d bytes", maxFile))

func wantFolder(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		return errors.New("the folder of its scope is not a folder")
	}
	return err
}

// wantPlain returns an error unless info is of a regular file of at most maxFile bytes.
func wantPlain(info fs.FileInfo, err error) error {
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return unfitError("it is a directory")
	case info.Mode()&fs.ModeSymlink != 0:
		return unfitError("it is a symbolic link, and these are not followed")
	case !info.Mode().IsRegular():
		return unfitError("it is not a regular file")
	case info.Size() > maxFile:
		return errTooLarge
	}
	return nil
}

// parse returns the Doc with the given file content.
func (d *Documents) parse(k key, data []byte) Doc {
	doc := Doc{Name: k.name, Hash: hashOf(string(data))}
	text, ok := decode(data)
	if !ok {
		doc.Problem = k.name + " can't be read: it is not text"
		return doc
	}
	doc.Template = isTemplate(text)
	doc.Text = clip(k.name, text, d.opts.MaxTokens*bytesPerToken)
	return doc
}

// decode returns data as UTF-8 with LF line ends, and whether data is text.
func decode(data []byte) (string, bool) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		order := unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
		text, err := order.NewDecoder().Bytes(data)
		if err != nil {
			return "", false
		}
		data = text
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return "", false
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")), true
}

// clip returns a text of at most most bytes. A longer text is cut at the end of a line, if
// possible, and gets a notice.
func clip(name, text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := text[:most]
	for !utf8.RuneStart(text[len(cut)]) {
		cut = cut[:len(cut)-1]
	}
	if i := strings.LastIndexByte(cut, '\n'); i > 0 {
		cut = cut[:i]
	}
	notice := fmt.Sprintf("\n[… %d more bytes of %s are left out: it is too long. "+
		"Condense it, and keep what matters.]", len(text)-len(cut), name)
	return strings.TrimRight(cut, " \n") + notice
}

func (d *Documents) recall(k key) (cached, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.known[k]
	return c, ok
}

func (d *Documents) remember(k key, c cached) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size += len(c.doc.Text) - len(d.known[k].doc.Text)
	d.known[k] = c
	if d.size > maxKnown || len(d.known) > maxKnownDocs {
		clear(d.known) // documents in use are read again
		d.size = 0
	}
}

func (d *Documents) forget(k key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size -= len(d.known[k].doc.Text)
	delete(d.known, k)
}

// Read returns the full content of a document on disk and its hash, or "" for both if it
// does not exist. A text that is not UTF-8 is an error, which wraps [ErrUnfit]. The scope "" stands
// for the shared documents. name is a slash-separated path.
func (d *Documents) Read(s memory.Scope, name string) (text, hash string, err error) {
	k := key{s, name}
	root, path, err := d.place(k)
	if err != nil {
		return "", "", fmt.Errorf("document: read %s: %w", name, err)
	}
	data, _, err := d.load(k, root, path)
	switch {
	case isNone(err):
		return "", "", nil
	case err == nil && (!utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0):
		err = errNoText
	}
	if err != nil {
		return "", "", fmt.Errorf("document: read %s: %w", name, err)
	}
	return string(data), hashOf(string(data)), nil
}

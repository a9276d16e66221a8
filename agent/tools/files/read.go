package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"gateway/agent/extract"
	"gateway/agent/extract/document"
	"gateway/agent/tool"
)

// Limits of read_file.
const (
	sniffLen    = 8 << 10  // bytes that decide whether a file is text; Git uses the same rule
	maxImage    = 20 << 20 // bytes
	maxDocument = 16 << 20 // bytes of a document's extracted text, of which pages are shown
)

const readDescription = "Reads a file: text as numbered lines, at most 2000, from line offset; " +
	"PDF, Office and notebooks as text; images."

type readArgs struct {
	Path   string `json:"path"`
	Offset int    `json:"offset,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

func (w *Files) readFile(ctx context.Context, c tool.Call, a readArgs) (tool.Result, error) {
	if a.Offset < 0 || a.Limit < 0 {
		return tool.Result{}, errors.New("offset and limit can't be negative")
	}
	at, err := w.find(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	f, info, err := w.open(at)
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	head, err := headOf(f)
	if err != nil {
		return tool.Result{}, w.explain(at, err)
	}
	r := tool.Result{Foreign: foreign("file", at), Trusted: w.isTrusted(at)}
	if kind := document.Type(head, at.name); isImage(kind) {
		r.Images, err = readImage(f, info, at, kind)
		r.Text = fmt.Sprintf("(an image, %s, %d bytes)", kind, info.Size())
	} else {
		r.Text, err = w.readText(ctx, c, f, at, a)
	}
	if err != nil {
		return tool.Result{}, err
	}
	w.recordRead(c, at, info)
	return r, nil
}

// foreign describes the origin of a result's text.
func foreign(what string, at place) string { return "the " + what + " " + printable(at.name) }

// headOf returns the first bytes of a file and then seeks back to its start.
func headOf(f *os.File) ([]byte, error) {
	head := make([]byte, sniffLen)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}

// isText reports whether a file that begins with head is UTF-8 text.
func isText(head []byte) bool {
	return bytes.IndexByte(head, 0) < 0 && utf8.Valid(wholeRunes(head))
}

func isImage(kind string) bool {
	return slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, kind)
}

const notebookType = "application/x-ipynb+json"

// isDocument reports whether files of a type must go through the extractor, even if they look like
// text.
func isDocument(kind string) bool {
	return slices.Contains([]string{
		"application/pdf", "application/zip", "application/epub+zip", notebookType,
	}, kind) || strings.HasPrefix(kind, "application/vnd.")
}

func readImage(f *os.File, info fs.FileInfo, at place, kind string) ([]tool.Image, error) {
	if info.Size() > maxImage {
		return nil, fmt.Errorf("%q is an image of %d bytes, and the limit is %d; "+
			"make it smaller with a command first", at.given, info.Size(), maxImage)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxImage))
	if err != nil {
		return nil, fmt.Errorf("%q: the %s can't be read: %w", at.given, kind, err)
	}
	return []tool.Image{{Name: at.name, Data: data}}, nil
}

// readText returns one page of a file's text.
func (w *Files) readText(
	ctx context.Context, c tool.Call, f *os.File, at place, a readArgs,
) (string, error) {
	head, err := headOf(f)
	if err != nil {
		return "", w.explain(at, err)
	}
	info, err := f.Stat()
	if err != nil {
		return "", w.explain(at, err)
	}
	p := page{first: max(a.Offset, 1), limit: maxLines}
	if a.Limit > 0 {
		p.limit = min(a.Limit, maxLines)
	}
	var from io.Reader = f
	note := ""
	if isText(head) && !isDocument(document.Type(head, at.name)) {
		if bytes.HasPrefix(head, byteOrderMark) {
			from = io.NewSectionReader(f, int64(len(byteOrderMark)), info.Size())
		}
	} else {
		text, kind, err := w.documentText(ctx, c, f, info, at)
		if err != nil {
			return "", err
		}
		from = strings.NewReader(text)
		note = fmt.Sprintf("(the text of a file that is %s)\n", kind)
	}
	if err := p.fill(ctx, bufio.NewReaderSize(from, bufferSize)); err != nil {
		return "", w.explain(at, err)
	}
	text, err := p.text()
	return note + text, err
}

var byteOrderMark = []byte("\ufeff")

// documentText returns the text extracted from a file that is not plain text, and the name of its
// type.
func (w *Files) documentText(
	ctx context.Context, c tool.Call, f *os.File, info fs.FileInfo, at place,
) (text, kind string, err error) {
	head, err := headOf(f)
	if err != nil {
		return "", "", w.explain(at, err)
	}
	kind = document.Type(head, at.name)
	text, err = w.extract.Text(ctx, c.Address.String(), f, info.Size(), kind, maxDocument)
	switch {
	case errors.Is(err, extract.ErrUnsupported):
		return "", "", fmt.Errorf("%q is not text but %s, %d bytes; use a tool or a command that "+
			"understands the format, or ask for a text version", at.given, kind, info.Size())
	case err != nil:
		return "", "", fmt.Errorf("%q (%s, %d bytes) can't be read as text: %w",
			at.given, kind, info.Size(), err)
	}
	if kind == notebookType {
		kind = "a notebook; notebook_edit changes it"
	} else if strings.HasPrefix(kind, "text/") {
		kind += " and not UTF-8, so that edit_file can't change it"
	}
	return text, kind, nil
}

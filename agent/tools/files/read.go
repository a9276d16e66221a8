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

// A reader implements read_file.
type reader struct {
	trees   *trees
	extract *extract.Extractor
	seen    *seen
}

func (r *reader) readFile(ctx context.Context, c tool.Call, a readArgs) (tool.Result, error) {
	if a.Offset < 0 || a.Limit < 0 {
		return tool.Result{}, errors.New("offset and limit can't be negative")
	}
	at, err := r.trees.find(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	f, info, err := r.trees.open(at)
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	o := opened{File: f, info: info, at: at}
	if o.head, err = headOf(f); err != nil {
		return tool.Result{}, r.trees.explain(at, err)
	}
	o.kind = document.Type(o.head, at.name)
	result := tool.Result{Foreign: foreign("file", at), Trusted: r.trees.isTrusted(at)}
	if tool.IsPicture(o.kind) {
		result.Images, err = o.image()
		result.Text = fmt.Sprintf("(an image, %s, %d bytes)", o.kind, info.Size())
	} else {
		result.Text, err = r.readText(ctx, c, o, a)
	}
	if err != nil {
		return tool.Result{}, err
	}
	r.recordRead(c, at, info)
	return result, nil
}

// An opened is a file that is being read.
type opened struct {
	*os.File
	info fs.FileInfo
	at   place
	head []byte // its first bytes
	kind string // MIME type
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
	return bytes.IndexByte(head, 0) < 0 && utf8.Valid(document.WholeRunes(head))
}

const notebookType = "application/x-ipynb+json"

// isDocument reports whether files of a type must go through the extractor, even if they look like
// text.
func isDocument(kind string) bool {
	return slices.Contains([]string{
		"application/pdf", "application/zip", "application/epub+zip", notebookType,
	}, kind) || strings.HasPrefix(kind, "application/vnd.")
}

func (o opened) image() ([]tool.Image, error) {
	if o.info.Size() > maxImage {
		return nil, fmt.Errorf("%q is an image of %d bytes, and the limit is %d; "+
			"make it smaller with a command first", o.at.given, o.info.Size(), maxImage)
	}
	data, err := io.ReadAll(io.LimitReader(o, maxImage))
	if err != nil {
		return nil, fmt.Errorf("%q: the %s can't be read: %w", o.at.given, o.kind, err)
	}
	return []tool.Image{{Name: o.at.name, Data: data}}, nil
}

// readText returns one page of the text of a file.
func (r *reader) readText(
	ctx context.Context, c tool.Call, o opened, a readArgs,
) (string, error) {
	p := page{first: max(a.Offset, 1), limit: maxLines}
	if a.Limit > 0 {
		p.limit = min(a.Limit, maxLines)
	}
	var from io.Reader = o
	note := ""
	if isText(o.head) && !isDocument(o.kind) {
		if bytes.HasPrefix(o.head, byteOrderMark) {
			from = io.NewSectionReader(o, int64(len(byteOrderMark)), o.info.Size())
		}
	} else {
		text, what, err := r.documentText(ctx, c, o)
		if err != nil {
			return "", err
		}
		from = strings.NewReader(text)
		note = fmt.Sprintf("(the text of a file that is %s)\n", what)
	}
	if err := p.fill(ctx, bufio.NewReaderSize(from, bufferSize)); err != nil {
		return "", r.trees.explain(o.at, err)
	}
	text, err := p.text()
	return note + text, err
}

var byteOrderMark = []byte("\ufeff")

// documentText returns the text extracted from a file that is not plain text, and a description of
// its type.
func (r *reader) documentText(
	ctx context.Context, c tool.Call, o opened,
) (text, what string, err error) {
	size := o.info.Size()
	text, err = r.extract.Text(ctx, c.Address.String(), o, size, o.kind, maxDocument)
	switch {
	case errors.Is(err, extract.ErrUnsupported):
		return "", "", fmt.Errorf("%q is not text but %s, %d bytes; use a tool or a command that "+
			"understands the format, or ask for a text version", o.at.given, o.kind, size)
	case err != nil:
		return "", "", fmt.Errorf("%q (%s, %d bytes) can't be read as text: %w",
			o.at.given, o.kind, size, err)
	case o.kind == notebookType:
		return text, "a notebook; notebook_edit changes it", nil
	case strings.HasPrefix(o.kind, "text/"):
		return text, o.kind + " and not UTF-8, so that edit_file can't change it", nil
	}
	return text, o.kind, nil
}

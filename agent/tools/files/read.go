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

// readArgs are the arguments of read_file. Offset is the number of the first line, from 1; 0 means
// 1. Limit is the number of lines; 0 means maxLines.
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

// readFile implements read_file. The content decides whether a file is an image, text or a
// document; its name matters only if the content leaves that open.
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
	// One page of a file is enough. What counts is that the file has not changed since.
	if real, err := at.resolved(); err == nil {
		at = real
	}
	r.seen.record(c.Session, at, info)
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

// headOf returns the first bytes of a file. Reading the file still begins at its start.
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

// readText returns one page of the text of a file. Plain text is read up to the end of the page
// only, however large the file is. Text of other files is extracted as a whole.
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

// Limits of a page.
const (
	maxLines = 2_000
	maxChars = 128_000 // of the whole result, about
	maxLine  = 20_000  // characters; the rest of a longer line is left out

	bufferSize = 64 << 10 // bytes that are read at once
)

// page is the lines of a file that one call shows.
type page struct {
	first, limit int
	lines        []string // numbered
	seen         int      // lines read so far, up to the end of the page
	more         bool     // the file has more lines
}

// fill reads the page from the start of a file.
func (p *page) fill(ctx context.Context, r *bufio.Reader) error {
	for chars := 0; ; {
		// The end of the file comes before the limits: a page that ends with the file is not cut.
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		if len(p.lines) == p.limit || chars >= maxChars {
			p.more = true
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.seen < p.first-1 {
			if err := p.skip(r); err != nil {
				return err
			}
			continue
		}
		line, err := readLine(r)
		if err != nil {
			return err
		}
		p.seen++
		line = fmt.Sprintf("%6d\t%s", p.seen, line)
		size := utf8.RuneCountInString(line) + 1
		// The line is the first one of the next page.
		if chars+size > maxChars {
			p.seen--
			p.more = true
			return nil
		}
		chars += size
		p.lines = append(p.lines, line)
	}
}

// skip discards the rest of the buffer or of a line, whichever is shorter, and counts a line at its
// end, which may be the end of the file.
func (p *page) skip(r *bufio.Reader) error {
	_, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		if _, err = r.Peek(1); err == nil {
			return nil // the line goes on
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		p.seen++
		return nil
	}
	return err
}

// readLine reads a line without its end. It cuts a very long one and says so.
func readLine(r *bufio.Reader) (string, error) {
	var kept []byte
	cut := 0 // bytes
	for more := true; more; {
		var chunk []byte
		var err error
		if chunk, more, err = r.ReadLine(); err != nil {
			return "", err
		}
		// This many bytes hold maxLine characters in any case. The rest is only counted.
		room := max(0, maxLine*utf8.UTFMax-len(kept))
		kept = append(kept, chunk[:min(len(chunk), room)]...)
		cut += max(0, len(chunk)-room)
	}
	line := strings.ToValidUTF8(string(document.WholeRunes(kept)), "\ufffd")
	characters := 0
	for i := range line {
		if characters++; characters > maxLine {
			cut += len(line) - i
			line = line[:i]
			break
		}
	}
	if cut > 0 {
		line += fmt.Sprintf(" [line cut, %d bytes more]", cut)
	}
	return line, nil
}

// text returns the page for the model, with a hint on how to continue. An offset behind the end is
// an error that says how many lines there are.
func (p *page) text() (string, error) {
	if len(p.lines) == 0 {
		if p.seen == 0 {
			return "(the file is empty)", nil
		}
		return "", fmt.Errorf("the file has only %d lines, so none at offset %d", p.seen, p.first)
	}
	note := fmt.Sprintf("(end of the file at line %d)", p.seen)
	if p.more {
		note = fmt.Sprintf("(lines %d to %d; the file goes on, read more with offset %d)",
			p.first, p.seen, p.seen+1)
	}
	return strings.Join(p.lines, "\n") + "\n\n" + note, nil
}

package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"gateway/agent/tool"
)

// The bounds of one call of read_file.
const (
	maxLines = 2_000
	maxChars = 128_000 // of the whole result, about
	maxLine  = 20_000  // characters; the rest of a longer line is left out

	sniffLen = 8 << 10 // bytes that decide whether a file is text, as git has it
)

const readDescription = `Reads a text file of the workspace and gives its lines with their ` +
	`numbers, at most 2000 at once. Use offset and limit for long files. Not for directories ` +
	`(use list_dir), images or other binary files.`

type readArgs struct {
	Path   string `json:"path" jsonschema:"path of the file, relative to the workspace"`
	Offset int    `json:"offset,omitempty" jsonschema:"first line to read, from 1; by default 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"lines to read; by default and at most 2000"`
}

func (w *Files) readFile(ctx context.Context, c tool.Call, a readArgs) (tool.Result, error) {
	if a.Offset < 0 || a.Limit < 0 {
		return tool.Result{}, errors.New("offset and limit can't be negative")
	}
	f, err := w.openText(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	p := page{first: max(a.Offset, 1), limit: maxLines}
	if a.Limit > 0 {
		p.limit = min(a.Limit, maxLines)
	}
	if err := p.fill(ctx, bufio.NewReader(f)); err != nil {
		return tool.Result{}, w.explain(a.Path, err)
	}
	text, err := p.text()
	return tool.Result{Text: text}, err
}

// openText is Open for a file that looks like text.
func (w *Files) openText(c tool.Call, name string) (*os.File, error) {
	f, err := w.Open(c, name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = wantText(name, f, info.Size())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// Open opens the file that a model calls name, if it is a regular file. The error is for the model.
func (w *Files) Open(c tool.Call, name string) (*os.File, error) {
	at, err := w.local(c, name)
	if err != nil {
		return nil, err
	}
	info, err := at.root.Stat(at.path) // before opening, which has an effect on some devices
	if err != nil {
		return nil, w.explain(name, err)
	}
	if err := wantRegular(name, info); err != nil {
		return nil, err
	}
	// The file may have become a pipe meanwhile: without O_NONBLOCK that would hang.
	f, err := at.root.OpenFile(at.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, w.explain(name, err)
	}
	if info, err = f.Stat(); err == nil {
		err = wantRegular(name, info)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func wantRegular(name string, info os.FileInfo) error {
	switch k := kind(info.Mode()); k {
	case "":
		return nil
	case "directory":
		return fmt.Errorf("%q is a directory; use list_dir", name)
	default:
		return fmt.Errorf("%q is a %s and can't be read; only regular files can", name, k)
	}
}

// wantText refuses a file that is not UTF-8 and leaves f at the start of its text.
func wantText(name string, f *os.File, size int64) error {
	head := make([]byte, sniffLen)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%q can't be read: %w", name, err)
	}
	head = head[:n]
	if bytes.IndexByte(head, 0) >= 0 || !utf8.Valid(wholeRunes(head)) {
		return fmt.Errorf("%q is not UTF-8 text but %s, %d bytes; use a tool or a command that "+
			"understands the format, or ask for a text version", name, http.DetectContentType(head), size)
	}
	start := len(head) - len(bytes.TrimPrefix(head, []byte("\ufeff")))
	_, err = f.Seek(int64(start), io.SeekStart)
	return err
}

// wholeRunes returns b without the beginning of a rune at its end.
func wholeRunes(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// A page is the lines of a file that one call shows.
type page struct {
	first, limit int
	lines        []string // numbered
	seen         int      // lines of the file up to the end of the page
	more         bool     // the file goes on
}

// fill reads the page from the start of a file.
func (p *page) fill(ctx context.Context, r *bufio.Reader) error {
	for chars := 0; ; {
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
		line, err := readLine(r)
		if err != nil {
			return err
		}
		p.seen++
		if p.seen < p.first {
			continue
		}
		line = fmt.Sprintf("%6d\t%s", p.seen, line)
		size := utf8.RuneCountInString(line) + 1
		if chars+size > maxChars {
			p.seen--
			p.more = true
			return nil
		}
		chars += size
		p.lines = append(p.lines, line)
	}
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
		room := max(0, maxLine*utf8.UTFMax-len(kept))
		kept = append(kept, chunk[:min(len(chunk), room)]...)
		cut += max(0, len(chunk)-room)
	}
	line := strings.ToValidUTF8(string(wholeRunes(kept)), "\ufffd")
	for i, n := 0, 0; i < len(line); n++ { // i is the byte of the n-th character
		if n == maxLine {
			cut += len(line) - i
			line = line[:i]
			break
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		i += size
	}
	if cut > 0 {
		line += fmt.Sprintf(" [line cut, %d bytes more]", cut)
	}
	return line, nil
}

// text returns the page for the model, with how to read on.
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

package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"gateway/agent/extract/document"
)

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

// text returns the page for the model, with a hint on how to continue.
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

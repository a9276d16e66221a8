package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"gateway/agent/tool"
)

const writeDescription = "Writes a whole file and makes its directories."

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// writeFile implements write_file. A file that the session has not read may be replaced; one that
// has changed since the session read it may not.
func (e *editor) writeFile(ctx context.Context, c tool.Call, a writeArgs) (tool.Result, error) {
	unlock, err := e.lock(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	defer unlock()
	t, err := e.target(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	if err := e.wantUnchanged(c, t); err != nil {
		return tool.Result{}, err
	}
	content, how := a.Content, "made"
	notes := ""
	if t.info != nil {
		how = "replaced"
		if content, notes, err = e.keepLineEnds(t, content); err != nil {
			return tool.Result{}, err
		}
	}
	if err := e.save(ctx, c, change{target: t, content: []byte(content)}); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: fmt.Sprintf("%s was %s: %d bytes, %s%s",
		printable(t.name), how, len(content), lineCount(content), notes)}, nil
}

// keepLineEnds returns content with the line ends and the byte order mark of the file that it
// replaces, which the model does not see, and a note about that.
func (e *editor) keepLineEnds(t target, content string) (string, string, error) {
	f, _, err := e.trees.open(t.place)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	bom, crlf, err := lineEnds(f)
	if err != nil {
		return "", "", e.trees.explain(t.place, err)
	}
	notes := ""
	if crlf && strings.Contains(content, "\n") && !strings.Contains(content, "\r") {
		content = strings.ReplaceAll(content, "\n", "\r\n")
		notes = ", with CRLF line ends as before"
	}
	if bom && !strings.HasPrefix(content, string(byteOrderMark)) {
		content = string(byteOrderMark) + content
		notes += ", with the byte order mark as before"
	}
	return content, notes, nil
}

// lineEnds reports whether a text begins with a byte order mark, and whether all its lines, at
// least one, end in CRLF.
func lineEnds(r io.Reader) (bom, crlf bool, err error) {
	b := bufio.NewReaderSize(r, bufferSize)
	head, _ := b.Peek(len(byteOrderMark)) // ReadByte returns an error, too
	bom = bytes.Equal(head, byteOrderMark)
	for last := byte(0); ; {
		c, err := b.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return bom, crlf, nil
		case err != nil:
			return false, false, err
		case c == '\n' && last != '\r':
			return bom, false, nil
		case c == '\n':
			crlf = true
		}
		last = c
	}
}

// hasCRLF reports whether all lines of text, at least one, end in CRLF.
func hasCRLF(text string) bool {
	n := strings.Count(text, "\n")
	return n > 0 && strings.Count(text, "\r\n") == n
}

// countLines returns the number of lines of a text.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// lineCount describes the number of lines of text.
func lineCount(text string) string {
	if n := countLines(text); n != 1 {
		return fmt.Sprintf("%d lines", n)
	}
	return "1 line"
}

package openai

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
)

// Limits of a [frameReader], in bytes.
const (
	firstBuffer = 2 << 10 // enough for most frames; grows for longer lines
	maxLine     = 8 << 20 // a tool call that writes a file may be one frame
)

// A frameReader reads a stream of server-sent events and passes on only the data, each frame as one
// "data: …\n" line. It drops comments, blank lines and other fields of events: go-openai counts
// them, gives up after some hundred, and treats the lines that it has collected as an error.
//
// Every data line is one frame, because no chat completion API splits a frame over several lines. A
// line that begins with { is data too, because some proxies put a bare JSON error into the stream.
// llama.cpp of 2025 has a field of its own for an error.
type frameReader struct {
	src   *source
	lines *bufio.Scanner
	out   []byte // rest of the line that Read returns; part of the scanner's buffer

	done bool // the last frame was [DONE]
	cut  bool // src ended in the middle of a line
}

func newFrameReader(src io.Reader) *frameReader {
	f := &frameReader{src: &source{r: src}}
	f.lines = bufio.NewScanner(f.src)
	f.lines.Buffer(make([]byte, firstBuffer), maxLine)
	f.lines.Split(f.split)
	return f
}

// split is a [bufio.SplitFunc] for lines with their newlines. It adds a newline to the last line if
// that has none.
func (f *frameReader) split(data []byte, atEnd bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if !atEnd || len(data) == 0 || f.src.err != nil {
		return 0, nil, nil
	}
	f.cut = true
	return len(data), append(data[:len(data):len(data)], '\n'), nil
}

// Read implements [io.Reader]. It returns io.EOF after the [DONE] frame.
func (f *frameReader) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.done || !f.lines.Scan() {
			return 0, cmp.Or(f.lines.Err(), io.EOF)
		}
		f.out = f.frame(f.lines.Bytes())
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

var (
	dataField  = []byte("data:")
	errorField = []byte("error:")
	byteOrder  = []byte("\xef\xbb\xbf")
	errorStart = []byte(`{"error"`)
	doneFrame  = []byte("[DONE]")
)

// frame returns the frame for a line, or nil if the line is to be dropped.
func (f *frameReader) frame(line []byte) []byte {
	line = bytes.TrimPrefix(line, byteOrder)
	payload, isData := bytes.CutPrefix(line, dataField)
	failure, isError := bytes.CutPrefix(line, errorField)
	payload = bytes.TrimSpace(payload)
	switch {
	case isError:
		return fmt.Appendf(nil, "data: { \"error\": %s}\n", bytes.TrimSpace(failure))
	case len(payload) == 0, !isData && payload[0] != '{':
		return nil
	case bytes.Equal(payload, doneFrame):
		f.done = true
		return line
	case bytes.HasPrefix(payload, errorStart):
		// go-openai would handle this frame itself and lose most of the error. With a space after
		// the brace it does not recognise the frame.
		return fmt.Appendf(nil, "data: { %s\n", payload[1:])
	case !isData:
		return fmt.Appendf(nil, "data: %s\n", payload)
	}
	return line
}

package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of a [frameReader], in bytes.
const (
	firstBuffer = 2 << 10 // enough for most frames; grows for longer lines
	maxLine     = 8 << 20 // a tool call that writes a file may be one frame
)

var errLineTooLong = fmt.Errorf("line over %d bytes", maxLine)

// A frameReader reads a stream of server-sent events and passes on only the data, each frame as one
// "data: …\n" line. It drops comments, blank lines and other fields of events: go-openai counts
// them, gives up after some hundred, and treats the lines that it has collected as an error.
//
// Every data line is one frame, because no chat completion API splits a frame over several lines. A
// line that begins with { is data too, because some proxies put a bare JSON error into the stream.
type frameReader struct {
	src io.Reader
	buf []byte // data of src; buf[r:w] was not processed yet
	r   int
	w   int
	out []byte // rest of the line that Read returns; may be part of buf
	err error  // of src; io.EOF at its end

	done bool // the last frame was [DONE]
	cut  bool // src ended in the middle of a line
}

func newFrameReader(src io.Reader) *frameReader {
	return &frameReader{src: src, buf: make([]byte, firstBuffer)}
}

// Read implements [io.Reader]. It returns io.EOF after the [DONE] frame.
func (f *frameReader) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.done {
			return 0, io.EOF
		}
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		f.out = f.frame(line)
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// line returns the next line of the source with its newline. If the last line has no newline, line
// adds one. The line is valid until the next call.
func (f *frameReader) line() ([]byte, error) {
	looked := 0 // number of bytes after r that were searched for a newline
	for {
		if i := bytes.IndexByte(f.buf[f.r+looked:f.w], '\n'); i >= 0 {
			line := f.buf[f.r : f.r+looked+i+1]
			f.r += len(line)
			return line, nil
		}
		looked = f.w - f.r
		if looked > maxLine {
			return nil, errLineTooLong
		}
		if f.err != nil {
			if looked == 0 || !errors.Is(f.err, io.EOF) {
				return nil, f.err
			}
			f.cut = true
			line := append(f.buf[f.r:f.w:f.w], '\n')
			f.r = f.w
			return line, nil
		}
		f.fill()
	}
}

// fill reads once from the source and appends the data to buf.
func (f *frameReader) fill() {
	if f.r > 0 {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	if f.w == len(f.buf) {
		f.buf = append(f.buf, make([]byte, len(f.buf))...)
	}
	n, err := f.src.Read(f.buf[f.w:])
	f.w += n
	f.err = err
}

var (
	dataField  = []byte("data:")
	byteOrder  = []byte("\xef\xbb\xbf")
	errorStart = []byte(`{"error"`)
	doneFrame  = []byte("[DONE]")
)

// frame returns the frame for a line, or nil if the line is to be dropped.
func (f *frameReader) frame(line []byte) []byte {
	line = bytes.TrimPrefix(line, byteOrder)
	payload, isData := bytes.CutPrefix(line, dataField)
	payload = bytes.TrimSpace(payload)
	switch {
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

package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of a [frameReader], in bytes.
const (
	firstBuffer = 2 << 10 // enough for most frames; grows as lines need it
	maxLine     = 8 << 20 // a whole file written by a tool call may be one frame
)

var errLineTooLong = fmt.Errorf("line over %d bytes", maxLine)

// A frameReader reads a stream of server-sent events and passes on only what
// carries an answer, each as one whole "data: …\n" line. Comments, blank lines
// and the other fields of an event are left out: go-openai counts them, gives up
// after some hundred, and mistakes what it has collected of them for an error.
//
// Every data line is taken as one frame, because no chat completion API splits a
// frame over several. A line that begins with { is taken as data, because some
// proxies put a bare JSON error into the stream.
type frameReader struct {
	src io.Reader
	buf []byte // bytes of src; those in buf[r:w] are yet to be looked at
	r   int
	w   int
	out []byte // rest of the line being passed on; may lie in buf
	err error  // of src; io.EOF at its end

	done bool // the last frame was [DONE]
	cut  bool // src ended within a line
}

func newFrameReader(src io.Reader) *frameReader {
	return &frameReader{src: src, buf: make([]byte, firstBuffer)}
}

// Read implements [io.Reader]. After the [DONE] frame it reports io.EOF.
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

// line returns the next line of the source with its newline, which is added
// to a last line that lacks it. The line is valid until the next call.
func (f *frameReader) line() ([]byte, error) {
	looked := 0 // so many bytes from r on have no newline
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

// fill reads once from the source, behind what is not yet looked at.
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

// frame returns what to pass on for a line: nothing, or the line as a frame.
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
		// go-openai would take this frame for itself and lose most of it. It does not
		// know it again with a space in it.
		return fmt.Appendf(nil, "data: { %s\n", payload[1:])
	case !isData:
		return fmt.Appendf(nil, "data: %s\n", payload)
	}
	return line
}

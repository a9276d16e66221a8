package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrameReader(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain":        {"data: a\n\ndata: b\n\n", "data: a\ndata: b\n"},
		"comments":     {": c\n\n:\ndata: a\n: c\n", "data: a\n"},
		"other fields": {"event: e\nid: 1\nretry: 5\ndata: a\n", "data: a\n"},
		"empty data":   {"data:\ndata: \ndata: a\n", "data: a\n"},
		"no newline":   {"data: a\ndata: b", "data: a\ndata: b\n"},
		"after done":   {"data: a\ndata: [DONE]\ndata: b\n", "data: a\ndata: [DONE]\n"},
		"error":        {`data: {"error":{}}` + "\n", `data: { "error":{}}` + "\n"},
		"bare error":   {`{"error":1}` + "\n", `data: { "error":1}` + "\n"},
		"error field":  {`error: {"a":1}` + "\n", `data: { "error": {"a":1}}` + "\n"},
		"bare object":  {`{"a":1}` + "\n", `data: {"a":1}` + "\n"},
		"long": {"data: " + strings.Repeat("x", 5*firstBuffer) + "\n",
			"data: " + strings.Repeat("x", 5*firstBuffer) + "\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(newFrameReader(strings.NewReader(tt.in)))
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestFrameReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader("data: a\ndata: cut"), iotest.ErrReader(broken))
	got, err := io.ReadAll(newFrameReader(src))
	if string(got) != "data: a\n" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v, want %v", got, err, broken)
	}
}

// endless is a reader of a line that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestFrameReaderBound(t *testing.T) {
	f := newFrameReader(endless{})
	if _, err := f.Read(make([]byte, 10)); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("got %v, want %v", err, bufio.ErrTooLong)
	}
}

// FuzzFrameReader checks that the reader returns each data line up to [DONE] once, whole and in
// order, and nothing else. The size of the pieces in which the stream is read makes no
// difference.
func FuzzFrameReader(f *testing.F) {
	f.Add("data: a\n\n: c\r\ndata:b\ndata: [DONE]\ndata: c", 3)
	f.Add("\xef\xbb\xbfdata: {\"error\":1}\nevent: x\n{}", 1)
	f.Add(strings.Repeat("data: x\n", 1000), 100)
	f.Fuzz(func(t *testing.T, in string, piece int) {
		src := &piecewise{strings.NewReader(in), max(1, piece)}
		out, err := io.ReadAll(newFrameReader(src))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			got = append(got, payload(s.Text()))
		}
		want := dataLines(in)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

type piecewise struct {
	src io.Reader
	n   int
}

func (p *piecewise) Read(b []byte) (int, error) { return p.src.Read(b[:min(len(b), p.n)]) }

// dataLines returns the lines that FuzzFrameReader expects, found in a simple way.
func dataLines(in string) []string {
	var lines []string
	for line := range strings.SplitSeq(in, "\n") {
		line = strings.TrimPrefix(line, "\xef\xbb\xbf")
		if !strings.HasPrefix(line, "data:") && !strings.HasPrefix(strings.TrimSpace(line), "{") {
			continue
		}
		p := payload(line)
		if p != "" {
			lines = append(lines, p)
		}
		if p == "[DONE]" && strings.HasPrefix(line, "data:") {
			break
		}
	}
	return lines
}

// payload returns the data of a line, without the space that hides an error from go-openai.
func payload(line string) string {
	p := strings.TrimSpace(strings.TrimPrefix(line, "data:"))
	return strings.Replace(p, `{ "error"`, `{"error"`, 1)
}

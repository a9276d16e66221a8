package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stream returns a response that is a stream of events.
func stream(text string) *http.Response {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(text)),
		Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}}
}

// A stream of notifications goes on after its responses end. Nothing is lost or joined wrongly.
func TestListen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		status := func(code int) *http.Response {
			return &http.Response{StatusCode: code, Body: http.NoBody}
		}
		answers := []*http.Response{
			stream(""), stream(": ping\n\n"), stream(""), status(400), status(409),
			stream("retry: 5000\r\nid: 7\r\ndata: two\r\n\r\ndata: thr"), stream("data: three\n\n"),
			status(404),
		}
		var asked []string
		first := stream("id: 6\ndata: one\n\nda")
		l := listen(ctx.Done(), first, func(last string) (*http.Response, error) {
			asked = append(asked, last)
			next := answers[0]
			answers = answers[1:]
			return next, nil
		})
		begin := time.Now()
		got, err := io.ReadAll(l)
		const want = "id: 6\ndata: one\n\n" + ": ping\n\n" + "retry: 5000\r\nid: 7\r\ndata: two\r\n\r\n" +
			"data: three\n\n"
		if string(got) != want || err != nil {
			t.Errorf("read %q, %v\nwant %q", got, err, want)
		}
		if ids := strings.Join(asked, " "); ids != "6 6 6 6 6 6 7 7" {
			t.Errorf("asked for what follows %s", ids)
		}
		if took := time.Since(begin); took != (1+2+1+2+4+8+5+5)*time.Second {
			t.Errorf("waited %v", took)
		}
	})
}

// The end of the connection ends the stream, and so does an endpoint that is out of order.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		l := listen(t.Context().Done(), stream(""), func(string) (*http.Response, error) {
			return nil, down
		})
		if _, err := l.Read(make([]byte, 9)); !errors.Is(err, down) {
			t.Errorf("read after an error: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l = listen(ctx.Done(), stream(""), func(string) (*http.Response, error) {
			cancel()
			return stream(""), nil
		})
		if _, err := l.Read(make([]byte, 9)); !errors.Is(err, context.Canceled) {
			t.Errorf("read after the end of the connection: %v", err)
		}
		l = listen(t.Context().Done(), stream(strings.Repeat("x", maxMessage+9000)), nil)
		if _, err := io.CopyN(io.Discard, l, maxMessage+1); err != nil {
			t.Errorf("read a large event: %v", err)
		}
	})
}

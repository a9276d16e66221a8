package demo

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// A memoryTransport is an [http.RoundTripper] that calls a handler in the same process. The
// response's body is streamed through a pipe.
type memoryTransport struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper]. The handler must return when its context ends: when the
// request's context ends, or when the response's body is closed. Close waits for the handler.
func (t memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	w := &pipeWriter{pipe: writer, header: make(http.Header), begun: make(chan struct{})}
	b := &pipeBody{PipeReader: reader, ended: make(chan struct{}), end: cancel}
	go func() { // Close waits for this goroutine
		defer close(b.ended)
		t.handler.ServeHTTP(w, req.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		// Closing a pipe or a body in memory can't fail.
		_ = writer.CloseWithError(context.Cause(ctx)) // nil means a normal end
		_ = req.Body.Close()
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		_ = b.Close() // can't fail
		return nil, context.Cause(ctx)
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), Body: b, ContentLength: -1, Request: req,
	}, nil
}

// A pipeWriter is the handler's side of a response.
type pipeWriter struct {
	pipe   *io.PipeWriter
	header http.Header
	status int // set before begun is closed
	once   sync.Once
	begun  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.begun)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

// Flush implements [http.Flusher]. A pipe has no buffer.
func (w *pipeWriter) Flush() {}

// A pipeBody is the client's side of a response.
type pipeBody struct {
	*io.PipeReader
	end   func()
	ended chan struct{} // closed when the handler has returned
}

// Close cancels the handler and waits until it has returned.
func (b *pipeBody) Close() error {
	b.end()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}

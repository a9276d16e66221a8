package demo

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// A memoryTransport is an [http.RoundTripper] that hands requests to a handler in the
// same process. The body of a response streams through a pipe.
type memoryTransport struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper]. The handler must return when its context
// ends: with that of the request, or when the body of the response is closed, which waits for it.
func (t memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	w := &pipeWriter{pipe: writer, header: make(http.Header), begun: make(chan struct{})}
	b := &pipeBody{PipeReader: reader, ended: make(chan struct{}), end: cancel}
	go func() { // Close waits for it
		defer close(b.ended)
		t.handler.ServeHTTP(w, req.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		// Neither the end of the pipe nor that of a body in memory reports an error.
		_ = writer.CloseWithError(context.Cause(ctx)) // nil is the proper end
		_ = req.Body.Close()
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		_ = b.Close() // reports no error
		return nil, context.Cause(ctx)
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), Body: b, ContentLength: -1, Request: req,
	}, nil
}

// A pipeWriter is the handler's end of a response.
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

// Flush implements [http.Flusher]; a pipe holds nothing back.
func (w *pipeWriter) Flush() {}

// A pipeBody is the client's end of a response.
type pipeBody struct {
	*io.PipeReader
	end   func()
	ended chan struct{} // closed once the handler has returned
}

// Close ends the handler and waits until it has returned.
func (b *pipeBody) Close() error {
	b.end()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}

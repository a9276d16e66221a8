package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"gateway/agent/llm/wire"
)

// Limits of a call.
const (
	maxWhole  = 32 << 20               // bytes of an answer that is not streamed
	afterDone = 250 * time.Millisecond // time for the end of the body after its last frame
	afterIdle = 5 * time.Second        // time for the usage after the end of the answer
)

// errNotOurs reports a request that go-openai makes on its own.
var errNotOurs = errors.New("not a call of this package")

// A call is the state of one request. It is passed in the context, because go-openai passes on
// nothing else.
type call struct {
	body   outgoing // nil as soon as there is an answer
	watch  *wire.Watchdog
	frames *frameReader // set when the answer begins
}

type callKey struct{}

// A doer is the HTTP client that go-openai uses. It replaces the request's body by that of the
// call, keeps the details of failures, and filters the stream.
type doer struct {
	client  *http.Client
	headers map[string]string // added to each request
}

// Do sends req. If the answer is not a stream, it returns an error: a *wire.Failure if the provider
// reported the failure.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errNotOurs
	}
	req.ContentLength = c.body.size()
	req.GetBody = func() (io.ReadCloser, error) { // for another attempt on a new connection
		return io.NopCloser(c.body.reader()), nil
	}
	// GetBody cannot fail.
	req.Body, _ = req.GetBody()

	for name, value := range d.headers {
		req.Header.Set(name, value)
	}

	c.watch.Start()
	defer c.watch.Stop()
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	c.body = nil // release it now, because the answer may take long
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, wire.ReadFailure(resp)
	}
	src, err := stream(resp, wire.WatchedReader{Source: resp.Body, Watch: c.watch})
	if err != nil {
		// err is more important than an error of Close.
		_ = resp.Body.Close()
		return nil, err
	}
	c.frames = newFrameReader(src)
	resp.Body = &body{frames: c.frames, src: resp.Body, watch: c.watch}
	return resp, nil
}

// stream returns the body of resp as a stream of events. It converts a complete answer into such a
// stream.
func stream(resp *http.Response, body io.Reader) (io.Reader, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // missing or malformed: it may still be a stream
	}
	switch kind {
	case "text/html":
		return nil, &wire.Failure{Message: "a page of HTML"}
	case "application/json":
		whole, err := io.ReadAll(io.LimitReader(body, maxWhole))
		if err != nil {
			return nil, err
		}
		var frame bytes.Buffer
		if json.Compact(&frame, whole) != nil {
			return bytes.NewReader(whole), nil // a stream with a wrong Content-Type
		}
		var a struct{ Choices, Error json.RawMessage }
		if json.Unmarshal(whole, &a) != nil || wire.IsEmpty(a.Choices) && wire.IsEmpty(a.Error) {
			return nil, wire.ParseFailure(frame.Bytes())
		}
		frame.WriteString("\n\ndata: [DONE]\n\n")
		return &frame, nil
	}
	return body, nil
}

// A body is the filtered stream. Closing it makes the connection reusable.
type body struct {
	frames *frameReader
	src    io.ReadCloser
	watch  *wire.Watchdog
}

func (b *body) Read(p []byte) (int, error) { return b.frames.Read(p) }

// Close implements [io.Closer]. After the last frame it waits up to 250 ms for the end of the body,
// because a connection with unread data can't be reused.
func (b *body) Close() error {
	if b.frames.done && b.frames.src.err == nil {
		b.watch.Limit(afterDone)
		b.watch.Start()
		defer b.watch.Stop()
		// The answer is complete, so an error does not matter.
		_, _ = io.CopyN(io.Discard, b.src, firstBuffer)
	}
	return b.src.Close()
}

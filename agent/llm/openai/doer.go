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

// Bounds of a call.
const (
	maxWhole  = 32 << 20               // of an answer that is not streamed, in bytes
	afterDone = 250 * time.Millisecond // for the end of the body after its last frame
	afterIdle = 5 * time.Second        // for the usage after the end of the answer
)

// errNotOurs reports a call that go-openai makes by itself.
var errNotOurs = errors.New("not a call of this package")

// A call is what one request has of its own on its way through go-openai, which
// passes nothing but the context.
type call struct {
	body   outgoing // nil once there is an answer
	watch  *wire.Watchdog
	frames *frameReader // once the answer has begun
}

type callKey struct{}

// A doer stands between go-openai and the HTTP client. It sends the call's own
// body in place of go-openai's, keeps all that a failure says, and cleans the stream.
type doer struct {
	client  *http.Client
	headers map[string]string // further ones of each request
}

// Do sends req. Any answer but a stream is an error, a *wire.Failure if the provider said it.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errNotOurs
	}
	req.ContentLength = c.body.size()
	req.GetBody = func() (io.ReadCloser, error) { // to send it again on a new connection
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
	c.body = nil // nobody asks for it any more, and the answer may take long
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, wire.ReadFailure(resp)
	}
	src, err := stream(resp, wire.WatchedReader{Source: resp.Body, Watch: c.watch})
	if err != nil {
		// The error at hand says more than one of Close.
		_ = resp.Body.Close()
		return nil, err
	}
	c.frames = newFrameReader(src)
	resp.Body = &body{frames: c.frames, src: resp.Body, watch: c.watch}
	return resp, nil
}

// stream returns the body of resp as a stream of events, which it makes
// of an answer that came whole.
func stream(resp *http.Response, body io.Reader) (io.Reader, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // missing or mangled: it may well be a stream
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
			return bytes.NewReader(whole), nil // a stream under a false name
		}
		frame.WriteString("\n\ndata: [DONE]\n\n")
		return &frame, nil
	}
	return body, nil
}

// A body is the cleaned stream. Closing it lets the connection be used again.
type body struct {
	frames *frameReader
	src    io.ReadCloser
	watch  *wire.Watchdog
}

func (b *body) Read(p []byte) (int, error) { return b.frames.Read(p) }

// Close implements [io.Closer]. After the last frame it waits a little for the end
// of the body, since a connection with something left to read is thrown away.
func (b *body) Close() error {
	if b.frames.done && b.frames.err == nil {
		b.watch.Limit(afterDone)
		b.watch.Start()
		defer b.watch.Stop()
		// Whatever comes, the answer is complete.
		_, _ = io.CopyN(io.Discard, b.src, firstBuffer)
	}
	return b.src.Close()
}

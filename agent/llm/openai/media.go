package openai

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"gateway/agent/llm/wire"

	openai "github.com/sashabaranov/go-openai"
)

// A mediaCaller makes calls with a complete answer, for speech and pictures.
type mediaCaller struct {
	wire.Caller
	http uploader
	log  *slog.Logger
}

// newMediaCaller returns the caller for a model, with a default of o.IdleTimeout.
func newMediaCaller(
	model string, o *Options, idle time.Duration, accept string, limit int64,
) mediaCaller {
	return mediaCaller{
		Caller: wire.NewCaller(model, cmp.Or(o.IdleTimeout, idle), o.Key, o.Headers),
		http:   uploader{cmp.Or(o.HTTP, wire.NewClient()), accept, limit},
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// client returns a client of the library that makes its calls through c.
func (c mediaCaller) client(o *Options) *openai.Client {
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	config.HTTPClient = c.http
	return openai.NewClientWithConfig(config)
}

// do makes a call under a watchdog. done is the message of the log after a success. The error is an
// [*llm.Error], or ctx's error if ctx has ended.
func (c mediaCaller) do(
	ctx context.Context, done string, call func(ctx context.Context) error,
) error {
	start := time.Now()
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := wire.NewWatchdog(c.Idle, cancel)
	defer watch.Stop()
	if err := call(context.WithValue(callCtx, uploadKey{}, watch)); err != nil {
		return c.Failed(ctx, callCtx, err)
	}
	c.log.DebugContext(ctx, done, "model", c.Name, "took", time.Since(start))
	return nil
}

type uploadKey struct{}

// An uploader is the HTTP client that go-openai uses for calls with a complete answer, as doer is
// for streams.
type uploader struct {
	client *http.Client
	accept string // Content-Type of the answer
	limit  int64  // bytes of the answer
}

// Do sends req. It returns a *wire.Failure if the answer is not one of the protocol.
func (u uploader) Do(req *http.Request) (*http.Response, error) {
	watch, ok := req.Context().Value(uploadKey{}).(*wire.Watchdog)
	if !ok {
		return nil, errNotOurs
	}
	if body := req.Body; body != nil {
		req.Body = plainBody{progress{body, watch}, body}
	}
	req.Header.Set("Accept", u.accept)
	watch.Start()
	defer watch.Stop()
	resp, err := u.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, wire.ReadFailure(resp)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		// The failure is known; an error of Close changes nothing.
		_ = resp.Body.Close()
		return nil, &wire.Failure{Message: "a page of HTML"}
	}
	limited := io.LimitReader(resp.Body, u.limit)
	resp.Body = plainBody{wire.WatchedReader{Source: limited, Watch: watch}, resp.Body}
	return resp, nil
}

// A plainBody is a body that is read through another reader.
type plainBody struct {
	io.Reader
	io.Closer
}

// A progress tells the watchdog that data was sent. It does not stop the watchdog, which also waits
// for the answer.
type progress struct {
	src   io.Reader
	watch *wire.Watchdog
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	p.watch.Start()
	return n, err
}

// Package anthropic answers conversations through Anthropic's own API for Claude. Its main type is
// [Model].
//
// Unlike Anthropic's compatibility layer for OpenAI's protocol, the API caches prompts. A Model
// marks where: after the tools, after the system prompt, and after the two newest messages of the
// user's side. What did not change since the call before costs a tenth.
//
// It stands on anthropic-sdk-go, at a version from before that linked OpenTelemetry and a YAML
// parser. A Model makes one attempt; it neither retries nor waits. The package owns no tables.
package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// DefaultBaseURL is the address of Anthropic's API.
const DefaultBaseURL = "https://api.anthropic.com"

// defaultMaxOutput is the limit of an answer, in tokens, if the request has none: the API wants
// one. Each model of the last two years can answer as much.
const defaultMaxOutput = 8192

const defaultIdle = time.Minute

// Options are the optional settings of a [Model].
type Options struct {
	BaseURL string // up to but without /v1/messages; default DefaultBaseURL
	Key     string

	// Headers are further headers of each request. Their values may be secrets.
	Headers map[string]string

	// HTTP makes the calls. By default the Model has a client of its own.
	HTTP *http.Client

	// IdleTimeout is how long the provider may keep silent, before its answer
	// as well as within; default 1 minute.
	IdleTimeout time.Duration

	// Fields are further fields of each request, such as temperature or thinking. They replace
	// those that the Model sets itself.
	Fields map[string]json.RawMessage

	Logger *slog.Logger // default discards
}

// A Model is one model of Anthropic. It implements [llm.Model].
type Model struct {
	wire.Caller
	id     string // as the provider calls it
	origin string // the provider's host
	client anthropic.MessageService
	log    *slog.Logger
}

var _ llm.Model = (*Model)(nil)

// New returns the model that the provider calls id and the configuration calls name.
func New(name, id string, opts *Options) *Model {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	base := strings.TrimSuffix(cmp.Or(o.BaseURL, DefaultBaseURL), "/")
	base = strings.TrimSuffix(base, "/v1") // as the addresses of other providers end
	origin := ""
	if u, err := url.Parse(base); err == nil { // if not, every call reports it
		origin = u.Host
	}
	secrets := append(slices.Collect(maps.Values(o.Headers)), o.Key)
	settings := []option.RequestOption{
		option.WithBaseURL(base + "/"), option.WithAPIKey(o.Key), option.WithMaxRetries(0),
		option.WithHTTPClient(doer{cmp.Or(o.HTTP, wire.NewClient())}),
	}
	for name, value := range o.Headers {
		settings = append(settings, option.WithHeader(name, value))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Fields)) {
		settings = append(settings, option.WithJSONSet(name, o.Fields[name]))
	}
	return &Model{
		Caller: wire.NewCaller(name, cmp.Or(o.IdleTimeout, defaultIdle), secrets...),
		id:     id, origin: origin,
		client: anthropic.NewMessageService(settings...), // unlike NewClient, reads no environment
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Name returns the name under which the model is configured.
func (m *Model) Name() string { return m.Caller.Name }

// errTruncated reports that a stream ended before the answer did.
var errTruncated = errors.New("stream ended before the answer did")

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		start := time.Now()
		callCtx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watch := wire.NewWatchdog(m.Idle, cancel)
		defer watch.Stop()
		stream := m.client.NewStreaming(context.WithValue(callCtx, watchKey{}, watch), m.params(req))
		// The stream is read to its end, or given up.
		defer func() { _ = stream.Close() }()
		a := &answer{}
		for stream.Next() {
			if text := a.add(stream.Current()); text != "" && !yield(llm.Event{Text: text}, nil) {
				return
			}
		}
		err := stream.Err()
		if err == nil && !a.stopped {
			err = errTruncated
		}
		if err != nil {
			yield(llm.Event{}, m.failed(ctx, callCtx, err, req))
			return
		}
		r := a.response(m)
		m.log.DebugContext(ctx, "model answered", "model", m.Name(), "took", time.Since(start),
			"in", r.Usage.Input, "out", r.Usage.Output, "cached", r.Usage.Cached)
		yield(llm.Event{Response: r}, nil)
	}
}

// failed returns the error to report for err.
func (m *Model) failed(ctx, callCtx context.Context, err error, req llm.Request) error {
	// The SDK has no type for an error within a stream.
	if _, body, ok := strings.Cut(err.Error(), "received error while streaming: "); ok {
		err = wire.ParseFailure([]byte(body))
	}
	err = m.Failed(ctx, callCtx, err)
	var e *llm.Error
	if errors.As(err, &e) && e.Kind == llm.NoImages && !hasImages(req) {
		e.Kind = llm.BadRequest
	}
	return err
}

type watchKey struct{}

// A doer stands between the SDK and the HTTP client. It keeps all that a failure says, and watches
// over the time.
type doer struct{ client *http.Client }

// Do sends req. Any answer but a stream is an error, a *wire.Failure if the provider said it.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	watch, _ := req.Context().Value(watchKey{}).(*wire.Watchdog) // Stream sets it
	watch.Start()
	defer watch.Stop()
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, wire.ReadFailure(resp)
	}
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		// What is wrong is known; an error of Close changes nothing.
		_ = resp.Body.Close()
		return nil, &wire.Failure{Message: "want a stream of events, got " + cmp.Or(kind, "no type")}
	}
	resp.Body = &body{wire.WatchedReader{Source: resp.Body, Watch: watch}, resp.Body}
	return resp, nil
}

// A body is read through the watch.
type body struct {
	wire.WatchedReader
	src interface{ Close() error }
}

// Close implements [io.Closer].
func (b *body) Close() error { return b.src.Close() }

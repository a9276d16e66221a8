// Package anthropic calls models through Anthropic's own API for Claude. Its main type is [Model].
//
// Unlike Anthropic's compatibility layer for OpenAI's protocol, this API caches prompts. A Model
// marks the ends of the cached parts: the tools, the system prompt, and the two newest messages of
// the user's side. A part that has not changed since the previous call costs a tenth of the price.
//
// The package has its own types instead of anthropic-sdk-go, which looks up methods by name. The
// linker would then keep all methods of the program: 10 MB more on disk and 4 MB in memory. A Model
// makes one attempt; it does not retry or wait. The package has no database tables.
package anthropic

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// DefaultBaseURL is the address of Anthropic's API.
const DefaultBaseURL = "https://api.anthropic.com"

// defaultMaxOutput limits an answer, in tokens, if the request does not, because the API requires a
// limit. All models of the last two years support it.
const defaultMaxOutput = 8192

const defaultIdle = time.Minute

// Options are the optional settings of a [Model].
type Options struct {
	BaseURL string // without /v1/messages; default DefaultBaseURL
	Key     string

	// Headers are added to each request. Their values may be secrets.
	Headers map[string]string

	// HTTP makes the calls. By default the Model has its own client.
	HTTP *http.Client

	// IdleTimeout is how long the provider may send nothing, before and during its answer. The
	// default is 1 minute.
	IdleTimeout time.Duration

	// Fields are added to each request, for example temperature or thinking. They replace those
	// that the Model sets itself, except the model, the conversation and the tools.
	Fields map[string]json.RawMessage

	Logger *slog.Logger // discards by default
}

// A Model is one of Anthropic's models. It implements [llm.Model].
type Model struct {
	wire.Caller
	id      string // the provider's name of the model
	url     string // URL of the Messages API
	origin  string // the provider's host
	key     string
	headers map[string]string
	client  *http.Client
	fields  map[string]json.RawMessage
	thinker *thinkingConfig
	log     *slog.Logger
}

var _ llm.Model = (*Model)(nil)

// New returns a model. id is the provider's name of the model, name the configured one.
func New(name, id string, opts *Options) *Model {
	o := *cmp.Or(opts, new(Options))
	base := strings.TrimSuffix(cmp.Or(o.BaseURL, DefaultBaseURL), "/")
	base = strings.TrimSuffix(base, "/v1") // base URLs of other providers end with it
	origin := ""
	if u, err := url.Parse(base); err == nil { // otherwise every call reports the error
		origin = u.Host
	}
	return &Model{
		Caller: wire.NewCaller(name, cmp.Or(o.IdleTimeout, defaultIdle), o.Key, o.Headers),
		id:     id, url: base + "/v1/messages", origin: origin, key: o.Key, headers: o.Headers,
		client: cmp.Or(o.HTTP, wire.NewClient()), fields: o.Fields,
		thinker: thinkerOf(id), log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Name returns the name under which the model is configured.
func (m *Model) Name() string { return m.Caller.Name }

// errTruncated reports that a stream ended before the answer did.
var errTruncated = errors.New("stream ended before the answer did")

// errBroken reports that the consumer has broken out of its loop.
var errBroken = errors.New("broken off")

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		start := time.Now()
		callCtx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		a := &answer{}
		err := m.read(callCtx, cancel, req, func(e *event) error {
			text, err := a.add(e)
			if err == nil && text != "" && !yield(llm.Event{Text: text}, nil) {
				return errBroken
			}
			return err
		})
		if failure, _ := errors.AsType[*wire.Failure](err); a.stop != "" && failure == nil &&
			!errors.Is(err, errBroken) && ctx.Err() == nil {
			err = nil // only the last event is missing; some proxies cut it off
		}
		switch {
		case errors.Is(err, errBroken):
		case err != nil:
			yield(llm.Event{}, m.FailedRequest(ctx, callCtx, err, req))
		default:
			r := a.response(req, m)
			m.log.DebugContext(ctx, "model answered", "model", m.Name(), "took", time.Since(start),
				"in", r.Usage.Input, "out", r.Usage.Output, "cached", r.Usage.Cached)
			yield(llm.Event{Response: r}, nil)
		}
	}
}

// read makes the call and passes each event of the answer to handle.
func (m *Model) read(ctx context.Context, cancel context.CancelCauseFunc, req llm.Request,
	handle func(*event) error,
) error {
	body, err := m.body(req)
	if err != nil {
		return &wire.Failure{Status: http.StatusBadRequest, Message: err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", version)
	r.Header.Set("X-Api-Key", m.key)
	for name, value := range m.headers {
		r.Header.Set(name, value)
	}
	watch := wire.NewWatchdog(m.Idle, cancel)
	defer watch.Stop()
	watch.Start()
	resp, err := m.client.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return wire.ReadFailure(resp)
	}
	// The body was read to its end, or the rest does not matter.
	defer func() { _ = resp.Body.Close() }()
	stream, err := streamOf(resp, wire.WatchedReader{Source: resp.Body, Watch: watch})
	if err != nil {
		return err
	}
	return events(stream, handle)
}

// streamOf returns the body of resp. If that is a JSON value, it returns the failure that the value
// describes: some providers report failures with a status of success.
func streamOf(resp *http.Response, body io.Reader) (io.Reader, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" if it is malformed
	if kind != "application/json" {
		return body, nil
	}
	whole, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return nil, err
	}
	var answer struct{ Type string }
	switch {
	case !json.Valid(whole):
		return bytes.NewReader(whole), nil // a stream with a wrong Content-Type
	case json.Unmarshal(whole, &answer) == nil && answer.Type == "message":
		return nil, &wire.Failure{Message: "the provider does not stream its answers"}
	}
	return nil, wire.ParseFailure(whole)
}

// version is the version of the API.
const version = "2023-06-01"

// maxLine is the greatest length of a line in a stream, in bytes. A redacted thought is one line.
const maxLine = 4 << 20

// events reads a stream of events until the last event or an error of handle.
func events(stream io.Reader, handle func(*event) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue // the data has the type too; some proxies send empty data
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		if e.Type == "error" || e.Type == "" && !wire.IsEmpty(e.Error) { // proxies omit the type
			return wire.ParseFailure(e.Error)
		}
		if err := handle(&e); err != nil {
			return err
		}
		if e.Type == "message_stop" {
			return nil // ignore anything after the last event
		}
	}
	return cmp.Or(lines.Err(), errTruncated)
}

// Package anthropic answers conversations through Anthropic's own API for Claude. Its main type is
// [Model].
//
// Unlike Anthropic's compatibility layer for OpenAI's protocol, the API caches prompts. A Model
// marks where: after the tools, after the system prompt, and after the two newest messages of the
// user's side. What did not change since the call before costs a tenth.
//
// It has its own types instead of anthropic-sdk-go's: that looks methods up by name, so that the
// linker keeps every method of the program, which then has 10 MB more on disk and 4 MB in memory.
// A Model makes one attempt; it neither retries nor waits. The package owns no tables.
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
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

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
	id      string // as the provider calls it
	url     string // of the messages
	origin  string // the provider's host
	key     string
	headers map[string]string
	client  *http.Client
	fields  map[string]json.RawMessage
	thinker *thinker
	log     *slog.Logger
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
	return &Model{
		Caller: wire.NewCaller(name, cmp.Or(o.IdleTimeout, defaultIdle), secrets...),
		id:     id, url: base + "/v1/messages", origin: origin, key: o.Key, headers: o.Headers,
		client: cmp.Or(o.HTTP, wire.NewClient()), fields: o.Fields,
		thinker: thinkerOf(id), log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Name returns the name under which the model is configured.
func (m *Model) Name() string { return m.Caller.Name }

// errTruncated reports that a stream ended before the answer did.
var errTruncated = errors.New("stream ended before the answer did")

// errBroken reports that the consumer has broken out of the loop.
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
		switch {
		case errors.Is(err, errBroken):
		case err != nil:
			yield(llm.Event{}, m.failed(ctx, callCtx, err, req))
		default:
			r := a.response(m)
			m.log.DebugContext(ctx, "model answered", "model", m.Name(), "took", time.Since(start),
				"in", r.Usage.Input, "out", r.Usage.Output, "cached", r.Usage.Cached)
			yield(llm.Event{Response: r}, nil)
		}
	}
}

// read makes the call and passes on each event of its answer, up to the last.
func (m *Model) read(ctx context.Context, cancel context.CancelCauseFunc, req llm.Request,
	take func(*event) error,
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
	watch.Stop()
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return wire.ReadFailure(resp)
	}
	// The stream is read to its end, or given up.
	defer func() { _ = resp.Body.Close() }()
	return events(wire.WatchedReader{Source: resp.Body, Watch: watch}, take)
}

// version is that of the API.
const version = "2023-06-01"

// maxLine bounds a line of a stream, in bytes: a redacted thought is one.
const maxLine = 4 << 20

// events reads a stream of events, up to the last one or to an error of take.
func events(stream io.Reader, take func(*event) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // the data has its type, too
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		if e.Type == "error" {
			return wire.ParseFailure(e.Error)
		}
		if err := take(&e); err != nil {
			return err
		}
		if e.Type == "message_stop" {
			return nil // whatever the server still sends
		}
	}
	return cmp.Or(lines.Err(), errTruncated)
}

// failed returns the error to report for err.
func (m *Model) failed(ctx, callCtx context.Context, err error, req llm.Request) error {
	err = m.Failed(ctx, callCtx, err)
	var e *llm.Error
	if errors.As(err, &e) && e.Kind == llm.NoImages && !hasImages(req) {
		e.Kind = llm.BadRequest
	}
	return err
}

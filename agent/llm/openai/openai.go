// Package openai answers conversations through any API that speaks the chat
// completions protocol of OpenAI: OpenAI itself, OpenRouter, DeepSeek, Moonshot,
// Gemini, Ollama, vLLM and many more. Its main type is [Model].
//
// It stands on go-openai, whose view of the protocol is narrower than what providers
// send: see doer for what passes by it on the way out, and frameReader for the way in.
//
// A Model makes one attempt; it neither retries nor waits. It takes text and images and
// asks for one answer at a time. A [Transcriber] writes down speech. The package owns no
// tables.
package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// DefaultBaseURL is the address of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

const defaultIdle = time.Minute

// ErrTruncated reports that a stream ended before the answer did.
// It comes wrapped in an [llm.Error] of kind [llm.Unavailable].
var ErrTruncated = errors.New("stream ended before the answer did")

// A MaxTokensField is the name that an API has for the limit of an answer.
type MaxTokensField string

// The names of the limit.
const (
	MaxTokens           MaxTokensField = "max_tokens"
	MaxCompletionTokens MaxTokensField = "max_completion_tokens"
)

// Options are the optional settings of a [Model].
type Options struct {
	BaseURL string // up to but without /chat/completions; default DefaultBaseURL
	Key     string // default none, as for a local server

	// Headers are further headers of each request. Their values may be secrets.
	Headers map[string]string

	// HTTP makes the calls. It should keep as many idle connections per host as there
	// are calls at a time. By default the Model has a client of its own that keeps 512.
	HTTP *http.Client

	// IdleTimeout is how long the provider may keep silent, before its answer
	// as well as within; default 1 minute.
	IdleTimeout time.Duration

	MaxTokensField MaxTokensField // default by host and model id

	// ReasoningBack says that the provider wants a message's reasoning back. It is
	// on for DeepSeek and Moonshot in any case, going by host and model id.
	ReasoningBack bool

	// Fields are further fields of each request, such as temperature. They do not
	// replace those that the Model sets itself, except for reasoning_effort.
	Fields map[string]json.RawMessage

	Logger *slog.Logger // default discards
}

// secrets returns what no error may show.
func (o *Options) secrets() []string {
	return append(slices.Collect(maps.Values(o.Headers)), o.Key)
}

// A Model is one model of one provider. It implements [llm.Model].
type Model struct {
	wire.Caller
	id     string // as the provider calls it
	origin string // the provider's host
	client *openai.Client
	quirks quirks
	fields map[string]json.RawMessage
	think  efforts
	log    *slog.Logger

	tools   toolCache
	systems systemCache
}

var _ llm.Model = (*Model)(nil)

// New returns the model that the provider calls id and the configuration calls name.
func New(name, id string, opts *Options) *Model {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	base := cmp.Or(o.BaseURL, DefaultBaseURL)
	origin := ""
	if u, err := url.Parse(base); err == nil { // if not, every call reports it
		origin = u.Host
	}
	q := guessQuirks(origin, id)
	q.reasoningBack = q.reasoningBack || o.ReasoningBack
	if o.MaxTokensField != "" {
		q.newMaxTokens = o.MaxTokensField == MaxCompletionTokens
	}
	think := guessEfforts(origin, id)
	if think == nil && o.Fields[effortField] != nil { // then it understands this one
		think = efforted("none", "low", "high")
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = base
	config.HTTPClient = doer{cmp.Or(o.HTTP, wire.NewClient()), o.Headers}
	config.EmptyMessagesLimit = math.MaxInt32 // the frameReader bounds the stream
	return &Model{
		Caller: wire.NewCaller(name, cmp.Or(o.IdleTimeout, defaultIdle), o.secrets()...),
		id:     id, origin: origin,
		client: openai.NewClientWithConfig(config),
		quirks: q,
		tools:  toolCache{mark: q.cacheMarks}, systems: systemCache{mark: q.cacheMarks},
		fields: o.Fields,
		think:  think,
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Name returns the name under which the model is configured.
func (m *Model) Name() string { return m.Caller.Name }

// Efforts returns the efforts that can be asked of the model.
func (m *Model) Efforts() []llm.Effort { return m.think.list() }

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		start := time.Now()
		a, err := m.answer(ctx, req, func(e llm.Event) bool { return yield(e, nil) })
		switch {
		case errors.Is(err, errBroken):
		case err != nil:
			yield(llm.Event{}, withoutImages(err, req))
		default:
			m.log.DebugContext(ctx, "model answered", "model", m.Caller.Name, "took", time.Since(start),
				"in", a.Usage.Input, "out", a.Usage.Output, "cached", a.Usage.Cached)
			yield(llm.Event{Response: a}, nil)
		}
	}
}

// withoutImages returns err, but of another kind if it blames images and req has none.
func withoutImages(err error, req llm.Request) error {
	var e *llm.Error
	if errors.As(err, &e) && e.Kind == llm.NoImages && !hasImages(req) {
		e.Kind = llm.BadRequest
	}
	return err
}

// errBroken reports that the consumer has broken out of the loop.
var errBroken = errors.New("broken off")

// answer asks for an answer, shows it piece by piece and returns it as a whole.
func (m *Model) answer(
	ctx context.Context, req llm.Request, show func(llm.Event) bool,
) (*llm.Response, error) {
	body, err := m.body(req)
	if err != nil {
		return nil, &llm.Error{Kind: llm.BadRequest, Model: m.Caller.Name, Err: err}
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{body: body, watch: wire.NewWatchdog(m.Idle, cancel)}
	callCtx = context.WithValue(callCtx, callKey{}, c)

	// The request is empty since the doer sends c.body; so none of go-openai's own
	// checks of models and parameters can apply.
	stream, err := m.client.CreateChatCompletionStream(callCtx, openai.ChatCompletionRequest{})
	if err != nil {
		return nil, m.Failed(ctx, callCtx, err)
	}
	// The body is read to its end, or given up.
	defer func() { _ = stream.Close() }()
	a := &answer{}
	for {
		event, err := c.next(stream, a)
		if event.Text != "" || event.Reset {
			if !show(event) {
				return nil, errBroken
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return a.response(req, m.Caller.Name, m.origin), nil
		case err != nil:
			return nil, m.Failed(ctx, callCtx, err)
		}
	}
}

// next takes the next frame of the stream. After the last one it returns io.EOF, and with
// it what was held back.
func (c *call) next(stream *openai.ChatCompletionStream, a *answer) (llm.Event, error) {
	raw, err := stream.RecvRaw()
	if err != nil {
		if a.complete(c.frames.done) {
			return a.flush(), io.EOF
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrTruncated
		}
		return llm.Event{}, err
	}
	var frame chunk
	if err := json.Unmarshal(raw, &frame); err != nil {
		if c.frames.cut {
			err = ErrTruncated
		}
		return llm.Event{}, fmt.Errorf("frame: %w", err)
	}
	if !wire.IsEmpty(frame.Error) {
		return llm.Event{}, wire.ParseFailure(frame.Error)
	}
	event := a.add(&frame)
	if a.finish == "error" {
		return event, &wire.Failure{Message: "ended by an error"}
	}
	if a.finish != "" {
		c.watch.Limit(afterIdle) // only the usage is still to come
	}
	return event, nil
}

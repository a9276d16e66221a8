// Package openai calls models through any API that implements OpenAI's chat completions protocol:
// OpenAI itself, OpenRouter, DeepSeek, Moonshot, Gemini, Ollama, vLLM and many more. Its main type
// is [Model].
//
// It uses go-openai, which supports less than what providers send and require. The type doer adds
// this to requests, and frameReader to answers.
//
// A Model makes one attempt; it does not retry or wait. It accepts text and images and asks for one
// answer at a time. A [Transcriber] turns speech into text, a [Speaker] text into speech, and a
// [ImageClient] makes pictures. The package has no database tables.
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
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// DefaultBaseURL is the address of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

const defaultIdle = time.Minute

// The least IdleTimeout for an answer that is not streamed, and for one before which the model
// thinks for long: OpenAI sends nothing while a model thinks.
const (
	wholeIdle = 10 * time.Minute
	thinkIdle = 3 * time.Minute
)

// ErrTruncated reports that a stream ended before the answer was complete. It is wrapped in an
// [llm.Error] of kind [llm.Unavailable].
var ErrTruncated = errors.New("stream ended before the answer did")

// A MaxTokensField is the name of the request field that limits the answer.
type MaxTokensField string

// The names of that field.
const (
	MaxTokens           MaxTokensField = "max_tokens"
	MaxCompletionTokens MaxTokensField = "max_completion_tokens"
)

// Options are the optional settings of a [Model].
type Options struct {
	BaseURL string // without /chat/completions; default DefaultBaseURL
	Key     string // default none, as local servers need none

	// Headers are added to each request. Their values may be secrets.
	Headers map[string]string

	// HTTP makes the calls. For each host, it should keep as many idle connections as there are
	// concurrent calls. By default the Model has its own client, which keeps 512.
	HTTP *http.Client

	// IdleTimeout is how long the provider may send nothing, before and during its answer. The
	// default is 1 minute. A model that thinks for long has at least 3 minutes.
	IdleTimeout time.Duration

	MaxTokensField MaxTokensField // default depends on host and model id

	// ReasoningBack makes the Model send a message's reasoning back to the provider. For DeepSeek
	// and Moonshot, recognised by host and model id, it is always on. It also begins when a provider
	// refuses a request for the lack of the reasoning.
	ReasoningBack bool

	// Fields are added to each request, for example temperature. They do not replace fields that
	// the Model sets itself, except reasoning_effort.
	Fields map[string]json.RawMessage

	Logger *slog.Logger // discards by default
}

// A Model is one model of one provider. It implements [llm.Model].
type Model struct {
	wire.Caller
	id     string // the provider's name of the model
	origin string // the provider's host
	client *openai.Client
	quirks quirks
	fields map[string]json.RawMessage
	think  efforts
	log    *slog.Logger

	tools   toolCache
	systems systemCache

	lessons atomic.Uint32 // lessons from refused requests
}

// Lessons from refused requests, as bits.
const (
	nameTools       uint32 = 1 << iota // calls need tools, also if they may not be used
	newLimit                           // the output limit is max_completion_tokens
	noStreamOptions                    // the server refuses stream_options
	noStream                           // the account may not stream the model's answers
	plainMessages                      // messages have only the fields of the protocol
	mistral                            // it is a model of Mistral, see isMistral
	noReasoning                        // with tools, reasoning must be switched off
	reasoningBack                      // see Options.ReasoningBack
	noEmptyText                        // calls have no text instead of an empty one
	noEffortOff                        // the model refuses this effort, as the next two
	noEffortLow
	noEffortHigh
)

// noEffort has the lesson that a model refuses an effort.
var noEffort = map[llm.Effort]uint32{llm.EffortOff: noEffortOff, llm.EffortLow: noEffortLow,
	llm.EffortHigh: noEffortHigh}

var _ llm.Model = (*Model)(nil)

// New returns a model. id is the provider's name of the model, name the configured one.
func New(name, id string, opts *Options) *Model {
	o := *cmp.Or(opts, new(Options))
	base := cmp.Or(o.BaseURL, DefaultBaseURL)
	origin := ""
	if u, err := url.Parse(base); err == nil { // otherwise every call reports the error
		origin = u.Host
	}
	q := guessQuirks(origin, id)
	q.reasoningBack = q.reasoningBack || o.ReasoningBack
	if o.MaxTokensField != "" {
		q.newMaxTokens = o.MaxTokensField == MaxCompletionTokens
	}
	think := guessEfforts(origin, id)
	if think == nil && o.Fields[effortField] != nil { // then the model supports the field
		think = newEfforts("none", "low", "high")
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = base
	config.HTTPClient = doer{cmp.Or(o.HTTP, wire.NewClient()), o.Headers}
	config.EmptyMessagesLimit = math.MaxInt32 // the frameReader limits the stream
	return &Model{
		Caller: wire.NewCaller(name, cmp.Or(o.IdleTimeout, defaultIdle), o.Key, o.Headers),
		id:     id, origin: origin,
		client:  openai.NewClientWithConfig(config),
		quirks:  q,
		tools:   toolCache{mark: q.cacheMarks, plain: q.plainSchemas},
		systems: systemCache{mark: q.cacheMarks},
		fields:  o.Fields,
		think:   think,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Name returns the name under which the model is configured.
func (m *Model) Name() string { return m.Caller.Name }

// Efforts returns the efforts that the model supports, as far as it has not refused them.
func (m *Model) Efforts() (list []llm.Effort) {
	for _, effort := range llm.AllEfforts {
		if m.hasEffort(effort) {
			list = append(list, effort)
		}
	}
	return list
}

// hasEffort reports whether the model has an effort, and has not refused it.
func (m *Model) hasEffort(effort llm.Effort) bool {
	return m.think[effort] != nil && m.lessons.Load()&noEffort[effort] == 0
}

// effortFields returns the fields of a request with an effort. Those of the effort replace the
// configured ones.
func (m *Model) effortFields(effort llm.Effort) map[string]json.RawMessage {
	if !m.hasEffort(effort) {
		return m.fields
	}
	all := make(map[string]json.RawMessage)
	maps.Copy(all, m.fields)
	for _, name := range []string{effortField, "reasoning", thinkingField} {
		delete(all, name)
	}
	maps.Copy(all, m.think[effort])
	return all
}

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		start := time.Now()
		known := m.lessons.Load()
		show := func(e llm.Event) bool { return yield(e, nil) }
		a, err := m.answer(ctx, req, show)
		for lesson := m.lessonOf(req, err); lesson&^known != 0; lesson = m.lessonOf(req, err) {
			known |= lesson
			m.lessons.Or(lesson)
			a, err = m.answer(ctx, req, show)
		}
		switch {
		case errors.Is(err, errBroken):
		case err != nil:
			yield(llm.Event{}, err)
		default:
			m.log.DebugContext(ctx, "model answered", "model", m.Caller.Name, "took", time.Since(start),
				"in", a.Usage.Input, "out", a.Usage.Output, "cached", a.Usage.Cached)
			yield(llm.Event{Response: a}, nil)
		}
	}
}

// leastIdle returns the least IdleTimeout for an answer with an effort, or 0.
func (m *Model) leastIdle(effort llm.Effort) time.Duration {
	fields := m.effortFields(effort)
	words := string(fields[effortField]) + string(fields["reasoning"])
	switch {
	case m.lessons.Load()&noStream != 0:
		return wholeIdle
	case wire.ContainsAny(words, `high"`, `"max"`): // the former is the end of xhigh, too
		return thinkIdle
	}
	return 0
}

// errBroken reports that the consumer has broken out of its loop.
var errBroken = errors.New("broken off")

// answer calls the provider, passes events to show as they arrive, and returns the complete answer.
func (m *Model) answer(
	ctx context.Context, req llm.Request, show func(llm.Event) bool,
) (*llm.Response, error) {
	body, err := m.body(req)
	if err != nil {
		return nil, &llm.Error{Kind: llm.BadRequest, Model: m.Caller.Name, Err: err}
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	caller := m.Caller
	caller.Idle = max(caller.Idle, m.leastIdle(req.Effort))
	c := &call{body: body, watch: wire.NewWatchdog(caller.Idle, cancel)}
	callCtx = context.WithValue(callCtx, callKey{}, c)

	// The request is empty because the doer sends c.body. So go-openai can't reject models or
	// parameters that it does not know.
	stream, err := m.client.CreateChatCompletionStream(callCtx, openai.ChatCompletionRequest{})
	if err != nil {
		return nil, caller.FailedRequest(ctx, callCtx, err, req)
	}
	// The body was read to its end, or the rest does not matter.
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
			return nil, caller.FailedRequest(ctx, callCtx, err, req)
		}
	}
}

// next returns the next event of the stream. After the last frame it returns io.EOF together with
// the text that was held back.
func (c *call) next(stream *openai.ChatCompletionStream, a *answer) (llm.Event, error) {
	raw, err := stream.RecvRaw()
	if err != nil {
		if a.isComplete(err) || c.frames.done && a.begun {
			var event llm.Event
			a.show(a.think.flush(), &event)
			return event, io.EOF
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
	if failure := frame.failure(raw); failure != nil {
		failure.Begun = a.begun
		return llm.Event{}, failure
	}
	before := a.size
	event := a.add(&frame)
	switch {
	case a.size > maxAnswer:
		return llm.Event{}, errTooLong
	case len(a.calls) > wire.MaxCalls:
		return llm.Event{}, wire.ErrManyCalls
	case isBroken(a.finish):
		return event, &wire.Failure{Message: "the answer was broken off: " + a.finish}
	case a.early:
		c.watch.Limit(math.MaxInt64) // as before the reason
	case a.finish != "" && a.text.Len()+len(a.calls) > 0 && a.size == before:
		c.watch.Limit(afterIdle) // only the usage may follow
	}
	return event, nil
}

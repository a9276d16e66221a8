package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"gateway/agent/llm/wire"

	openai "github.com/sashabaranov/go-openai"
)

const (
	transcribeIdle = 2 * time.Minute // a long recording takes time
	maxTranscript  = 4 << 20         // bytes of an answer
)

// A Transcriber turns speech into text through any API with OpenAI's audio/transcriptions. It is
// safe for concurrent use.
type Transcriber struct {
	wire.Caller
	client *openai.Client
	fields map[string]json.RawMessage
	log    *slog.Logger
}

// NewTranscriber returns a transcriber. model is the provider's name, such as whisper-1. Of
// opts.Fields it uses only language, a code of two letters, and prompt. The default IdleTimeout is
// 2 minutes.
func NewTranscriber(model string, opts *Options) *Transcriber {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	config.HTTPClient = uploader{cmp.Or(o.HTTP, wire.NewClient()), "application/json",
		maxTranscript}
	return &Transcriber{
		Caller: wire.NewCaller(model, cmp.Or(o.IdleTimeout, transcribeIdle), o.secrets()...),
		client: openai.NewClientWithConfig(config),
		fields: o.Fields,
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Transcribe returns the speech in the recording r as text. It reads all of r into memory. The
// extension of name tells the format. The text is empty if there is no speech. The error is an
// [*llm.Error], ctx's error if ctx has ended, or an error of r.
func (t *Transcriber) Transcribe(ctx context.Context, name string, r io.Reader) (string, error) {
	start := time.Now()
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	src := &source{r: r}
	watch := wire.NewWatchdog(t.Idle, cancel)
	defer watch.Stop()
	callCtx = context.WithValue(callCtx, uploadKey{}, watch)
	answer, err := t.client.CreateTranscription(callCtx, openai.AudioRequest{
		Model:    t.Name,
		FilePath: fileName(name),
		Reader:   src,
		Language: t.field("language"),
		Prompt:   t.field("prompt"),
	})
	if src.err != nil {
		return "", src.err
	}
	if err != nil {
		return "", t.Failed(ctx, callCtx, err)
	}
	t.log.DebugContext(ctx, "speech transcribed", "model", t.Name, "took", time.Since(start))
	return strings.TrimSpace(answer.Text), nil
}

// field returns the value of a string field of the options.
func (t *Transcriber) field(name string) string {
	if raw := t.fields[name]; !wire.IsEmpty(raw) {
		return wire.TextOf(raw)
	}
	return ""
}

// fileName returns the name to send: without folders, and with an extension that providers know.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	switch ext := path.Ext(name); strings.ToLower(ext) {
	case ".opus", ".spx": // Opus in an Ogg file, as voice messages are
		return strings.TrimSuffix(name, ext) + ".ogg"
	case "":
		return name + ".ogg"
	}
	return name
}

// A source stores the error of its reader, because go-openai wraps it in a way that hides it.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
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

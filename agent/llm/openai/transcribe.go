package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
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
	mediaCaller
	api    *openai.Client
	fields map[string]json.RawMessage
}

// NewTranscriber returns a transcriber. model is the provider's name, such as whisper-1. Of
// opts.Fields it uses only language, a code of two letters, and prompt. The default IdleTimeout is
// 2 minutes.
func NewTranscriber(model string, opts *Options) *Transcriber {
	o := cmp.Or(opts, &Options{})
	c := newMediaCaller(model, o, transcribeIdle, "application/json", maxTranscript)
	return &Transcriber{mediaCaller: c, api: c.client(o), fields: o.Fields}
}

// Transcribe returns the speech in the recording r as text. It reads all of r into memory. The
// extension of name tells the format. The text is empty if there is no speech. The error is an
// [*llm.Error], ctx's error if ctx has ended, or an error of r.
func (t *Transcriber) Transcribe(
	ctx context.Context, name string, r io.Reader,
) (text string, err error) {
	src := &source{r: r}
	err = t.do(ctx, "speech transcribed", func(ctx context.Context) error {
		answer, err := t.api.CreateTranscription(ctx, openai.AudioRequest{
			Model:    t.Name,
			FilePath: fileName(name),
			Reader:   src,
			Language: t.field("language"),
			Prompt:   t.field("prompt"),
		})
		text = strings.TrimSpace(answer.Text)
		return err
	})
	return text, cmp.Or(src.err, err)
}

// field returns the value of a string field of the options.
func (t *Transcriber) field(name string) string {
	if raw := t.fields[name]; !wire.IsEmpty(raw) {
		return wire.TextOf(raw)
	}
	return ""
}

// fileName returns the name to send: without folders, and with an extension that all providers
// know. They look at the extension first: Groq refuses .oga, OpenAI .opus, and both .aac.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	switch ext := path.Ext(name); strings.ToLower(ext) {
	case ".opus", ".spx", ".oga": // Opus in an Ogg file, as voice messages are
		return strings.TrimSuffix(name, ext) + ".ogg"
	case ".aac":
		return strings.TrimSuffix(name, ext) + ".m4a"
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

package openai

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"gateway/agent/llm/wire"

	openai "github.com/sashabaranov/go-openai"
)

const (
	speechIdle = time.Minute
	maxSpeech  = 16 << 20 // bytes of audio
)

// A Speaker turns text into speech through any API with OpenAI's audio/speech. It is safe for
// concurrent use.
type Speaker struct {
	wire.Caller
	client *openai.Client
	voice  string
	format string
	log    *slog.Logger
}

// NewSpeaker returns a speaker. model and voice are the provider's names, such as gpt-4o-mini-tts
// and alloy. format is opus, mp3 or wav. It ignores opts.Fields. The default IdleTimeout is 1
// minute.
func NewSpeaker(model, voice, format string, opts *Options) *Speaker {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	config.HTTPClient = uploader{cmp.Or(o.HTTP, wire.NewClient()), "*/*", maxSpeech}
	return &Speaker{
		Caller: wire.NewCaller(model, cmp.Or(o.IdleTimeout, speechIdle), o.secrets()...),
		client: openai.NewClientWithConfig(config),
		voice:  voice, format: format,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// Speak returns text as audio. OpenAI accepts up to 4096 characters. The error is an [*llm.Error],
// or ctx's error if ctx has ended.
func (s *Speaker) Speak(ctx context.Context, text string) ([]byte, error) {
	start := time.Now()
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := wire.NewWatchdog(s.Idle, cancel)
	defer watch.Stop()
	callCtx = context.WithValue(callCtx, uploadKey{}, watch)
	answer, err := s.client.CreateSpeech(callCtx, openai.CreateSpeechRequest{
		Model: openai.SpeechModel(s.Name), Voice: openai.SpeechVoice(s.voice), Input: text,
		ResponseFormat: openai.SpeechResponseFormat(s.format),
	})
	if err != nil {
		return nil, s.Failed(ctx, callCtx, err)
	}
	defer answer.Close()
	sound, err := io.ReadAll(answer)
	if err == nil && len(sound) >= maxSpeech {
		err = errors.New("the sound is too long")
	}
	if err != nil {
		return nil, s.Failed(ctx, callCtx, err)
	}
	s.log.DebugContext(ctx, "text spoken", "model", s.Name, "took", time.Since(start))
	return sound, nil
}

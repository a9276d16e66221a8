package openai

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

const (
	speechIdle = time.Minute
	maxSpeech  = 16 << 20 // bytes of audio
)

// A Speaker turns text into speech through any API with OpenAI's audio/speech. It is safe for
// concurrent use.
type Speaker struct {
	mediaCaller
	api           *openai.Client
	voice, format string
}

// NewSpeaker returns a speaker. model and voice are the provider's names, such as gpt-4o-mini-tts
// and alloy. format is opus, mp3 or wav. It ignores opts.Fields. The default IdleTimeout is 1
// minute.
func NewSpeaker(model, voice, format string, opts *Options) *Speaker {
	o := cmp.Or(opts, &Options{})
	c := newMediaCaller(model, o, speechIdle, "*/*", maxSpeech)
	return &Speaker{mediaCaller: c, api: c.client(o), voice: voice, format: format}
}

// Speak returns text as audio. OpenAI accepts up to 4096 characters. The error is an [*llm.Error],
// or ctx's error if ctx has ended.
func (s *Speaker) Speak(ctx context.Context, text string) (sound []byte, err error) {
	err = s.do(ctx, "text spoken", func(ctx context.Context) error {
		answer, err := s.api.CreateSpeech(ctx, openai.CreateSpeechRequest{
			Model: openai.SpeechModel(s.Name), Voice: openai.SpeechVoice(s.voice), Input: text,
			ResponseFormat: openai.SpeechResponseFormat(s.format),
		})
		if err != nil {
			return err
		}
		defer answer.Close()
		if sound, err = io.ReadAll(answer); err == nil && len(sound) >= maxSpeech {
			err = errors.New("the sound is too long")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return sound, nil
}

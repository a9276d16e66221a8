package speech

import (
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/bus"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{" Hello. ", 10, "Hello."},
		{"One. Two. Three.", 12, "One. Two."},
		{"One!\nTwo", 6, "One!"},
		{"wörterlang", 4, "wört"},
		{"一。二。三", 4, "一。二。"},
		{"", 5, ""},
	} {
		if got := cut(tt.text, tt.most); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}

func TestFormatOf(t *testing.T) {
	t.Parallel()
	for sound, want := range map[string]format{
		string(openaitest.Ogg(7)):      {bus.Voice, ".ogg", "audio/ogg", 7},
		"OggS and then OpusHead":       {bus.Voice, ".ogg", "audio/ogg", 0},
		"OggS\x00\x00\x01\x02OpusHead": {bus.Voice, ".ogg", "audio/ogg", 0},
		"\xff\xfb\x90\x64":             {bus.Audio, ".mp3", "audio/mpeg", 0},
		"\xff\xf3\x90\x64":             {bus.Audio, ".mp3", "audio/mpeg", 0},
		"ID3\x04":                      {bus.Audio, ".mp3", "audio/mpeg", 0},
		"RIFF\x00\x00\x00\x00WAVEfmt ": {bus.Audio, ".wav", "audio/wav", 0},
		"OggS vorbis":                  {}, `{"error":"no"}`: {}, "": {}, "\xff\xff": {},
	} {
		got := formatOf([]byte(sound))
		if want.kind == bus.Voice && want.seconds == 0 {
			got.seconds = 0 // of a file that is no whole one
		}
		if got != want {
			t.Errorf("formatOf(%q) = %+v, want %+v", sound, got, want)
		}
	}
}

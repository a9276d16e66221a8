package speech

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/opus"
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
	flat := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{50}, 64))
	for sound, want := range map[string]format{
		string(openaitest.Ogg(7)):      {bus.Voice, ".ogg", "audio/ogg", 7, flat},
		"OggS and then OpusHead":       {bus.Voice, ".ogg", "audio/ogg", 0, ""},
		"OggS\x00\x00\x01\x02OpusHead": {bus.Voice, ".ogg", "audio/ogg", 0, ""},
		"\xff\xfb\x90\x64":             {bus.Audio, ".mp3", "audio/mpeg", 0, ""},
		"\xff\xf3\x90\x64":             {bus.Audio, ".mp3", "audio/mpeg", 0, ""},
		"ID3\x04":                      {bus.Audio, ".mp3", "audio/mpeg", 0, ""},
		"RIFF\x00\x00\x00\x00WAVEfmt ": {bus.Audio, ".wav", "audio/wav", 0, ""},
		"OggS vorbis":                  {}, `{"error":"no"}`: {}, "": {}, "\xff\xff": {},
	} {
		if got := formatOf([]byte(sound)); got != want {
			t.Errorf("formatOf(%q) = %+v, want %+v", sound, got, want)
		}
	}
}

// page returns a page of an Ogg file. Only the last packet may be longer than 254 bytes.
func page(position uint64, packets ...[]byte) []byte {
	b := append([]byte("OggS\x00\x00"), binary.LittleEndian.AppendUint64(nil, position)...)
	b = append(b, make([]byte, 12)...)
	var sizes, body []byte
	for _, p := range packets {
		n := len(p)
		for ; n >= 255; n -= 255 {
			sizes = append(sizes, 255)
		}
		sizes, body = append(sizes, byte(n)), append(body, p...)
	}
	return slices.Concat(append(b, byte(len(sizes))), sizes, body)
}

// The length and the waveform are read from the pages, without a decoder.
func TestReadOpus(t *testing.T) {
	t.Parallel()
	packet := func(n int) []byte { return append([]byte{0xf8}, make([]byte, n-1)...) } // 20 ms
	head := page(0, []byte("OpusHead\x01\x01\x38\x01\x80\xbb\x00\x00\x00\x00\x00"))
	tags := page(0, []byte("OpusTags\x00\x00\x00\x00\x00\x00\x00\x00"))
	sound := append(head, tags...)
	const pre = 0x138
	for i := range 100 { // two seconds: silence, then loud
		n := 10
		if i >= 50 {
			n = 300
		}
		sound = append(sound, page(uint64(i+1)*960+pre, packet(n))...)
	}
	o := readOpus(sound)
	if o.seconds() != 2 || len(o.packets) != 100 {
		t.Errorf("%d s in %d packets, want 2 s in 100", o.seconds(), len(o.packets))
	}
	wave, err := base64.StdEncoding.DecodeString(o.waveform())
	if err != nil || len(wave) != 64 || wave[0] != 0 || wave[30] != 0 || wave[34] != 100 ||
		wave[63] != 100 {
		t.Errorf("the waveform is %v: %v", wave, err)
	}
	for n := range len(sound) { // cut at any byte
		o := readOpus(sound[:n])
		_, _ = o.seconds(), o.waveform()
	}
	// A packet of several frames that spans two pages, and a page on which no packet ends.
	long := append([]byte{0xfb, 3}, make([]byte, 508)...) // three frames of 20 ms
	begin := page(math.MaxUint64, long)
	begin = append(begin[:26:26], append([]byte{2, 255, 255}, long...)...)
	end := page(48_000+pre, nil)
	o = readOpus(slices.Concat(head, tags, begin, end))
	want := opus.Packet{Bytes: 510, Samples: 2880}
	if o.seconds() != 1 || len(o.packets) != 1 || o.packets[0] != want {
		t.Errorf("read %+v", o)
	}
}

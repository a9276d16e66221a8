package speech

import (
	"bytes"

	"gateway/bus"
)

// A format describes a sound file. Its ending is "" if platforms don't play the file.
type format struct {
	kind         bus.Kind
	ending, mime string
	seconds      int    // length of the sound; 0: unknown
	waveform     string // "": unknown
}

// formatOf detects the format of a sound file from its content. Only Ogg Opus is a voice message
// on all platforms; other formats are sent as an audio file. An unknown format gives the zero
// value.
func formatOf(sound []byte) format {
	head := sound[:min(len(sound), 512)]
	switch {
	case bytes.HasPrefix(head, []byte("OggS")) && bytes.Contains(head, []byte("OpusHead")):
		o := readOpus(sound)
		return format{bus.Voice, ".ogg", "audio/ogg", o.seconds(), o.waveform()}
	case bytes.HasPrefix(head, []byte("ID3")),
		len(head) > 2 && head[0] == 0xFF && head[1]&0xE6 == 0xE2: // MPEG, layer 3
		return format{bus.Audio, ".mp3", "audio/mpeg", 0, ""}
	case bytes.HasPrefix(head, []byte("RIFF")) && bytes.Contains(head, []byte("WAVE")):
		return format{bus.Audio, ".wav", "audio/wav", 0, ""}
	}
	return format{}
}

package speech

import (
	"bytes"
	"encoding/binary"

	"gateway/bus"
)

// A format describes a sound file. Its ending is "" if platforms don't play the file.
type format struct {
	kind         bus.Kind
	ending, mime string
	seconds      int // length of the sound; 0: unknown
}

// formatOf detects the format of a sound file from its content. Only Ogg Opus is a voice message
// on all platforms; other formats are sent as an audio file. An unknown format gives the zero
// value.
func formatOf(sound []byte) format {
	head := sound[:min(len(sound), 512)]
	switch {
	case bytes.HasPrefix(head, []byte("OggS")) && bytes.Contains(head, []byte("OpusHead")):
		return format{bus.Voice, ".ogg", "audio/ogg", opusSeconds(sound)}
	case bytes.HasPrefix(head, []byte("ID3")),
		len(head) > 2 && head[0] == 0xFF && head[1]&0xE6 == 0xE2: // MPEG, layer 3
		return format{bus.Audio, ".mp3", "audio/mpeg", 0}
	case bytes.HasPrefix(head, []byte("RIFF")) && bytes.Contains(head, []byte("WAVE")):
		return format{bus.Audio, ".wav", "audio/wav", 0}
	}
	return format{}
}

// opusSeconds returns the length of an Ogg Opus file, or 0 if it is unknown. The last page of the
// file contains the number of samples up to its end: 48,000 per second, whatever the sample rate.
func opusSeconds(sound []byte) int {
	const (
		position = 6 // offset of the sample count in a page
		rate     = 48_000
		longest  = 24 * 60 * 60
	)
	last := bytes.LastIndex(sound, []byte("OggS"))
	if last < 0 || len(sound) < last+position+8 {
		return 0
	}
	samples := binary.LittleEndian.Uint64(sound[last+position:])
	seconds := (samples + rate - 1) / rate
	if seconds > longest { // the count is -1 if no packet ends on the page
		return 0
	}
	return int(seconds)
}

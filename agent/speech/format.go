package speech

import (
	"bytes"
	"encoding/binary"

	"gateway/bus"
)

// A format is what a sound file is. Its ending is "" if it is none that platforms play.
type format struct {
	kind         bus.Kind
	ending, mime string
	seconds      int // 0: unknown
}

// formatOf returns the format of a sound file by its content. Only Opus in Ogg is a voice message
// on all platforms; other sound is sent as an audio file.
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

// opusSeconds returns how long a file with Opus in Ogg is. The last page of the file says how many
// samples there are up to its end: 48,000 a second, whatever the rate of the sound.
func opusSeconds(sound []byte) int {
	const (
		position = 6 // of the count in a page
		rate     = 48_000
		longest  = 24 * 60 * 60
	)
	last := bytes.LastIndex(sound, []byte("OggS"))
	if last < 0 || len(sound) < last+position+8 {
		return 0
	}
	samples := binary.LittleEndian.Uint64(sound[last+position:])
	seconds := (samples + rate - 1) / rate
	if seconds > longest { // a page on which no packet ends has the count -1
		return 0
	}
	return int(seconds)
}

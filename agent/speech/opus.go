package speech

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
)

// opusRate is the unit of positions in Ogg Opus: 48,000 per second, whatever the sample rate.
const opusRate = 48_000

// An opusPacket describes one packet of sound: its size in bytes, and its length in samples at
// opusRate.
type opusPacket struct{ bytes, samples int }

// An opusSound describes an Ogg Opus file. It comes from the pages of the file; no sound is
// decoded.
type opusSound struct {
	packets []opusPacket
	end     int64 // position of the end in samples; 0: unknown
	skip    int64 // number of samples at the beginning that players skip
}

// readOpus reads the pages of an Ogg Opus file up to the first one that is damaged.
func readOpus(sound []byte) (o opusSound) {
	const header = 27 // bytes of a page's header, before the sizes of its segments
	var first []byte  // beginning of the packet that the next segment continues
	size, n := 0, 0   // its bytes so far; number of packets, including the two headers
	for len(sound) >= header && bytes.HasPrefix(sound, []byte("OggS")) {
		segments := int(sound[header-1])
		if len(sound) < header+segments {
			break
		}
		sizes, body := sound[header:header+segments], sound[header+segments:]
		for _, s := range sizes {
			if len(body) < int(s) {
				return o
			}
			if size == 0 {
				first = body
			}
			size, body = size+int(s), body[s:]
			if s == 255 { // the packet goes on
				continue
			}
			switch n++; {
			case n == 1 && size >= 12 && bytes.HasPrefix(first, []byte("OpusHead")):
				o.skip = int64(binary.LittleEndian.Uint16(first[10:]))
			case n > 2 && size > 0:
				o.packets = append(o.packets, opusPacket{size, packetSamples(first[:min(size, 2)])})
			}
			size = 0
		}
		if end := int64(binary.LittleEndian.Uint64(sound[6:])); end > 0 { // -1: no packet ends here
			o.end = end
		}
		sound = body
	}
	return o
}

// packetSamples returns the length of a packet in samples, or 0 if it is unknown. head has the
// first one or two bytes of the packet. The first byte has the length of a frame, and the second
// one the number of frames if it is not one or two (RFC 6716, section 3.1).
func packetSamples(head []byte) int {
	frame := 0
	switch config := head[0] >> 3; {
	case config < 12:
		frame = []int{480, 960, 1920, 2880}[config%4]
	case config < 16:
		frame = []int{480, 960}[config%2]
	default:
		frame = []int{120, 240, 480, 960}[config%4]
	}
	switch head[0] & 3 {
	case 0:
		return frame
	case 3:
		if len(head) < 2 {
			return 0
		}
		return frame * int(head[1]&0x3f)
	}
	return 2 * frame
}

// seconds returns the length of the sound in seconds, rounded up, or 0 if it is unknown or longer
// than a day.
func (o opusSound) seconds() int {
	const longest = 24 * 60 * 60
	n := (o.end - o.skip + opusRate - 1) / opusRate
	if n < 0 || n > longest {
		return 0
	}
	return int(n)
}

// points is the number of points of a waveform. WhatsApp shows 64.
const points = 64

// waveform returns the loudness over time in the form of [bus.Attachment], or "" for a file without
// sound. It is approximate: no sound is decoded. An encoder with a variable bit rate spends more
// bytes on loud parts than on silence, so the bytes per sample stand for the loudness.
func (o opusSound) waveform() string {
	all := 0
	for _, p := range o.packets {
		all += p.samples
	}
	if all == 0 {
		return ""
	}
	var size, length [points]float64
	at := 0
	for _, p := range o.packets {
		for i := at * points / all; i <= min((at+p.samples)*points/all, points-1); i++ {
			size[i] += float64(p.bytes)
			length[i] += float64(p.samples)
		}
		at += p.samples
	}
	var rate [points]float64 // bytes per sample
	least, most := 0.0, 0.0
	for i := range rate {
		if length[i] > 0 {
			rate[i] = size[i] / length[i]
		}
		if i == 0 || rate[i] < least {
			least = rate[i]
		}
		most = max(most, rate[i])
	}
	wave := make([]byte, points)
	for i := range wave {
		wave[i] = 50 // the bit rate is constant
		if most > least {
			wave[i] = byte(100 * (rate[i] - least) / (most - least))
		}
	}
	return base64.StdEncoding.EncodeToString(wave)
}

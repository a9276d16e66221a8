package speech

import (
	"bytes"
	"encoding/base64"

	"gateway/agent/opus"
)

// An opusSound describes an Ogg Opus file.
type opusSound struct {
	packets []opus.Packet
	end     int64 // position of the end in samples; 0: unknown
	skip    int64 // number of samples at the beginning that players skip
}

// readOpus reads an Ogg Opus file up to the first page that is damaged.
func readOpus(sound []byte) (o opusSound) {
	o.end, o.skip = opus.Scan(bytes.NewReader(sound), func(p opus.Packet) {
		o.packets = append(o.packets, p)
	})
	return o
}

// seconds returns the length of the sound in seconds, rounded up, or 0 if it is unknown or longer
// than a day.
func (o opusSound) seconds() int {
	const longest = 24 * 60 * 60
	n := (o.end - o.skip + opus.Rate - 1) / opus.Rate
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
		all += p.Samples
	}
	if all == 0 {
		return ""
	}
	var size, length [points]float64
	at := 0
	for _, p := range o.packets {
		for i := at * points / all; i <= min((at+p.Samples)*points/all, points-1); i++ {
			size[i] += float64(p.Bytes)
			length[i] += float64(p.Samples)
		}
		at += p.Samples
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

// Package opus measures the sound in Ogg Opus files, the format of voice messages. It reads the
// pages of a file and decodes no sound.
package opus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
)

// Rate is the unit of positions and lengths: samples per second, whatever the sample rate.
const Rate = 48_000

// A Packet describes one packet of sound: its size in bytes, and its length in samples.
type Packet struct{ Bytes, Samples int }

// Scan reads a file up to its end or the first damaged page, and calls each for its packets. end is
// the position of the end in samples; 0: unknown. skip is the number of samples at the beginning
// that players skip.
func Scan(file io.Reader, each func(Packet)) (end, skip int64) {
	const header = 27 // bytes of a page's header, before the sizes of its segments
	in := bufio.NewReader(file)
	read := func(p []byte) bool {
		_, err := io.ReadFull(in, p)
		return err == nil
	}
	var page [header]byte
	var sizes, segment [255]byte
	first := make([]byte, 0, 12) // beginning of the packet that the next segment continues
	size, n := 0, 0              // its bytes so far; number of packets, including the two headers
	for read(page[:]) && bytes.HasPrefix(page[:], []byte("OggS")) {
		segments := sizes[:page[header-1]]
		if !read(segments) {
			break
		}
		for _, s := range segments {
			if !read(segment[:s]) {
				return end, skip
			}
			first = append(first, segment[:min(int(s), cap(first)-len(first))]...)
			if size += int(s); s == 255 { // the packet goes on
				continue
			}
			switch n++; {
			case n == 1 && size >= 12 && bytes.HasPrefix(first, []byte("OpusHead")):
				skip = int64(binary.LittleEndian.Uint16(first[10:]))
			case n > 2 && size > 0:
				each(Packet{size, packetSamples(first[:min(size, 2)])})
			}
			first, size = first[:0], 0
		}
		if at := int64(binary.LittleEndian.Uint64(page[6:])); at > 0 { // -1: no packet ends here
			end = at
		}
	}
	return end, skip
}

// Seconds returns the length of all sound in a file, rounded up, or 0 if the file is not Ogg Opus.
// It adds up the packets, because the positions that the file states may be false.
func Seconds(file io.Reader) int {
	all := 0
	Scan(file, func(p Packet) { all += p.Samples })
	return (all + Rate - 1) / Rate
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

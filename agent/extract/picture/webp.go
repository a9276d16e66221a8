package picture

import (
	"bytes"
	"encoding/binary"
)

// stillWebP returns the first frame of an animated WebP as a file of its own, and any other file
// unchanged.
func stillWebP(file []byte) []byte {
	const riff, head = 12, 8 // bytes before the first chunk, and of the head of a chunk
	for pos := riff; pos+head <= len(file); {
		body := file[pos+head:]
		size := binary.LittleEndian.Uint32(file[pos+4:])
		if int64(size) > int64(len(body)) {
			break
		}
		if name := string(file[pos : pos+4]); name == "ANMF" {
			return frameWebP(file[:riff], body[:size])
		}
		pos += head + int(size) + int(size%2) // chunks have an even length
	}
	return file
}

// frameWebP returns a file with the content of a frame. A frame begins with its position, its size
// less one, and its duration.
func frameWebP(riff, frame []byte) []byte {
	const begin, size, end, alpha = 6, 6, 16, 0x10
	if len(frame) < end {
		return nil
	}
	still := append(bytes.Clone(riff), "VP8X\x0a\x00\x00\x00\x00\x00\x00\x00"...)
	if bytes.HasPrefix(frame[end:], []byte("ALPH")) {
		still[len(still)-4] = alpha
	}
	still = append(append(still, frame[begin:begin+size]...), frame[end:]...)
	binary.LittleEndian.PutUint32(still[4:], uint32(len(still)-8))
	return still
}

package picture

import (
	"bytes"
	"encoding/binary"
)

// A jpegScan describes a JPEG file, from its segments.
type jpegScan struct {
	orientation int  // EXIF orientation, 0 if there is none
	progressive bool // the picture is stored in several passes
	passes      int  // counted up to maxPasses + 1
}

// scanJPEG reads the segments of a JPEG file. It does not decode the data between them.
func scanJPEG(file []byte) (s jpegScan) {
	const app1, sos, eoi, firstSOF, lastSOF = 0xe1, 0xda, 0xd9, 0xc0, 0xcf
	for pos := 2; pos+4 <= len(file) && file[pos] == 0xff; {
		marker := file[pos+1]
		if marker == 0xff { // padding
			pos++
			continue
		}
		size := int(binary.BigEndian.Uint16(file[pos+2:]))
		end := pos + 2 + size
		// The size includes the two bytes in which it is stored.
		if marker == eoi || size < 2 || end > len(file) {
			break
		}
		switch body := file[pos+4 : end]; {
		case marker == app1 && s.orientation == 0:
			s.orientation = exifOrientation(body)
		case marker >= firstSOF && marker <= lastSOF && marker%4 == 2: // SOF2, 6, 10, 14
			s.progressive = true
		case marker == sos:
			if s.passes++; s.passes > maxPasses {
				return s
			}
			end = nextMarker(file, end)
		}
		pos = end
	}
	return s
}

// nextMarker returns the end of the data at pos, whose length is not stored.
func nextMarker(file []byte, pos int) int {
	for {
		i := bytes.IndexByte(file[pos:], 0xff)
		if i < 0 || pos+i+1 >= len(file) {
			return len(file)
		}
		pos += i
		if next := file[pos+1]; next != 0 && (next < 0xd0 || next > 0xd7) { // not a restart marker
			return pos
		}
		pos += 2
	}
}

// exifOrientation returns the orientation in an APP1 segment, or 0. The segment has the TIFF
// format: a byte order, and a list of entries of 12 bytes.
func exifOrientation(segment []byte) int {
	const tagOrientation, entrySize = 0x0112, 12
	tiff, ok := bytes.CutPrefix(segment, []byte("Exif\x00\x00"))
	if !ok || len(tiff) < 8 {
		return 0
	}
	var order binary.ByteOrder = binary.BigEndian
	if string(tiff[:2]) == "II" {
		order = binary.LittleEndian
	}
	first := order.Uint32(tiff[4:])
	if uint64(first)+2 > uint64(len(tiff)) {
		return 0
	}
	list := tiff[first:]
	count := int(order.Uint16(list))
	for list = list[2:]; count > 0 && len(list) >= entrySize; count-- {
		if order.Uint16(list) == tagOrientation {
			if v := int(order.Uint16(list[8:])); v <= 8 {
				return v
			}
			return 0
		}
		list = list[entrySize:]
	}
	return 0
}

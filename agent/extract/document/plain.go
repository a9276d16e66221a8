package document

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// plain reads plain text.
func (f *file) plain() error {
	// UTF-16 takes at most twice as many bytes as UTF-8, so this is enough for limit bytes of text.
	want := min(f.size, 2*int64(f.out.limit)+headSize)
	raw, err := io.ReadAll(io.NewSectionReader(f.r, 0, want))
	if err != nil {
		return err
	}
	if want < f.size {
		raw = raw[:len(raw)-incomplete(raw)]
	}
	text, ok := decode(raw)
	if !ok {
		return ErrUnsupported
	}
	f.out.raw(text)
	f.out.missing += f.size - int64(len(raw))
	return nil
}

// incomplete returns the number of bytes of an incomplete UTF-8 character at the end of raw.
func incomplete(raw []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(raw); i++ {
		if utf8.RuneStart(raw[len(raw)-i]) {
			if utf8.FullRune(raw[len(raw)-i:]) {
				return 0
			}
			return i
		}
	}
	return 0
}

// decode returns raw as UTF-8. It returns false if raw is not text.
func decode(raw []byte) (string, bool) {
	switch {
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		raw = raw[3:]
	case bytes.HasPrefix(raw, []byte("\xff\xfe")):
		return decodeUTF16(raw[2:], binary.LittleEndian), true
	case bytes.HasPrefix(raw, []byte("\xfe\xff")):
		return decodeUTF16(raw[2:], binary.BigEndian), true
	}
	if isBinary(raw) {
		return "", false
	}
	if utf8.Valid(raw) {
		return string(raw), true
	}
	return latin1(raw), true
}

// isBinary reports whether raw has control characters that do not occur in text.
func isBinary(raw []byte) bool {
	control := 0
	for _, c := range raw {
		switch {
		case c == 0:
			return true
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != 0x1b && c != '\b':
			control++
		}
	}
	return control > len(raw)/100
}

func decodeUTF16(raw []byte, order binary.ByteOrder) string {
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = order.Uint16(raw[2*i:])
	}
	return string(utf16.Decode(units))
}

// latin1 decodes text that is probably Windows-1252. Most text that claims to be Latin-1 is in this
// superset of it.
func latin1(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw) + len(raw)/8)
	for _, c := range raw {
		if c >= 0x80 && c < 0xa0 {
			b.WriteRune(windows1252[c-0x80])
			continue
		}
		b.WriteRune(rune(c))
	}
	return b.String()
}

// windows1252 has the characters of the codes 0x80 to 0x9f.
var windows1252 = [32]rune{
	'€', 0xfffd, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0xfffd, 'Ž', 0xfffd,
	0xfffd, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0xfffd, 'ž', 'Ÿ',
}

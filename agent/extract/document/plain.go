package document

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// plain reads plain text.
func (f *file) plain() error {
	// UTF-16 takes at most twice as many bytes as UTF-8, so this is enough for limit bytes of text.
	raw := f.raw
	if want := 2*f.out.limit + headSize; want < len(raw) {
		raw = raw[:want]
		raw = raw[:want-incomplete(raw)]
	}
	text, ok := decode(raw)
	if !ok {
		return ErrUnsupported
	}
	f.out.raw(text)
	f.out.missing += int64(len(f.raw) - len(raw))
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
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	switch {
	case bytes.HasPrefix(raw, []byte("\xff\xfe")), bytes.HasPrefix(raw, []byte("\xfe\xff")):
		text, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(raw)
		return string(text), err == nil
	case isBinary(raw):
		return "", false
	case utf8.Valid(raw):
		return string(raw), true
	}
	// Most text that claims to be Latin-1 is in Windows-1252, a superset of it.
	text, err := charmap.Windows1252.NewDecoder().Bytes(raw)
	return string(text), err == nil
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

package document

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"gateway/store/plaintext"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
)

// plain reads plain text.
func (f *file) plain() error {
	// UTF-16 takes at most twice as many bytes as UTF-8, so this is enough for limit bytes of text.
	raw := f.raw
	if want := 2*f.out.limit + headSize; want < len(raw) {
		raw = WholeRunes(raw[:want])
	}
	text, ok := decode(raw)
	if !ok {
		return ErrUnsupported
	}
	f.out.add(text)
	f.out.missing += int64(len(f.raw) - len(raw))
	return nil
}

// WholeRunes returns raw without an incomplete UTF-8 character at its end.
func WholeRunes(raw []byte) []byte {
	for i := len(raw) - 1; i >= max(0, len(raw)-utf8.UTFMax); i-- {
		if utf8.RuneStart(raw[i]) {
			if !utf8.FullRune(raw[i:]) {
				return raw[:i]
			}
			break
		}
	}
	return raw
}

// decode returns raw as UTF-8. It returns false if raw is not text.
func decode(raw []byte) (string, bool) {
	isUTF16 := bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff"))
	if !isUTF16 && isBinary(raw) {
		return "", false
	}
	return Decode(raw, ""), true
}

// Decode returns text as UTF-8. The encoding comes from a Content-Type header, a byte order mark, a
// meta element or an XML declaration. If neither of the first two is there, valid UTF-8 is taken as
// UTF-8, unless the text declares ISO-2022-JP, whose characters are escape sequences in ASCII. Text
// without any of these is in Windows-1252, a superset of Latin-1, or in UTF-8 with some damage.
func Decode(raw []byte, contentType string) string {
	enc, name, certain := charset.DetermineEncoding(raw, contentType)
	escaped := name == "iso-2022-jp" && bytes.IndexByte(raw, 0x1b) >= 0
	if !certain && !escaped && utf8.Valid(raw) {
		return strings.TrimPrefix(string(raw), "\ufeff")
	}
	if declared := declaredEncoding(raw); declared != nil && !certain {
		enc = declared
	} else if !certain && name == "windows-1252" && isMostlyUTF8(raw) {
		enc = encoding.Nop
	}
	text, err := enc.NewDecoder().Bytes(raw)
	if err != nil {
		text = raw
	}
	return strings.TrimPrefix(strings.ToValidUTF8(string(text), "\ufffd"), "\ufeff")
}

// isMostlyUTF8 reports whether more characters of raw are UTF-8 than bytes are not. ASCII does not
// count. The log of several programs can have a few bytes in another encoding.
func isMostlyUTF8(raw []byte) bool {
	sum := 0
	for len(raw) > 0 {
		_, n := utf8.DecodeRune(raw)
		switch {
		case n > 1:
			sum++
		case raw[0] >= utf8.RuneSelf:
			sum--
		}
		raw = raw[n:]
	}
	return sum > 0
}

// xmlEncoding matches an XML declaration that names an encoding.
var xmlEncoding = plaintext.Pattern(
	`^\s*<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']`)

// declaredEncoding returns the encoding that the XML declaration at the beginning of raw names. It
// returns nil if there is none, or if the encoding is not known or is one of several bytes per
// character, in which the declaration could not be read.
func declaredEncoding(raw []byte) encoding.Encoding {
	m := xmlEncoding().FindSubmatch(raw[:min(len(raw), 1024)])
	if m == nil {
		return nil
	}
	e, name := charset.Lookup(string(m[1]))
	if strings.HasPrefix(name, "utf-16") {
		return nil
	}
	return e
}

// isBinary reports whether raw has control characters that do not occur in text. One NUL byte is
// enough. One in a hundred bytes may be another such character. Escape and backspace count as text:
// the output of terminals has them.
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

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// NoArguments is the schema of a tool without arguments. OpenAI requires the properties.
var NoArguments = json.RawMessage(`{"type":"object","properties":{}}`)

// A CacheControl tells the provider to cache the request up to the end of the part that has it.
type CacheControl struct {
	Type string `json:"type"`
}

// Ephemeral is Anthropic's cache of five minutes. Each use extends the time.
var Ephemeral = &CacheControl{"ephemeral"}

// EncodePlain encodes v without escaping "<", ">" and "&". size is the expected length in bytes.
func EncodePlain(v any, size int) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(size)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// WithFields encodes the struct v together with the extra fields, sorted by name. It leaves out
// extra fields named in own. size is the expected length in bytes.
func WithFields(
	v any, extra map[string]json.RawMessage, size int, own ...string,
) ([]byte, error) {
	b, err := EncodePlain(v, size)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if slices.Contains(own, name) {
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, ','), key...), ':'), extra[name]...)
	}
	return append(b, '}'), nil
}

// AppendText appends s as JSON to b, like [EncodePlain]. It is faster, because each request has all
// texts of a conversation.
func AppendText(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		text, err := EncodePlain(s, len(s))
		if err != nil {
			panic(err) // strings can always be encoded
		}
		return append(b, text...)
	}
	b = append(b, '"')
	for {
		n := 0
		for n < len(s) && !special[s[n]] {
			n++
		}
		if b = append(b, s[:n]...); n == len(s) {
			return append(b, '"')
		}
		r, size := utf8.DecodeRuneInString(s[n:])
		s = s[n+size:]
		switch i := strings.IndexRune(shortEscaped, r); {
		case i >= 0:
			b = append(b, '\\', shortEscapes[i])
		case r < ' ', r == '\u2028', r == '\u2029': // the last two end a line in JavaScript
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
}

// shortEscaped are the characters with an escape of two characters in JSON. The second one is in
// shortEscapes.
const (
	shortEscaped = "\"\\\b\f\n\r\t"
	shortEscapes = `"\bfnrt`
)

// special holds the bytes with which a character begins that JSON may have to escape.
var special = func() (set [256]bool) {
	for c := range ' ' {
		set[c] = true
	}
	set['"'], set['\\'], set["\u2028"[0]] = true, true, true
	return set
}()

package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
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

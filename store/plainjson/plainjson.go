// Package plainjson encodes JSON that models and people read: <, > and & stand for themselves.
package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is [json.Marshal] without escapes of HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Text returns v as JSON. It panics if v can't be encoded; strings and parsed JSON always can.
func Text(v any) string {
	text, err := Marshal(v)
	if err != nil {
		panic("plainjson: " + err.Error())
	}
	return string(text)
}

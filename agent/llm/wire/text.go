package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// TextOf returns a string that some providers send in another form: null, a list of parts with
// text, or an object.
func TextOf(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"':
		if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 {
			return string(plain)
		}
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	case raw[0] == '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &parts) == nil {
			var b strings.Builder
			for _, p := range parts {
				b.WriteString(p.Text)
			}
			return b.String()
		}
	}
	return string(raw)
}

// IsEmpty reports whether a JSON value is missing or empty.
func IsEmpty(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// ContainsAny reports whether s contains at least one of the parts.
func ContainsAny(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// IgnoreTypes returns the error of reading JSON, or nil if some values only have other types than
// wanted. The other values were read.
func IgnoreTypes(err error) error {
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
		return nil
	}
	return err
}

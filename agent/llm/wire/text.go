package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// TextOf returns a string that some providers send as something else: as null, as a list of parts
// with a text each, or as an object.
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

// IsEmpty reports whether a value says nothing.
func IsEmpty(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// ContainsAny reports whether s contains one of the parts.
func ContainsAny(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

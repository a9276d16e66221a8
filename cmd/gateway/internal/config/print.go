package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/store/plainjson"
)

// TOML returns the configuration as an equivalent TOML file with comments that give the origin of
// each value. It replaces credentials by a comment, but keeps references. If all is false, it
// omits default values.
func (e *Explanation) TOML(all bool) string {
	var b strings.Builder
	for _, t := range e.Tables {
		var lines []string
		for _, s := range t.Settings {
			if all || s.Origin != originDefault {
				lines = append(lines, s.line())
			}
		}
		if len(lines) == 0 && !t.named {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[%s]\n", t.Name())
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// Name returns the name of the table in the form between the brackets.
func (t Table) Name() string {
	parts := make([]string, len(t.Path))
	for i, part := range t.Path {
		parts[i] = quoteKey(part)
	}
	return strings.Join(parts, ".")
}

// MarshalJSON returns an object that contains the settings of the table.
func (t Table) MarshalJSON() ([]byte, error) {
	type value struct {
		Value  any    `json:"value"`
		Secret bool   `json:"redacted,omitempty"`
		Origin string `json:"origin"`
	}
	settings := make(map[string]value)
	for _, s := range t.Settings {
		settings[s.Key] = value{s.Value, s.Hidden, s.Origin}
	}
	return json.Marshal(struct {
		Table    string           `json:"table"`
		Settings map[string]value `json:"settings"`
	}{t.Name(), settings})
}

// line returns the setting as a line of TOML.
func (s Setting) line() string {
	if s.Hidden {
		return fmt.Sprintf("# %s: redacted, from %s", quoteKey(s.Key), s.Origin)
	}
	return fmt.Sprintf("%s = %s # %s", quoteKey(s.Key), literal(s.Value), s.Origin)
}

// literal formats v as TOML.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []string:
		list := make([]string, len(v))
		for i, s := range v {
			list[i] = quote(s)
		}
		return "[" + strings.Join(list, ", ") + "]"
	case json.RawMessage:
		var decoded any
		if err := json.Unmarshal(v, &decoded); err != nil {
			return quote(string(v))
		}
		return literal(decoded)
	case map[string]any:
		fields := make([]string, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fields = append(fields, quoteKey(key)+" = "+literal(v[key]))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		list := make([]string, len(v))
		for i, e := range v {
			list[i] = literal(e)
		}
		return "[" + strings.Join(list, ", ") + "]"
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	default: // an integer or a bool
		return fmt.Sprint(v)
	}
}

// quote formats s as a basic string of TOML. It has the same escapes as JSON, but for DEL.
func quote(s string) string {
	return strings.ReplaceAll(plainjson.Text(s), "\x7f", `\u007F`)
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func quoteKey(s string) string {
	if bareKey.MatchString(s) {
		return s
	}
	return quote(s)
}

// shortDuration formats d without trailing zero units, such as "15m".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/store/plainjson"
	"gateway/store/plaintext"
)

// An Explanation is a configuration with the origin of each value. It contains no credentials.
type Explanation struct {
	Config *Config `json:"-"`
	Tables []Table

	Variables []string // environment variables with an effect
	Ignored   []string // GATEWAY_ variables without an effect
	Literal   bool     // the file itself contains credentials
	Warnings  []string // results of [Config.Warnings] with their places
}

// A Table is a table of an [Explanation].
type Table struct {
	Path     []string
	Settings []Setting

	named bool // its header was written; that alone can have an effect
}

// A Setting is a key of a [Table] with its value.
type Setting struct {
	Key    string
	Value  any    // string, number, bool or list of strings; a secret's reference
	Hidden bool   // the value is secret
	Origin string // "default", "FILE:LINE", "variable NAME" or similar
}

// originDefault is the origin of a built-in default.
const originDefault = "default"

// origins says where the values of a configuration come from.
type origins struct {
	places     places
	usual      source            // settings from usual variables such as OPENAI_API_KEY
	references map[string]string // result of [referencesIn]
	variables  map[string]bool   // names of all environment variables; true if it is not empty
}

// namesOf returns origins.variables. It omits the values, which can be credentials.
func namesOf(vars map[string]string) map[string]bool {
	names := make(map[string]bool, len(vars))
	for name, value := range vars {
		names[name] = value != ""
	}
	return names
}

// Explain returns the configuration with the origin of each value. c comes from [Load] or one of
// its variants.
func (c *Config) Explain() *Explanation {
	e := &explainer{origins: c.origins, secrets: c.Secrets(), defaults: readDefaults(), config: c,
		used: make(map[string]bool)}
	e.table(reflect.ValueOf(*c), nil)
	for name := range e.variables {
		if strings.HasPrefix(name, variablePrefix) && !e.used[name] {
			e.Ignored = append(e.Ignored, name)
		}
	}
	slices.Sort(e.Ignored)
	for _, d := range c.warnings() {
		e.Warnings = append(e.Warnings,
			problem{at: e.places.of(d.path), key: strings.Join(d.path, "."), text: d.text}.Error())
	}
	e.Config, e.Variables = c, slices.Sorted(maps.Keys(e.used))
	return &e.Explanation
}

// An explainer builds an [Explanation].
type explainer struct {
	Explanation
	origins
	config   *Config
	secrets  []string
	defaults source
	used     map[string]bool // names of used variables
}

// table adds the table v at path, and then the tables below it.
func (e *explainer) table(v reflect.Value, path []string) {
	t := Table{Path: path}
	for key, child := range children(v) {
		if !(member{typ: child.Type()}).table() {
			t.Settings = append(t.Settings, e.setting(append(slices.Clip(path), key), child))
		}
	}
	if len(path) == 2 && slices.Contains(entries, path[0]) {
		_, builtin := e.defaults.table(path[0])[path[1]]
		t.named = !builtin
	}
	if len(t.Settings) > 0 || t.named {
		e.Tables = append(e.Tables, t)
	}
	for key, child := range children(v) {
		if (member{typ: child.Type()}).table() {
			e.table(child, append(slices.Clip(path), key))
		}
	}
}

// setting returns the Setting for a value.
func (e *explainer) setting(path []string, v reflect.Value) Setting {
	joined := strings.Join(path, delimiter)
	s := Setting{Key: path[len(path)-1], Origin: e.origin(path)}
	switch value := v.Interface().(type) {
	case Secret:
		s.Value, s.Hidden = e.reference(joined)
		e.Literal = e.Literal || s.Hidden && e.places[joined].file != ""
		return s
	case []Secret:
		return e.secretList(s, joined, len(value))
	case time.Duration:
		s.Value = shortDuration(value)
	case slog.Level:
		s.Value = strings.ToLower(value.String())
	case []string:
		s.Value = append([]string{}, value...) // an empty list is not null
		s.Hidden = slices.ContainsFunc(value, e.sensitive)
	case JSON:
		s.Hidden = e.sensitive(string(value))
		s.Value = json.RawMessage(value)
	case string:
		s.Value = value
		s.Hidden = e.sensitive(value)
	default:
		s.Value = value
	}
	if s.Hidden {
		s.Value = ""
	}
	return s
}

// secretList completes the Setting for a list of secrets. Its value is the list of references. If
// a secret is not a reference, the value is hidden.
func (e *explainer) secretList(s Setting, path string, n int) Setting {
	references := []string{}
	for i := range n {
		reference, literal := e.reference(path + delimiter + strconv.Itoa(i))
		if literal {
			s.Value, s.Hidden = "", true
			e.Literal = e.Literal || e.places[path].file != ""
			return s
		}
		references = append(references, reference)
	}
	s.Value = references
	return s
}

// reference returns the reference that was written for a secret, or whether the secret itself was.
func (e *explainer) reference(path string) (reference string, literal bool) {
	reference, written := e.references[path]
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		e.used[name] = true
	}
	return reference, written && reference == ""
}

// origin returns where the value at path was written.
func (e *explainer) origin(path []string) string {
	at := e.places[strings.Join(path, delimiter)]
	switch {
	case at.variable != "":
		e.used[at.variable] = true
		return "variable " + at.variable
	case at.file != "":
		return at.String()
	}
	if name := e.usualVariable(path); name != "" {
		e.used[name] = true
		return "variable " + name
	}
	if slices.Equal(path, []string{"agent", "model"}) && e.config.Agent.Model != "demo" {
		return "chosen, because none is named"
	}
	return originDefault
}

// usualVariable returns the usual variable, such as OPENAI_MODEL, that set the value at path.
func (o origins) usualVariable(path []string) string {
	if len(path) != 3 {
		return ""
	}
	t, _ := o.usual.table(path[0])[path[1]].(map[string]any)
	if _, ok := t[path[2]]; !ok {
		return ""
	}
	credential, _ := cmp.Or(t["key"], t["token"]).(string)
	name := strings.TrimPrefix(credential, "env:")
	if path[2] == "model" || path[2] == "base_url" {
		own := strings.TrimSuffix(name, "API_KEY") + strings.ToUpper(path[2])
		if o.variables[own] {
			return own
		}
	}
	return name
}

// minSearched is the minimum length, in bytes, of a credential that is searched for in other
// values. A shorter one would match by chance.
const minSearched = 6

// sensitive reports whether a value that is not a [Secret] contains a credential.
func (e *explainer) sensitive(s string) bool {
	for _, secret := range e.secrets {
		if len(secret) >= minSearched && strings.Contains(s, secret) {
			return true
		}
	}
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return false
	}
	_, has := u.User.Password()
	return has
}

// referencesIn returns the references to secrets in c, by path. A secret that is not a reference
// has the value "".
func referencesIn(c *Config) map[string]string {
	list := make(map[string]string)
	eachSecret(reflect.ValueOf(*c), nil, func(path []string, s Secret) {
		text := s.Reveal()
		if text == "" {
			return
		}
		if !isReference(text) {
			text = ""
		}
		list[strings.Join(path, delimiter)] = text
	})
	return list
}

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
		fmt.Fprintf(&b, "[%s]\n", DottedKey(t.Path))
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
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
	}{DottedKey(t.Path), settings})
}

// line returns the setting as a line of TOML.
func (s Setting) line() string {
	if s.Hidden {
		return fmt.Sprintf("# %s: redacted, from %s", quoteKey(s.Key), s.Origin)
	}
	return fmt.Sprintf("%s = %s # %s", quoteKey(s.Key), FormatTOML(s.Value), s.Origin)
}

// FormatTOML returns a value in the form of TOML.
func FormatTOML(v any) string {
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
		return FormatTOML(decoded)
	case map[string]any:
		fields := make([]string, 0, len(v))
		for key, value := range Sorted(v) {
			fields = append(fields, quoteKey(key)+" = "+FormatTOML(value))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		list := make([]string, len(v))
		for i, e := range v {
			list[i] = FormatTOML(e)
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

var bareKey = plaintext.Pattern(`^[A-Za-z0-9_-]+$`)

func quoteKey(s string) string {
	if bareKey().MatchString(s) {
		return s
	}
	return quote(s)
}

// DottedKey returns the path of a key or a table in the form of TOML.
func DottedKey(path []string) string {
	var keys []string
	for _, key := range path {
		keys = append(keys, quoteKey(key))
	}
	return strings.Join(keys, ".")
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

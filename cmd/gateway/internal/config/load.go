package config

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// template is the name of a defaults table that applies to all tables beside it.
const template = "NAME"

// entries lists the tables that contain a table for each name.
var entries = []string{"models", "channels", "tools", "roots", "mcp", "hooks",
	"personas", "policies"}

// A loader merges the sources of one [Load] into a [Config] and collects the problems.
type loader struct {
	vars     map[string]string // the environment
	places   map[string]place  // by path, joined with delimiter
	problems []problem
	written  []string // models in the file or in GATEWAY_ variables
	usual    source   // settings from usual variables such as OPENAI_API_KEY

	references map[string]string // result of [referencesIn]

	tolerant bool // ignore mistakes where possible
}

func newLoader(vars map[string]string) *loader {
	return &loader{vars: vars, places: make(map[string]place)}
}

// parse returns the configuration made from the file content src and the environment.
func (l *loader) parse(name string, src []byte) (*Config, error) {
	if l.tolerant {
		src = l.readable(name, src)
	}
	sources := l.read(name, src)
	c, err := merge(sources)
	if err != nil {
		l.report(problem{text: err.Error()}) // checkTable missed a mistake
		return nil, joinProblems(l.problems)
	}
	l.references = referencesIn(c)
	l.finish(c)
	l.validate(c)
	for _, p := range l.problems {
		switch {
		case p.secret:
			c.unresolved = append(c.unresolved, p)
		case l.isTolerable(p):
			c.mistakes = append(c.mistakes, p)
		default:
			return nil, joinProblems(l.problems)
		}
	}
	// A mistake that is ignored may have left the zone unknown.
	c.Gateway.Location = cmp.Or(c.Gateway.Location, time.Local)
	return c, nil
}

// read returns all sources. Later sources override earlier ones.
func (l *loader) read(name string, src []byte) []source {
	defaults := readDefaults()
	usual := source(shorthand(l.vars))
	file := l.readFile(name, src)

	known := source{}
	for _, key := range entries {
		names := map[string]any{}
		for _, s := range []source{defaults, usual, file} {
			maps.Copy(names, s.table(key))
		}
		delete(names, template)
		known[key] = names
	}
	vars := l.readEnvironment(known)

	for _, s := range []source{file, vars} {
		l.written = slices.AppendSeq(l.written, maps.Keys(s.table("models")))
		for _, platform := range []string{"telegram", "discord"} {
			if hasOwn(s, platform) {
				delete(usual.table("channels"), platform)
			}
		}
	}
	l.usual = usual
	slices.Sort(l.written)
	l.written = slices.Compact(l.written)
	return []source{defaults, usual, file, vars}
}

// hasOwn reports whether s has an account of a platform with a different name. That account may
// use the token in the usual variable, and only one connection may receive a bot's messages.
func hasOwn(s source, platform string) bool {
	for name, v := range s.table("channels") {
		if t, ok := v.(map[string]any); ok && t["type"] == platform && name != platform {
			return true
		}
	}
	return false
}

// merge returns the configuration made from sources. Later sources override earlier ones.
func merge(sources []source) (*Config, error) {
	tables := expandTemplates(sources)
	for _, s := range sources {
		overlay(tables, s)
	}
	var c Config
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &c, TagName: "key", ErrorUnused: true,
		MatchName: func(key, field string) bool { return key == field },
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc()),
	})
	if err == nil {
		err = decoder.Decode(tables)
	}
	return &c, err
}

// overlay sets the keys of from in to. It merges tables key by key.
func overlay(to, from map[string]any) {
	for key, v := range from {
		above, isTable := v.(map[string]any)
		below, wasTable := to[key].(map[string]any)
		if isTable && wasTable {
			overlay(below, above)
		} else {
			to[key] = v
		}
	}
}

// expandTemplates removes the templates from the defaults, which are the first source. It returns
// a source with a copy of the template for each table to which it applies.
func expandTemplates(sources []source) source {
	expanded := source{}
	for _, key := range entries {
		defaults := sources[0].table(key)
		values, _ := defaults[template].(map[string]any)
		delete(defaults, template)
		tables := map[string]any{}
		for _, s := range sources {
			for name := range s.table(key) {
				t := maps.Clone(values)
				if key == "channels" && typeOf(name, sources) == "whatsapp" {
					t["streaming"] = false // WhatsApp marks each edit of a message
				}
				tables[name] = t
			}
		}
		expanded[key] = tables
	}
	return expanded
}

// typeOf returns the type of the account with a name.
func typeOf(name string, sources []source) string {
	for _, s := range slices.Backward(sources) {
		t, _ := s.table("channels")[name].(map[string]any)
		if typ, ok := t["type"].(string); ok && typ != "" {
			return typ
		}
	}
	return name
}

// report adds a problem. It keeps only the first problem of a key, because the others follow from
// it.
func (l *loader) report(p problem) {
	same := func(other problem) bool { return p.key != "" && other.key == p.key }
	if !slices.ContainsFunc(l.problems, same) {
		l.problems = append(l.problems, p)
	}
}

// problem reports a problem of the key at path. Its place is the key, or the nearest enclosing
// table that was written.
func (l *loader) problem(path []string, text string) {
	l.report(problem{at: l.place(path), key: strings.Join(path, "."), text: text})
}

// place returns the place of the key at path, or of the nearest enclosing table that was written.
func (l *loader) place(path []string) (at place) {
	for n := len(path); n > 0 && at == (place{}); n-- {
		at = l.places[strings.Join(path[:n], delimiter)]
	}
	return at
}

// LoadLenient is [LoadWithoutSecrets] for commands that need little more than the home.
// It ignores keys with a mistake and lines that are not TOML. A mistake that leaves the home or
// the database unclear is still an error.
func LoadLenient(path string, environ []string) (*Config, error) {
	l := newLoader(variables(environ))
	l.tolerant = true
	return l.load(path)
}

// Mistakes returns an error with one line for each mistake that [LoadLenient] ignored, or
// nil if there are none.
func (c *Config) Mistakes() error { return joinProblems(c.mistakes) }

// MistakesExcept is like [Config.Mistakes], but leaves out the mistakes of the keys for which
// except returns true.
func (c *Config) MistakesExcept(except func(key string) bool) error {
	return joinProblems(slices.DeleteFunc(slices.Clone(c.mistakes), func(p problem) bool {
		return except(p.key)
	}))
}

// IsMistaken reports whether [LoadLenient] ignored something that may belong to a
// top-level table.
func (c *Config) IsMistaken(table string) bool {
	return slices.ContainsFunc(c.mistakes, func(p problem) bool {
		top, _, _ := strings.Cut(p.key, ".")
		return p.key == "" || top == table
	})
}

// tolerable lists the keys of [gateway] that do not affect where the data is.
var tolerable = []string{"gateway.name", "gateway.workspace", "gateway.timezone"}

// isTolerable reports whether a configuration with this problem can be used.
func (l *loader) isTolerable(p problem) bool {
	top, _, _ := strings.Cut(p.key, ".")
	switch {
	case !l.tolerant:
		return false
	case top == "gateway":
		return l.vars[homeVariable] != "" || slices.Contains(tolerable, p.key)
	}
	return top != "store"
}

// readable returns src with an empty line for each line that is not TOML. It reports those lines.
// The line numbers do not change.
func (l *loader) readable(name string, src []byte) []byte {
	rows := bytes.Split(src, []byte("\n"))
	for range 2 * len(rows) {
		src = bytes.Join(rows, []byte("\n"))
		probe := newLoader(l.vars)
		if probe.readFile(name, src) != nil {
			return src
		}
		p := probe.problems[0]
		row := min(max(p.at.line, 1), len(rows)) - 1
		if len(rows[row]) == 0 { // the mistake is elsewhere, so the last line is dropped
			row = len(rows) - 1
			rows = rows[:row]
			continue
		}
		if table := tableOfHome(rows[row]); table != "" {
			p.key = table
		}
		l.report(p)
		rows[row] = nil
	}
	return nil
}

// homeLine matches a line that may set the home or the database.
var homeLine = regexp.MustCompile(`^\s*\[?\s*(gateway|home|store|url)\b`)

// tableOfHome returns the table to which an invalid line belongs if the line may set the home or
// the database, else "".
func tableOfHome(line []byte) string {
	m := homeLine.FindSubmatch(line)
	switch {
	case m == nil:
		return ""
	case string(m[1]) == "store", string(m[1]) == "url":
		return "store"
	}
	return "gateway"
}

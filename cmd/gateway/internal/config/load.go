package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// template names the tables of the defaults that hold for every table beside them.
const template = "NAME"

// entries are the tables that have an entry for each name.
var entries = []string{"models", "channels", "tools", "roots", "mcp", "hooks"}

// A loader turns the sources of one [Load] into a [Config] and collects the problems.
type loader struct {
	vars     map[string]string // the environment
	places   map[string]place  // by path, joined with delimiter
	problems []problem
	written  []string // models that the file or a GATEWAY_ variable describes
	usual    source   // what the usual variables stand for

	references map[string]string // secrets that are written as a reference, by path

	forgiving bool // mistakes are passed over where that is possible
}

func newLoader(vars map[string]string) *loader {
	return &loader{vars: vars, places: make(map[string]place)}
}

// parse returns the configuration of a file with content src and of the environment.
func (l *loader) parse(name string, src []byte) (*Config, error) {
	if l.forgiving {
		src = l.readable(name, src)
	}
	sources := l.read(name, src)
	c, err := merge(sources)
	if err != nil {
		l.report(problem{text: err.Error()}) // checkTable has let something through
		return nil, joinProblems(l.problems)
	}
	l.references = referencesIn(c)
	l.finish(c)
	l.validate(c)
	for _, p := range l.problems {
		switch {
		case p.secret:
			c.unresolved = append(c.unresolved, p)
		case l.forgives(p):
			c.mistakes = append(c.mistakes, p)
		default:
			return nil, joinProblems(l.problems)
		}
	}
	c.forgive()
	return c, nil
}

// read returns all sources, the one that is overridden by all others first.
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

// hasOwn reports whether s has an account on a platform under a name of its own. It may well use
// the usual variable's token, and a bot can't be received for twice.
func hasOwn(s source, platform string) bool {
	for name, v := range s.table("channels") {
		if t, ok := v.(map[string]any); ok && t["type"] == platform && name != platform {
			return true
		}
	}
	return false
}

// merge returns the configuration that sources make, later ones over earlier ones.
func merge(sources []source) (*Config, error) {
	k := koanf.New(delimiter)
	for _, s := range append([]source{expandTemplates(sources)}, sources...) {
		if err := k.Load(s, nil); err != nil {
			return nil, err
		}
	}
	var c Config
	err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{
			TagName:     "koanf",
			ErrorUnused: true,
			MatchName:   func(key, field string) bool { return key == field },
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.StringToTimeDurationHookFunc(),
				mapstructure.TextUnmarshallerHookFunc(),
			),
		},
	})
	return &c, err
}

// expandTemplates takes the templates out of the defaults, the first of the sources,
// and returns a source with a copy for each table that they hold for.
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
					t["streaming"] = false // each edit would be marked as one
				}
				tables[name] = t
			}
		}
		expanded[key] = tables
	}
	return expanded
}

// typeOf returns the type of the account with the given name.
func typeOf(name string, sources []source) string {
	for _, s := range slices.Backward(sources) {
		t, _ := s.table("channels")[name].(map[string]any)
		if typ, ok := t["type"].(string); ok && typ != "" {
			return typ
		}
	}
	return name
}

// report notes a problem. Only the first one of a key counts: the others follow from it.
func (l *loader) report(p problem) {
	same := func(other problem) bool { return p.key != "" && other.key == p.key }
	if !slices.ContainsFunc(l.problems, same) {
		l.problems = append(l.problems, p)
	}
}

// problem notes a problem of the key at path, or of the nearest table around
// it that was written somewhere.
func (l *loader) problem(path []string, text string) {
	l.report(problem{at: l.place(path), key: strings.Join(path, "."), text: text})
}

// place returns where the key at path was written, or the nearest table around it.
func (l *loader) place(path []string) (at place) {
	for n := len(path); n > 0 && at == (place{}); n-- {
		at = l.places[strings.Join(path[:n], delimiter)]
	}
	return at
}

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gateway/store/plaintext"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// template is the name of a defaults table that applies to all tables beside it.
const template = "NAME"

// entries lists the tables that contain a table for each name.
var entries = []string{"models", "channels", "tools", "roots", "mcp", "hooks",
	"personas", "policies"}

// A loader makes a [Config] from its sources.
type loader struct {
	vars     map[string]string // the environment
	tolerant bool              // ignore mistakes where possible
	problems
}

func newLoader(vars map[string]string) *loader {
	return &loader{vars: vars, problems: problems{places: make(places)}}
}

// load reads the configuration file at path, see [Load].
func (l *loader) load(path string) (*Config, error) {
	optional := path == ""
	if optional {
		path = defaultPath(l.vars)
	}
	src, err := os.ReadFile(path)
	// A home that is not a folder is reported when it is opened.
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	switch {
	case err == nil, optional && missing:
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration file %s: check the path after -c", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("you may not read %s: run this command as the gateway's user, "+
			"as in \"sudo -u gateway gateway …\"", path)
	default:
		return nil, fmt.Errorf("config: %w", err)
	}
	c, err := l.parse(path, src)
	if c != nil {
		c.File, c.FileExists, c.content = path, !missing, len(src) > 0
	}
	return c, err
}

// parse returns the configuration made from the file content src and the environment.
func (l *loader) parse(name string, src []byte) (*Config, error) {
	src = DecodeText(src)
	if l.tolerant {
		src = readable(name, src, &l.problems)
	}
	all := l.read(name, src)
	c, err := merge(all)
	if err != nil {
		l.add(problem{text: err.Error()}) // checkTable missed a mistake
		return nil, joinProblems(l.list)
	}
	c.origins = origins{l.places, all.usual, referencesIn(c), namesOf(l.vars)}
	resolver{&l.problems, c, l.vars}.resolve(all.models())
	validator{&l.problems, c}.validate()
	for _, p := range l.list {
		switch {
		case p.secret:
			c.unresolved = append(c.unresolved, p)
		case l.isTolerable(p):
			c.mistakes = append(c.mistakes, p)
		default:
			return nil, joinProblems(l.list)
		}
	}
	// A mistake that is ignored may have left the zone unknown.
	c.Gateway.Location = cmp.Or(c.Gateway.Location, time.Local)
	return c, nil
}

// defaultPath returns the path of the configuration file in the data directory.
func defaultPath(vars map[string]string) string {
	home := cmp.Or(vars[homeVariable], vars["GATEWAY_GATEWAY__HOME"], "~/.gateway")
	home, err := expand(home, "", vars)
	if err != nil {
		return "config.toml" // parse reports the missing home with more context
	}
	return filepath.Join(home, "config.toml")
}

// sources has all sources of a configuration. Each overrides those before it.
type sources struct {
	defaults source
	usual    source // from usual variables such as OPENAI_API_KEY
	file     source
	vars     source // from GATEWAY_ variables
}

func (s sources) list() []source { return []source{s.defaults, s.usual, s.file, s.vars} }

// models returns the sorted names of the models in the file or in GATEWAY_ variables.
func (s sources) models() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.file.table("models"))),
		maps.Keys(s.vars.table("models")))
	slices.Sort(names)
	return slices.Compact(names)
}

// read reads all sources.
func (l *loader) read(name string, src []byte) sources {
	all := sources{defaults: readDefaults(), usual: shorthand(l.vars),
		file: readFile(name, src, &l.problems)}
	all.vars = readEnvironment(l.vars, all.list(), &l.problems)
	for platform := range tokenVariables {
		if hasOwn(all.file, platform) || hasOwn(all.vars, platform) {
			delete(all.usual.table("channels"), platform)
		}
	}
	return all
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

// merge returns the configuration made from all sources.
func merge(all sources) (*Config, error) {
	k := koanf.New(delimiter)
	for _, s := range append([]source{expandTemplates(all.list())}, all.list()...) {
		if err := k.Load(s, nil); err != nil {
			return nil, err
		}
	}
	var c Config
	err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "key", ErrorUnused: true,
		MatchName: func(key, field string) bool { return key == field },
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc()),
	}})
	return &c, err
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

// readable returns src with an empty line for each line that is not TOML. It reports those lines
// to found. The line numbers do not change.
func readable(name string, src []byte, found *problems) []byte {
	rows := bytes.Split(src, []byte("\n"))
	for range 2 * len(rows) {
		src = bytes.Join(rows, []byte("\n"))
		probe := problems{places: make(places)}
		if readFile(name, src, &probe) != nil {
			return src
		}
		p := probe.list[0]
		row := min(max(p.at.line, 1), len(rows)) - 1
		if len(rows[row]) == 0 { // the mistake is elsewhere, so the last line is dropped
			row = len(rows) - 1
			rows = rows[:row]
			continue
		}
		if table := tableOfHome(rows[row]); table != "" {
			p.key = table
		}
		found.add(p)
		rows[row] = nil
	}
	return nil
}

// homeLine matches a line that may set the home or the database.
var homeLine = plaintext.Pattern(`^\s*\[?\s*(gateway|home|store|url)\b`)

// tableOfHome returns the table to which an invalid line belongs if the line may set the home or
// the database, else "".
func tableOfHome(line []byte) string {
	m := homeLine().FindSubmatch(line)
	switch {
	case m == nil:
		return ""
	case string(m[1]) == "store", string(m[1]) == "url":
		return "store"
	}
	return "gateway"
}

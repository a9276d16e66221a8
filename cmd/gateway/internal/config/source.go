package config

import (
	_ "embed"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gateway/store/plaintext"

	"github.com/knadh/koanf/v2"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

//go:embed defaults.toml
var defaultsTOML []byte

const (
	variablePrefix = "GATEWAY_"
	homeVariable   = "GATEWAY_HOME"

	// delimiter joins the keys of a path. Valid keys don't contain it.
	delimiter = "/"
)

// A source is one validated source of configuration. It implements koanf.Provider.
type source map[string]any

// Read returns the tables of the source.
func (s source) Read() (map[string]any, error) { return s, nil }

// ReadBytes always returns an error. Koanf does not call it, because a source needs no parser.
func (s source) ReadBytes() ([]byte, error) { return nil, errors.ErrUnsupported }

// table returns the table with a key, or nil.
func (s source) table(key string) map[string]any { return s.at([]string{key}) }

// at returns the table at a path, or nil.
func (s source) at(path []string) map[string]any {
	t := map[string]any(s)
	for _, key := range path {
		t, _ = t[key].(map[string]any)
	}
	return t
}

// variables returns an environment as a map. A shell that reads a file of variables with the line
// ends of Windows leaves a carriage return at the end of each value.
func variables(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			vars[name] = strings.TrimRight(value, "\r\n")
		}
	}
	return vars
}

// readDefaults returns the built-in defaults.
func readDefaults() (tables source) {
	if err := toml.Unmarshal(defaultsTOML, &tables); err != nil {
		panic("config: defaults.toml: " + err.Error())
	}
	return tables
}

// DecodeText returns the text of a file as UTF-8 without a byte order mark. Editors and shells on
// Windows write such a mark, or UTF-16 with one.
func DecodeText(content []byte) []byte {
	text, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), content)
	if err != nil {
		return content // with a mark that nothing follows; the parser reports it
	}
	return text
}

// readFile parses src, the content of the file name, and records in found
// the line of each key.
func readFile(name string, src []byte, found *problems) source {
	var tables map[string]any
	err := toml.Unmarshal(src, &tables)
	if syntax, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := syntax.Position()
		text := strings.TrimPrefix(err.Error(), "toml: ")
		if unquoted().MatchString(text) {
			text += `; put a text in quotes, as in token = "123456789:AAE"`
		}
		found.add(problem{at: place{file: name, line: line}, text: text})
		return nil
	} else if err != nil {
		found.add(problem{at: place{file: name, line: 1}, text: err.Error()})
		return nil
	}
	for path, line := range lines(src) {
		found.places[path] = place{file: name, line: line}
	}
	return checkTable(root, nil, tables, found)
}

// unquoted matches the parser's errors about a text without quotes.
var unquoted = plaintext.Pattern(
	`expected newline|character U\+00[4-7][0-9A-F] '[a-zA-Z]' at start`)

// checkTable returns raw without the keys that m does not allow. It reports those keys.
func checkTable(
	m member, path []string, raw map[string]any, found *problems,
) map[string]any {
	checked := make(map[string]any, len(raw))
	for key, v := range raw {
		at := append(slices.Clip(path), key)
		child, err := m.child(key)
		if err != nil {
			found.report(at, err.Error())
			continue
		}
		if child.table() {
			table, ok := v.(map[string]any)
			if !ok {
				found.report(at, "want a table, ["+strings.Join(at, ".")+"]")
				continue
			}
			checked[key] = checkTable(child, at, table, found)
			continue
		}
		if v, err = child.check(v); err != nil {
			found.report(at, err.Error())
			continue
		}
		checked[key] = v
	}
	return checked
}

// lines returns, for each key of a valid TOML document, the line of its first occurrence.
func lines(doc []byte) map[string]int {
	index := make(map[string]int)
	var p unstable.Parser
	record := func(path []string, key unstable.Iterator) []string {
		path = slices.Clip(path)
		for key.Next() {
			path = append(path, string(key.Node().Data))
			joined := strings.Join(path, delimiter)
			if _, ok := index[joined]; !ok {
				index[joined] = p.Shape(key.Node().Raw).Start.Line
			}
		}
		return path
	}
	var recordValue func(table []string, n *unstable.Node)
	recordValue = func(table []string, n *unstable.Node) {
		path := record(table, n.Key())
		if v := n.Value(); v.Kind == unstable.InlineTable {
			for it := v.Children(); it.Next(); {
				recordValue(path, it.Node())
			}
		}
	}
	var table []string
	p.Reset(doc)
	for p.NextExpression() {
		if e := p.Expression(); e.Kind == unstable.KeyValue {
			recordValue(table, e)
		} else {
			table = record(nil, e.Key())
		}
	}
	return index
}

// readEnvironment returns the settings in GATEWAY_ variables. It ignores names without "__",
// except GATEWAY_HOME: Kubernetes sets GATEWAY_PORT and others for a service with the name
// "gateway".
func readEnvironment(vars map[string]string, others []source, found *problems) source {
	k := koanf.New(delimiter)
	for name, text := range Sorted(vars) {
		rest, ours := strings.CutPrefix(name, variablePrefix)
		if name == homeVariable && text != "" {
			rest = "GATEWAY__HOME"
		}
		if !ours || !strings.Contains(rest, "__") {
			continue
		}
		path, v, ok := checkVariable(name, strings.Split(rest, "__"), text, others, found)
		if !ok {
			continue
		}
		if err := k.Set(strings.Join(path, delimiter), v); err != nil {
			found.add(problem{at: place{variable: name}, text: err.Error()})
		}
	}
	return k.Raw()
}

// checkVariable returns the path and the value that a variable sets. If they are not valid, it
// reports that and returns false.
func checkVariable(
	name string, segments []string, text string, others []source, found *problems,
) (path []string, v any, ok bool) {
	m := root
	for _, segment := range segments {
		// Variables have upper-case names, and keys lower-case ones.
		key := strings.ToLower(segment)
		if m.typ.Kind() == reflect.Map {
			key = m.entry(segment, path, others)
		}
		path = append(path, key)
		var err error
		if !m.table() {
			err = errors.New("unknown key")
		} else {
			m, err = m.child(key)
		}
		if err != nil {
			found.add(problem{at: place{variable: name}, key: strings.Join(path, "."), text: err.Error()})
			return nil, nil, false
		}
	}
	found.places[strings.Join(path, delimiter)] = place{variable: name}
	if m.table() {
		found.report(path, "want a key of this table after another \"__\"")
		return nil, nil, false
	}
	v, err := m.check(m.fromText(text))
	if err != nil {
		found.report(path, err.Error())
	}
	return path, v, err == nil
}

// entry returns the name of the entry of a table at path that a segment of a variable stands for.
// That is a name which the table has in one of the sources: case does not matter, and "_" stands
// for "-" and "." too. Otherwise it is a new name, which most tables have in lower case.
func (m member) entry(segment string, path []string, sources []source) string {
	dashes := strings.NewReplacer("-", "_", ".", "_")
	for _, s := range slices.Backward(sources) {
		table := s.at(path)
		if _, ok := table[segment]; ok && segment != template {
			return segment
		}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if strings.EqualFold(dashes.Replace(name), segment) && name != template {
				return name
			}
		}
	}
	switch m.key {
	case "env": // a variable of a program
		return segment
	case "headers":
		return strings.ReplaceAll(segment, "_", "-")
	}
	return strings.ToLower(segment)
}

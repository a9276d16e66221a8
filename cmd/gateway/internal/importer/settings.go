package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/titanous/json5"

	"gateway/session"
)

// Limits of the settings of OpenClaw. The parser of JSON5 calls itself for each level of objects
// and lists. OpenClaw has the same maxIncludes.
const (
	maxJSON5    = 1 << 20 // bytes of a file
	maxNesting  = 10_000  // levels of objects and lists in a file
	maxIncludes = 10      // levels of files that include files
	maxSettings = 8 << 20 // bytes of all files, each counted as often as it is included
)

// parseJSON5 parses JSON5: JSON with comments, trailing commas, single quotes and keys without
// quotes.
func parseJSON5(text []byte) (v any, err error) {
	// Counting the brackets gives an upper limit of the nesting, before the parser recurses.
	if len(text) > maxJSON5 || bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) >
		maxNesting {
		return nil, errors.New("the file is too large")
	}
	err = json5.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), &v)
	return v, err
}

// objectOf returns a parsed value as an object.
func objectOf(v any) (object, error) {
	text, err := json.Marshal(v) // fails for NaN and Infinity
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// A settingsReader reads the settings of OpenClaw. An object with the key "$include" stands for the
// content of a file, or of a list of files, with the object's other keys merged into it.
type settingsReader struct {
	*Source
	size     int    // of all files so far, in bytes
	problems []Item // files that are left out
}

// file returns the settings in a file. chain is the files that include it, outermost first.
func (r *settingsReader) file(name string, chain []string) (any, error) {
	if slices.Contains(chain, name) {
		return nil, fmt.Errorf("the files include each other: %s",
			strings.Join(append(chain, name), " → "))
	}
	if len(chain) > maxIncludes {
		return nil, fmt.Errorf("more than %d levels of files include each other", maxIncludes)
	}
	text, err := r.read(name, maxJSON5)
	if err != nil {
		return nil, err
	}
	if r.size += len(text); r.size > maxSettings {
		return nil, fmt.Errorf("the settings have more than %d bytes", maxSettings)
	}
	v, err := parseJSON5(text)
	if err != nil {
		return nil, fmt.Errorf("it is not JSON5: %w", err)
	}
	return r.expand(v, append(slices.Clone(chain), name)), nil
}

// expand replaces the includes in v, which is a part of the last file of chain. It changes v.
func (r *settingsReader) expand(v any, chain []string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = r.expand(v[i], chain)
		}
	case map[string]any:
		names, has := v["$include"]
		delete(v, "$include")
		for key := range v {
			v[key] = r.expand(v[key], chain)
		}
		if !has {
			return v
		}
		included := r.include(names, chain)
		if _, object := included.(map[string]any); len(v) > 0 && !object {
			r.leaveOut(chain, names, errors.New("the object around it has other keys, so the file "+
				"must contain an object"))
			return v
		} else if len(v) > 0 {
			return merged(included, v)
		}
		return included
	}
	return v
}

// include returns the content of the file or the files that names contains. A file that can't be
// read counts as empty.
func (r *settingsReader) include(names any, chain []string) any {
	list, several := names.([]any)
	if !several {
		list = []any{names}
	}
	var all any = map[string]any{}
	for _, name := range list {
		v, err := any(nil), errors.New("want the name of a file, or a list of names")
		if s, ok := name.(string); ok {
			if s, err = r.local(s, path.Dir(chain[len(chain)-1])); err == nil {
				v, err = r.file(s, chain)
			}
		}
		switch {
		case err != nil:
			r.leaveOut(chain, name, err)
		case several:
			all = merged(all, v)
		default:
			all = v
		}
	}
	return all
}

// local returns the path in the home of a file that a file in dir includes. A path that leads out
// of the home is an error.
func (r *settingsReader) local(name, dir string) (string, error) {
	if filepath.IsAbs(name) {
		home, err := filepath.Abs(r.root.Name())
		if err == nil {
			name, err = filepath.Rel(home, name)
		}
		if err != nil {
			return "", err
		}
		dir = "."
	}
	if name = path.Join(dir, filepath.ToSlash(name)); !filepath.IsLocal(name) {
		return "", errors.New("the path leads out of OpenClaw's home")
	}
	return name, nil
}

// leaveOut reports an include that is not read.
func (r *settingsReader) leaveOut(chain []string, name any, err error) {
	r.problems = append(r.problems, Item{"setting", chain[len(chain)-1], "", Left,
		fmt.Sprintf("$include %q: %s; copy these settings by hand", fmt.Sprint(name), plain(err))})
}

// merged returns a with b added. It merges objects key by key and joins lists. For other values it
// returns b.
func merged(a, b any) any {
	switch b := b.(type) {
	case []any:
		if a, ok := a.([]any); ok {
			return slices.Concat(a, b)
		}
	case map[string]any:
		if a, ok := a.(map[string]any); ok {
			for key, v := range b {
				if old, ok := a[key]; ok {
					v = merged(old, v)
				}
				a[key] = v
			}
			return a
		}
	}
	return b
}

// readSettings reads the settings of OpenClaw and reports how to write them in config.toml. It
// shows no secrets. A home without settings can be imported, too.
func (s *Source) readSettings() {
	r := &settingsReader{Source: s}
	v, err := r.file(settingsFile, nil)
	if err == nil {
		s.config, err = objectOf(v)
	}
	s.settings = r.problems
	if err != nil {
		if s.isFile(settingsFile) {
			s.settings = append(s.settings, Item{"setting", settingsFile, "", Left, plain(err) +
				"; copy its settings by hand"})
		}
		return
	}
	at := func(keys ...string) (t object) {
		t = s.config
		for _, key := range keys {
			t, _ = t.table(key) // a setting of another type is not reported
		}
		return t
	}
	report := func(key, text string) {
		s.settings = append(s.settings, Item{"setting", key, "", Left, text})
	}
	defaults := at("agents", "defaults")
	model := cmp.Or(at("agents", "defaults", "model").text("primary"), defaults.text("model"))
	if model != "" {
		if _, id, ok := strings.Cut(model, "/"); ok { // OpenClaw writes PROVIDER/MODEL
			model = id
		}
		report("agents.defaults.model",
			fmt.Sprintf("here: [models.main] model = %q, with its key", model))
	}
	if zone := defaults.text("userTimezone"); zone != "" {
		report("agents.defaults.userTimezone", fmt.Sprintf("here: [gateway] timezone = %q", zone))
	}
	for _, name := range slices.Sorted(maps.Keys(at("channels"))) {
		if slices.Contains(platforms, name) && at("channels", name).flag("enabled", true) {
			report("channels."+name, "here: [channels."+name+"], with a token of its own or "+
				"gateway pair; people have to ask for access again")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(at("mcp", "servers"))) {
		report("mcp.servers."+name, "here: [mcp."+name+"]")
	}
}

// parseLines returns the results of parse for the non-blank lines of r. It leaves out the lines for
// which parse returns false. It ends after the first error, which is a [*session.LineError].
func parseLines[T any](
	r io.Reader, parse func(line []byte) (T, bool, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next := session.ReadLines(r, session.MaxLine); ; {
			var v T
			use := false
			line, n, err := next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				v, use, err = parse(line)
			}
			if err != nil {
				yield(v, &session.LineError{Line: n, Err: err})
				return
			}
			if use && !yield(v, nil) {
				return
			}
		}
	}
}

// An object is a JSON object whose keys have different spellings in different versions.
type object map[string]json.RawMessage

func parseObject(text []byte) (o object, err error) {
	err = json.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), &o)
	_, other := errors.AsType[*json.UnmarshalTypeError](err) // whose text names a type of Go
	if other || err == nil && o == nil {
		err = errors.New("want a JSON object")
	}
	return o, err
}

// raw returns the value of the first key that exists.
func (o object) raw(keys []string) json.RawMessage {
	for _, key := range keys {
		if v, ok := o[key]; ok && string(v) != "null" {
			return v
		}
	}
	return nil
}

// table returns the object of a key, or an empty object if there is none.
func (o object) table(keys ...string) (t object, err error) {
	v := o.raw(keys)
	if v == nil {
		return object{}, nil
	}
	if err := json.Unmarshal(v, &t); err != nil {
		return object{}, fmt.Errorf("%s: want an object", keys[0])
	}
	return t, nil
}

// text returns the string of a key, or its number in the form as written; "" if there is none.
func (o object) text(keys ...string) string {
	v := o.raw(keys)
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(v, &n) == nil {
		return n.String()
	}
	return ""
}

// number returns the integer of a key, or 0 if there is none. Floats hold integers up to 2^53
// exactly; greater numbers count as missing.
func (o object) number(keys ...string) int64 {
	var f float64
	if json.Unmarshal(o.raw(keys), &f) != nil || f < -1<<53 || f > 1<<53 {
		return 0
	}
	return int64(f)
}

// flag returns the boolean of a key, or otherwise if there is none.
func (o object) flag(key string, otherwise bool) bool {
	var b bool
	if json.Unmarshal(o[key], &b) != nil {
		return otherwise
	}
	return b
}

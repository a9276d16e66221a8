package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gateway/agent/suggest"
	"gateway/store/plaintext"
)

// A member describes the value of a key: a field of a struct, or an entry of a map. An entry has
// only a type.
type member struct {
	typ   reflect.Type
	tag   reflect.StructTag
	key   string
	index []int // of the field, for [reflect.Value.FieldByIndex]
}

var (
	root         = member{typ: reflect.TypeFor[Config]()}
	durationType = reflect.TypeFor[time.Duration]()
	levelType    = reflect.TypeFor[slog.Level]()
	secretType   = reflect.TypeFor[Secret]()
	secretsType  = reflect.TypeFor[[]Secret]()
	jsonType     = reflect.TypeFor[JSON]()
	errEntryName = errors.New(`a name has letters, digits, "_", "-" and "." and at most 64 of them`)
	entryName    = plaintext.Pattern(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
)

// table reports whether m is a table, which has keys of its own.
func (m member) table() bool {
	return m.typ.Kind() == reflect.Map || m.typ.Kind() == reflect.Struct && m.typ != secretType
}

// fieldsOf returns the fields that have a key, also those of embedded structs, of each struct in a
// [Config]. To find them takes much longer than to look them up.
var fieldsOf = sync.OnceValue(func() map[reflect.Type][]member {
	all := make(map[reflect.Type][]member)
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		switch m := (member{typ: t}); {
		case !m.table() || all[t] != nil:
			return
		case t.Kind() == reflect.Map:
			add(t.Elem())
			return
		}
		for _, f := range reflect.VisibleFields(t) {
			if key := f.Tag.Get("key"); !f.Anonymous && key != "" && key != "-" {
				all[t] = append(all[t], member{f.Type, f.Tag, key, f.Index})
			}
		}
		for _, m := range all[t] {
			add(m.typ)
		}
	}
	add(root.typ)
	return all
})

// fields returns the fields of a struct that have a key, none for other types.
func fields(t reflect.Type) []member { return fieldsOf()[t] }

// child returns the value of a key of a table. The result is not valid if there is none.
func child(v reflect.Value, key string) reflect.Value {
	if v.Kind() == reflect.Map {
		return v.MapIndex(reflect.ValueOf(key))
	}
	for _, f := range fields(v.Type()) {
		if f.key == key {
			return v.FieldByIndex(f.index)
		}
	}
	return reflect.Value{}
}

// children returns the values in a table: those of a struct in the order of its fields, and those
// of a map in the order of their names. It returns none if v is not a table.
func children(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		if v.Kind() == reflect.Map {
			names := v.MapKeys()
			slices.SortFunc(names, func(a, b reflect.Value) int {
				return cmp.Compare(a.String(), b.String())
			})
			for _, name := range names {
				if !yield(name.String(), v.MapIndex(name)) {
					return
				}
			}
		}
		for _, f := range fields(v.Type()) {
			if !yield(f.key, v.FieldByIndex(f.index)) {
				return
			}
		}
	}
}

// keys returns the keys of a struct.
func (m member) keys() []string {
	var keys []string
	for _, f := range fields(m.typ) {
		keys = append(keys, f.key)
	}
	return keys
}

// child returns the member for a key of a table.
func (m member) child(key string) (member, error) {
	if m.typ.Kind() == reflect.Map {
		isVariable := m.key == "env" && variableName().MatchString(key) // such as _JAVA_OPTIONS
		if len(key) > 64 || !entryName().MatchString(key) && !isVariable {
			return member{}, errEntryName
		}
		return member{typ: m.typ.Elem()}, nil
	}
	for _, f := range fields(m.typ) {
		if f.key == key {
			return f, nil
		}
	}
	keys := m.keys()
	hint := cmp.Or(suggest.Hint(key, keys), "; want one of "+strings.Join(keys, ", "))
	return member{}, errors.New("unknown key" + hint)
}

// check converts v, which comes from the TOML parser or from fromText, to the form from which m
// is decoded. The error says which form is expected.
func (m member) check(v any) (any, error) {
	switch m.typ {
	case durationType:
		return m.checkDuration(v)
	case levelType:
		var level slog.Level
		if s, ok := v.(string); !ok || level.UnmarshalText([]byte(s)) != nil {
			return nil, m.typeError("debug, info, warn or error", v)
		}
		return v, nil
	case secretType:
		if _, ok := v.(string); !ok {
			return nil, errors.New("want a string") // does not show v
		}
		return v, nil
	case secretsType:
		list, ok := v.([]any)
		if !ok || slices.ContainsFunc(list, func(e any) bool { _, ok := e.(string); return !ok }) {
			return nil, errors.New(`want a list such as ["env:A", "env:B"]`) // does not show v
		}
		return v, nil
	case jsonType:
		text, err := json.Marshal(v)
		if err != nil || v == nil {
			return nil, m.typeError("a value that JSON can express", v)
		}
		return string(text), nil
	}
	switch m.typ.Kind() {
	case reflect.Int, reflect.Float64:
		return m.checkNumber(v)
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return nil, m.typeError("true or false", v)
		}
		return v, nil
	case reflect.Slice:
		return m.checkList(v)
	default:
		return m.checkString(v)
	}
}

func (m member) checkDuration(v any) (any, error) {
	s, ok := v.(string)
	d, err := time.ParseDuration(s)
	if !ok || err != nil {
		return nil, m.typeError(`a duration such as "1m30s"`, v)
	}
	if least, err := time.ParseDuration(m.tag.Get("min")); err == nil && d < least {
		return nil, m.typeError("at least "+m.tag.Get("min"), v)
	}
	return v, nil
}

// checkNumber accepts an integer for both types of numbers, and checks the range in the tags.
func (m member) checkNumber(v any) (any, error) {
	wanted := "a whole number"
	var n float64
	i, ok := v.(int64)
	if ok {
		n = float64(i)
	} else if m.typ.Kind() == reflect.Float64 {
		wanted = "a number"
		n, ok = v.(float64)
	}
	if !ok || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, m.typeError(wanted, v)
	}
	if least, err := strconv.ParseFloat(m.tag.Get("min"), 64); err == nil && n < least {
		return nil, m.typeError("at least "+m.tag.Get("min"), v)
	}
	if most, err := strconv.ParseFloat(m.tag.Get("max"), 64); err == nil && n > most {
		return nil, m.typeError("at most "+m.tag.Get("max"), v)
	}
	if m.typ.Kind() == reflect.Float64 {
		return n, nil
	}
	return i, nil
}

// checkList accepts strings and integers, because many platforms use numeric ids.
func (m member) checkList(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, m.typeError(`a list such as ["a", "b"]`, v)
	}
	out := make([]any, len(list))
	for i, e := range list {
		switch e := e.(type) {
		case string:
			out[i] = e
		case int64:
			out[i] = strconv.FormatInt(e, 10)
		default:
			return nil, m.typeError("a list of strings", e)
		}
	}
	return out, nil
}

func (m member) checkString(v any) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, m.typeError("a string", v)
	}
	allowed := strings.Fields(m.tag.Get("allowed"))
	if len(allowed) > 0 && !slices.Contains(allowed, s) {
		return nil, errors.New(m.typeError(oneOf(allowed), v).Error() + suggest.Hint(s, allowed) +
			m.tag.Get("hint"))
	}
	return v, nil
}

// typeError returns an error that says which value was wanted instead of v.
func (member) typeError(wanted string, v any) error {
	got := fmt.Sprint(v)
	switch v := v.(type) {
	case string:
		got = strconv.Quote(v)
	case []any:
		got = "a list"
	case map[string]any:
		got = "a table"
	}
	return fmt.Errorf("want %s, not %s", wanted, got)
}

func oneOf(allowed []string) string {
	last := len(allowed) - 1
	return strings.Join(allowed[:last], ", ") + " or " + allowed[last]
}

// fromText converts the text of an environment variable to the value that a TOML parser would
// return. If the text does not fit the type of m, it returns the text, which check then rejects.
func (m member) fromText(s string) any {
	switch {
	case m.typ == durationType || m.typ == levelType:
	case m.typ == jsonType:
		if v := any(nil); json.Unmarshal([]byte(s), &v) == nil && !hasNull(v) {
			return v
		}
	case m.typ.Kind() == reflect.Int:
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i
		}
	case m.typ.Kind() == reflect.Float64:
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return f
		}
	case m.typ.Kind() == reflect.Bool:
		if b, err := strconv.ParseBool(s); err == nil {
			return b
		}
	// An empty text is an empty list.
	case m.typ.Kind() == reflect.Slice:
		list := []any{}
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list
	}
	return s
}

// hasNull reports whether the decoded JSON value v is or contains null, which TOML can't express.
func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(v, hasNull)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasNull)
	}
	return false
}

// Has reports whether a setting is not empty, zero or false. With "=VALUE" after the name, it
// reports whether the setting has that value. Examples are "web.search_key" and
// "exec.sandbox=none".
func (c *Config) Has(setting string) bool {
	key, want, exact := strings.Cut(setting, "=")
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(key, ".") {
		if v = child(v, name); !v.IsValid() {
			return false
		}
	}
	if exact {
		return fmt.Sprint(v.Interface()) == want
	}
	return !v.IsZero()
}

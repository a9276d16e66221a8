package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A function makes one value of several.
type function struct {
	args  int            // how many values it takes
	more  bool           // or more than that
	whole bool           // the first is an integer
	show  bool           // the last becomes a text, see [Show]
	stop  func(any) bool // an argument that is the result, so that no further ones are looked at
	call  func(args []any) (any, error)
}

// functions are those that templates may call, by name. What takes values one by one has as many.
var functions = map[string]function{
	"and": {args: 1, more: true, stop: func(v any) bool { return !truth(v) }, call: last},
	"or":  {args: 1, more: true, stop: truth, call: last},
	"not": {args: 1, call: func(args []any) (any, error) { return !truth(args[0]), nil }},

	"eq": {args: 2, more: true, call: func(args []any) (any, error) { return equal(args) }},
	"ne": {args: 2, call: func(args []any) (any, error) {
		ok, err := equal(args)
		return !ok, err
	}},
	"lt": {args: 2, call: func(args []any) (any, error) { return less(args) }},
	"le": {args: 2, call: func(args []any) (any, error) { return atMost(args) }},
	"gt": {args: 2, call: func(args []any) (any, error) {
		ok, err := atMost(args)
		return !ok, err
	}},
	"ge": {args: 2, call: func(args []any) (any, error) {
		ok, err := less(args)
		return !ok, err
	}},

	"len":   {args: 1, call: length},
	"index": {args: 1, more: true, call: index},
	"slice": {args: 1, more: true, call: slice},

	"print": {more: true, call: func(args []any) (any, error) { return fmt.Sprint(args...), nil }},
	"println": {more: true, call: func(args []any) (any, error) {
		return fmt.Sprintln(args...), nil
	}},
	"printf": {args: 1, more: true, call: printf},
	"html":   {more: true, call: escapeHTML},
	"urlquery": {more: true, call: func(args []any) (any, error) {
		return url.QueryEscape(joined(args)), nil
	}},

	"json":  {args: 1, call: func(args []any) (any, error) { return JSON(args[0]), nil }},
	"limit": {args: 2, whole: true, show: true, call: limit},
}

// last returns the last of the values.
func last(args []any) (any, error) { return args[len(args)-1], nil }

// truth reports whether v is something: neither nothing, nor false, nor zero, nor empty.
func truth(v any) bool {
	switch v := plain(v).(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	case float64:
		return v != 0
	case complex128:
		return v != 0
	}
	n, _ := integer(v)
	return n != 0
}

// integer returns v if it is an integer. Besides those of JSON there are the bytes of texts.
func integer(v any) (n int, ok bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case uint8:
		return int(v), true
	}
	return 0, false
}

// kind names what v is, for people.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case float64:
		return "a number with a fraction"
	case complex128:
		return "a complex number"
	}
	return "an integer"
}

// equal reports whether the first of the values is equal to one of the others.
func equal(args []any) (bool, error) {
	for _, other := range args[1:] {
		same, err := same(args[0], other)
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// same reports whether a and b are equal.
func same(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	k := kind(a)
	if k != kind(b) || k == kind([]any{}) || k == kind(map[string]any{}) {
		return false, incomparable(a, b)
	}
	if n, ok := integer(a); ok {
		m, _ := integer(b)
		return n == m, nil
	}
	return a == b, nil
}

func incomparable(a, b any) error {
	return fmt.Errorf("can't compare %s with %s", kind(a), kind(b))
}

// less reports whether the first value is less than the second.
func less(args []any) (bool, error) {
	switch a := args[0].(type) {
	case string:
		if b, ok := args[1].(string); ok {
			return a < b, nil
		}
	case float64:
		if b, ok := args[1].(float64); ok {
			return a < b, nil
		}
	}
	a, ok := integer(args[0])
	b, both := integer(args[1])
	if !ok || !both {
		return false, incomparable(args[0], args[1])
	}
	return a < b, nil
}

// atMost reports whether the first value is less than the second, or equal.
func atMost(args []any) (bool, error) {
	ok, err := less(args)
	if ok || err != nil {
		return ok, err
	}
	return equal(args)
}

// length returns how many bytes or elements there are.
func length(args []any) (any, error) {
	switch v := args[0].(type) {
	case string:
		return len(v), nil
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return nil, fmt.Errorf("%s has no length", kind(args[0]))
}

// index returns what is in the first value under the second, in that under the third, and so on.
func index(args []any) (any, error) {
	v := args[0]
	if v == nil {
		return nil, errors.New("there is nothing to look into")
	}
	for _, key := range args[1:] {
		var err error
		if v, err = element(v, key); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// element returns what v has under a key.
func element(v, key any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if name, ok := key.(string); ok {
			return v[name], nil
		}
		return nil, fmt.Errorf("the fields of an object have names: %s is none", kind(key))
	case []any:
		i, err := within(key, len(v)-1)
		if err != nil {
			return nil, err
		}
		return v[i], nil
	case string:
		i, err := within(key, len(v)-1)
		if err != nil {
			return nil, err
		}
		return v[i], nil
	}
	return nil, fmt.Errorf("%s has no elements", kind(v))
}

// within returns key if it is an integer from 0 to end.
func within(key any, end int) (int, error) {
	i, ok := integer(key)
	if !ok {
		return 0, fmt.Errorf("want an integer, and not %s", kind(key))
	}
	if i < 0 || i > end {
		return 0, fmt.Errorf("there is no place %d", i)
	}
	return i, nil
}

// slice returns a part of a text or a list: from the second value on, up to the third, with room
// for as much as the fourth says, as slices have it in Go.
func slice(args []any) (any, error) {
	text, isText := args[0].(string)
	list, isList := args[0].([]any)
	room := cap(list)
	bounds := []int{0, len(list), cap(list)}
	if isText {
		room = len(text)
		bounds = []int{0, len(text)}
	}
	switch {
	case !isText && !isList:
		return nil, fmt.Errorf("%s has no parts", kind(args[0]))
	case len(args)-1 > len(bounds):
		return nil, fmt.Errorf("want %d bounds at most", len(bounds))
	}
	for i, bound := range args[1:] {
		var err error
		if bounds[i], err = within(bound, room); err != nil {
			return nil, err
		}
	}
	if !slices.IsSorted(bounds) {
		return nil, errors.New("the bounds are not in order")
	}
	if isText {
		return text[bounds[0]:bounds[1]], nil
	}
	return list[bounds[0]:bounds[1]:bounds[2]], nil
}

// printf returns the values as the first of them says.
func printf(args []any) (any, error) {
	format, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("want a format, and not %s", kind(args[0]))
	}
	return fmt.Sprintf(format, args[1:]...), nil
}

// escapeHTML returns the values as text in HTML, where a NUL can't be.
func escapeHTML(args []any) (any, error) {
	return strings.ReplaceAll(html.EscapeString(joined(args)), "\x00", "\uFFFD"), nil
}

// joined returns the values as one text.
func joined(args []any) string {
	texts := slices.Clone(args)
	for i, v := range texts {
		if v == nil {
			texts[i] = "<no value>"
		}
	}
	return fmt.Sprint(texts...)
}

// limit returns the first characters of a text.
func limit(args []any) (any, error) {
	n, ok := args[0].(int)
	if !ok {
		return nil, fmt.Errorf("want how many characters, and not %s", kind(args[0]))
	}
	s := []rune(args[1].(string))
	if n < 0 || len(s) <= n {
		return string(s), nil
	}
	return string(s[:n]) + "…", nil
}

// Show returns a value as people read it: nothing as nothing, and objects and lists as JSON.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case map[string]any, []any:
		return JSON(v)
	}
	return fmt.Sprint(v)
}

// JSON returns a value as JSON.
func JSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v) // only complex numbers of a template have no JSON
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

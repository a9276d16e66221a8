package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"gateway/session"
)

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
	if err == nil && o == nil {
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

// texts returns the strings in the list of a key, if it is one.
func (o object) texts(key string) (list []string) {
	if json.Unmarshal(o[key], &list) != nil {
		return nil
	}
	return list
}

// number returns the integer of a key, or 0 if there is none.
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

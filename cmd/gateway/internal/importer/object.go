package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/titanous/json5"
)

// An object is a JSON object whose keys have different spellings in different versions.
type object map[string]json.RawMessage

func parseObject(text []byte) (o object, err error) {
	err = json.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), &o)
	if err == nil && o == nil {
		err = errors.New("want a JSON object")
	}
	return o, err
}

// maxJSON5 is the maximum size of a JSON5 file in bytes, and maxNesting that of its objects and
// lists. The parser of JSON5 calls itself for each level.
const (
	maxJSON5   = 1 << 20
	maxNesting = 10_000
)

// parseJSON5 parses JSON5: JSON with comments, trailing commas, single quotes and keys without
// quotes.
func parseJSON5(text []byte) (object, error) {
	if len(text) > maxJSON5 || bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) >
		maxNesting {
		return nil, errors.New("it is too large")
	}
	var v map[string]any
	if err := json5.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), &v); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(v) // fails for NaN and Infinity
	if err != nil {
		return nil, err
	}
	return parseObject(plain)
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

package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Has reports whether a setting is not empty, zero or false. With "=VALUE" after the name, it
// reports whether the setting has that value. Examples are "web.search_key" and
// "exec.sandbox=none".
func (c *Config) Has(setting string) bool {
	key, want, exact := strings.Cut(setting, "=")
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(key, ".") {
		switch v.Kind() {
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
		case reflect.Struct:
			v = field(v, name)
		default:
			return false
		}
		if !v.IsValid() {
			return false
		}
	}
	if exact {
		return fmt.Sprint(v.Interface()) == want
	}
	return !v.IsZero()
}

// field returns the field of a struct for a key, or the zero Value.
func field(v reflect.Value, key string) reflect.Value {
	for _, f := range fields(v.Type()) {
		if f.Tag.Get("koanf") == key {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

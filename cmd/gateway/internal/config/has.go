package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Has reports whether a setting has a value that is neither empty nor zero nor false, or, with "="
// and a value behind its name, whether it has that. Settings are named as in the configuration,
// such as "web.search_key" or "exec.sandbox=none".
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

// field returns the field of a struct that has a key; the zero Value if there is none.
func field(v reflect.Value, key string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("koanf") == key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

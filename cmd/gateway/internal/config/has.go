package config

import (
	"reflect"
	"strings"
)

// Has reports whether a setting, named as in the configuration, such as "web.search_key", has a
// value that is neither empty nor zero nor false.
func (c *Config) Has(key string) bool {
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

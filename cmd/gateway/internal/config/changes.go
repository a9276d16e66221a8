package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Merge returns a copy of old with the live settings of new. It is the configuration of a gateway
// that started with old and has reloaded new. Merge does not change old or new.
func Merge(old, new *Config) *Config {
	v := reflect.New(reflect.TypeFor[Config]()).Elem()
	v.Set(reflect.ValueOf(old).Elem())
	mergeTable(v, reflect.ValueOf(new).Elem())
	c := v.Addr().Interface().(*Config)
	c.FileExists, c.content, c.Agent.Undecided = new.FileExists, new.content, new.Agent.Undecided
	return c
}

// HasContent reports whether the configuration file exists and is not empty.
func (c *Config) HasContent() bool { return c.content }

// mergeTable sets the live fields of a struct to their values in from.
func mergeTable(to, from reflect.Value) {
	for _, f := range fields(from.Type()) {
		target, field := to.FieldByIndex(f.index), from.FieldByIndex(f.index)
		switch {
		case f.tag.Get("live") == "yes":
			target.Set(field)
		case f.typ.Kind() == reflect.Struct:
			mergeTable(target, field)
		case f.typ.Kind() == reflect.Map && f.typ.Elem().Kind() == reflect.Struct:
			target.Set(mergeEntries(target, field))
		}
	}
}

// mergeEntries returns the entries of old. Entries that are also in new get its live fields.
func mergeEntries(old, new reflect.Value) reflect.Value {
	if old.IsNil() {
		return old
	}
	merged := reflect.MakeMapWithSize(old.Type(), old.Len())
	for it := old.MapRange(); it.Next(); {
		entry := reflect.New(old.Type().Elem()).Elem()
		entry.Set(it.Value())
		if other := new.MapIndex(it.Key()); other.IsValid() {
			mergeTable(entry, other)
		}
		merged.SetMapIndex(it.Key(), entry)
	}
	return merged
}

// Changed returns the sorted keys whose values differ, such as "agent.model". If only one
// configuration has a table, the result contains the name of the table.
func Changed(a, b *Config) []string {
	keys := changed(nil, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), nil)
	slices.Sort(keys)
	return keys
}

// changed appends to keys the differing keys below path. For a table that only a or b has, it
// appends the name of the table and none of its keys.
func changed(keys []string, a, b reflect.Value, path []string) []string {
	path = slices.Clip(path)
	if !(member{typ: a.Type()}).table() {
		if !equal(a, b) {
			keys = append(keys, strings.Join(path, "."))
		}
		return keys
	}
	before, after := maps.Collect(children(a)), maps.Collect(children(b))
	all := maps.Clone(before)
	maps.Copy(all, after)
	for name := range all {
		at := append(path, name)
		if x, y := before[name], after[name]; x.IsValid() && y.IsValid() {
			keys = changed(keys, x, y, at)
		} else {
			keys = append(keys, strings.Join(at, "."))
		}
	}
	return keys
}

// equal reports whether two values of a key are equal.
func equal(a, b reflect.Value) bool {
	if s, ok := a.Interface().(Secret); ok {
		return s.Reveal() == b.Interface().(Secret).Reveal()
	}
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Share returns c as JSON for other processes that use the same home. It omits credentials, and
// URLs and request fields that may contain one.
func (c *Config) Share() []byte {
	shared := *c
	shared.MCP, shared.Models, shared.Channels = maps.Clone(c.MCP), maps.Clone(c.Models),
		maps.Clone(c.Channels)
	for name, s := range shared.MCP {
		s.URL = "" // may contain tokens
		shared.MCP[name] = s
	}
	for name, m := range shared.Models {
		m.BaseURL, m.Body = withoutUser(m.BaseURL), nil
		shared.Models[name] = m
	}
	for name, ch := range shared.Channels {
		ch.APIURL, ch.WebhookURL = withoutUser(ch.APIURL), withoutUser(ch.WebhookURL)
		shared.Channels[name] = ch
	}
	shared.Transcription.BaseURL = withoutUser(c.Transcription.BaseURL)
	shared.Media.Speech.BaseURL = withoutUser(c.Media.Speech.BaseURL)
	shared.Media.Images.BaseURL = withoutUser(c.Media.Images.BaseURL)
	shared.Web.SearchURL = withoutUser(c.Web.SearchURL)
	text, err := json.Marshal(shared)
	if err != nil {
		panic("config: share: " + err.Error()) // can't happen: all fields can be encoded
	}
	return text
}

// withoutUser returns a URL, or "" if it contains a user or a password.
func withoutUser(address string) string {
	if u, err := url.Parse(address); err != nil || u.User != nil {
		return ""
	}
	return address
}

// Shared returns the configuration that another process wrote with [Config.Share]. Its secrets
// are empty.
func Shared(text []byte) (*Config, error) {
	var c Config
	err := json.Unmarshal(text, &c)
	if err == nil {
		c.Gateway.Location, err = time.LoadLocation(c.Gateway.Timezone)
	}
	if err != nil {
		return nil, fmt.Errorf("config: shared: %w", err)
	}
	return &c, nil
}

// CopyMistakes copies the mistakes of read into c. c is the configuration of a running gateway,
// and read is the one that this process has read.
func (c *Config) CopyMistakes(read *Config) { c.mistakes = read.mistakes }

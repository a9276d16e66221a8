package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const referenceFile = "../../../../docs/configuration.md"

// referenceHead has the text above the tables, which people write.
const referenceHead = "testdata/configuration.md"

// TestReference checks that docs/configuration.md is what the program and the example say.
func TestReference(t *testing.T) {
	head, err := os.ReadFile(referenceHead)
	if err != nil {
		t.Fatal(err)
	}
	want := string(head) + strings.Join(describe(t), "")
	if *update {
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(want)) {
		t.Errorf("docs/configuration.md is not what it should be; write it with -update")
	}
}

// describe returns the section of each table of the example.
func describe(t *testing.T) []string {
	plain, _ := readExample(t)
	d := describer{t: t, defaults: readDefaults()}
	// The text before the first table is about the file as a whole.
	_, plain, _ = strings.Cut(plain, "\n\n")
	for line := range strings.Lines(plain) {
		d.line(strings.TrimSuffix(line, "\n"))
	}
	d.endGroup()
	return append(d.sections, d.section.String())
}

// A describer turns the lines of the example into the sections of the reference.
type describer struct {
	t        *testing.T
	defaults source
	sections []string
	section  strings.Builder
	path     []string // path of the table
	table    member
	live     bool     // whether the whole table is live
	comment  []string // comment that is not written yet
	keys     []string // descriptions of the keys of the group
}

func (d *describer) line(s string) {
	if commentedKey.MatchString(s) {
		s = s[1:]
	}
	switch name, isTable := strings.CutPrefix(s, "["); {
	case isTable:
		d.begin(strings.Split(strings.TrimSuffix(name, "]"), "."))
	case strings.HasPrefix(s, "# "):
		if len(d.keys) > 0 {
			d.endGroup()
		}
		d.comment = append(d.comment, s[2:])
	case s != "":
		key, _, _ := strings.Cut(s, " = ")
		d.keys = append(d.keys, d.describeKey(key))
	}
}

// begin begins the section of a table, with the comment above the table.
func (d *describer) begin(path []string) {
	if len(d.keys) > 0 {
		d.endGroup()
	}
	if d.section.Len() > 0 {
		d.sections = append(d.sections, d.section.String())
		d.section.Reset()
	}
	d.table, d.live = root, false
	for i, name := range path {
		if d.table.typ.Kind() == reflect.Map {
			path[i] = template
		}
		next, err := d.table.child(name)
		if err != nil {
			d.t.Fatalf("the example has a table %q: %v", path, err)
		}
		d.table = next
		d.live = d.live || next.tag.Get("live") == "yes"
	}
	d.path = path
	fmt.Fprintf(&d.section, "## `[%s]`\n\n", strings.Join(path, "."))
	if len(d.comment) > 0 {
		d.section.WriteString(strings.Join(d.comment, "\n") + "\n\n")
		d.comment = nil
	}
}

// endGroup writes the keys of a group and the comment about them.
func (d *describer) endGroup() {
	d.section.WriteString(strings.Join(d.keys, "\n") + "\n")
	if len(d.comment) > 0 {
		d.section.WriteString("  " + strings.Join(d.comment, "\n  ") + "\n\n")
	}
	d.keys, d.comment = nil, nil
}

// describeKey returns all facts about a key except its purpose.
func (d *describer) describeKey(key string) string {
	m, err := d.table.child(key)
	if err != nil {
		d.t.Fatalf("the example has a key %s in %q: %v", key, d.path, err)
	}
	facts := []string{kind(m)}
	if d.table.typ.Kind() == reflect.Map {
		key = template // a variable would lose the capitals of its name
	} else {
		path := append(slices.Clip(d.path), key)
		if v, ok := d.defaultOf(path); ok {
			facts = append(facts, "default `"+v+"`")
		}
		variable := strings.ToUpper(variablePrefix + strings.Join(path, "__"))
		facts = append(facts, "`"+variable+"`")
	}
	if d.live || m.tag.Get("live") == "yes" {
		facts = append(facts, "live")
	}
	return fmt.Sprintf("- **`%s`**: %s\n", key, strings.Join(facts, "; "))
}

// defaultOf returns the default value of a key, as it is written in the file.
func (d *describer) defaultOf(path []string) (string, bool) {
	table := map[string]any(d.defaults)
	for _, name := range path[:len(path)-1] {
		table, _ = table[name].(map[string]any)
	}
	v, ok := table[path[len(path)-1]]
	if list, isList := v.([]any); isList && len(list) == 0 {
		return "[]", ok
	}
	return FormatTOML(v), ok
}

// kind returns a description of the values that a key accepts.
func kind(m member) string {
	tag := m.tag.Get
	s := map[reflect.Kind]string{reflect.Int: "whole number", reflect.Float64: "number",
		reflect.Bool: "`true` or `false`", reflect.Slice: "list", reflect.String: "text"}[m.typ.Kind()]
	switch {
	case m.typ == durationType:
		s = "duration"
	case m.typ == levelType:
		s = "`debug`, `info`, `warn` or `error`"
	case m.typ == secretType:
		s = "secret"
	case m.typ == jsonType:
		s = "any value"
	case tag("allowed") != "":
		s = oneOf(strings.Fields("`" + strings.ReplaceAll(tag("allowed"), " ", "` `") + "`"))
	}
	if tag("min") != "" {
		s += ", at least " + tag("min")
	}
	if tag("max") != "" {
		s += ", at most " + tag("max")
	}
	return s
}

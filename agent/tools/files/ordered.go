package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// An object is one of JSON that keeps its order and what it does not know.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads a JSON object.
func parseObject(raw []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("want a JSON object")
	}
	var o object
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		o = append(o, member{name.(string), value}) // only strings stand there
	}
	_, err := d.Token()
	return o, err
}

func (o object) value(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// text returns a member that is a string or a list of lines.
func (o object) text(name string) string {
	raw := o.value(name)
	var s string
	var lines []string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if json.Unmarshal(raw, &lines) == nil {
		return strings.Join(lines, "")
	}
	return "" // something else, which nobody can read
}

func (o *object) set(name string, value any) {
	raw := marshal(value)
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = raw
			return
		}
	}
	*o = append(*o, member{name, raw})
}

func (o *object) remove(name string) {
	*o = slices.DeleteFunc(*o, func(m member) bool { return m.name == name })
}

func (o object) marshal() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(marshal(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// marshal returns v as JSON, with the signs of HTML as they are.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("files: " + err.Error()) // strings, and what was read as JSON, always can
	}
	return bytes.TrimSpace(b.Bytes())
}

// likeJSON returns JSON indented as old is.
func likeJSON(raw []byte, old string) (string, error) {
	var b bytes.Buffer
	first, rest, many := strings.Cut(old, "\n")
	if !many || strings.TrimSpace(first) != "{" {
		err := json.Compact(&b, raw)
		return b.String() + trailing(old), err
	}
	indent := rest[:len(rest)-len(strings.TrimLeft(rest, " \t"))]
	err := json.Indent(&b, raw, "", indent)
	return b.String() + trailing(old), err
}

// trailing returns the line break at the end of a text, if it has one.
func trailing(text string) string {
	if strings.HasSuffix(text, "\n") {
		return "\n"
	}
	return ""
}

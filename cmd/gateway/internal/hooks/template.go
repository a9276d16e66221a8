package hooks

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gateway/store/plainjson"
)

// A Template is a text with placeholders for values of the posted data:
//
//	{{ issue.title }}             a field of a field
//	{{ alerts.0.labels.name }}    a field of the first element of a list
//	{{ . }}                       all data
//	{{ issue.title | "none" }}    with a default for a missing, null or empty value
//
// A missing value without a default becomes "". A list or an object becomes JSON. A Template is
// safe for concurrent use.
type Template struct {
	literals []string // one more than placeholders
	values   []placeholder
}

type placeholder struct {
	path     []string // empty: all data
	fallback string
}

var (
	gap = regexp.MustCompile(`\{\{(.*?)\}\}`)
	// A name contains no spaces and no other syntax of Go templates.
	placeholderText = regexp.MustCompile(`^\s*\.?([^\s.|"{}()$]+(?:\.[^\s.|"{}()$]+)*)?\s*` +
		`(?:\|\s*("(?:[^"\\]|\\.)*"))?\s*$`)
)

// ParseTemplate parses a template. Its errors name the invalid placeholder.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{}
	end := 0
	for _, at := range gap.FindAllStringSubmatchIndex(text, -1) {
		inner := text[at[2]:at[3]]
		m := placeholderText.FindStringSubmatch(inner)
		if m == nil || strings.TrimSpace(inner) == "" || m[1] == "" && !strings.Contains(inner, ".") {
			return nil, fmt.Errorf(`hooks: line %d: %q is not a placeholder: write {{ PATH }} or `+
				`{{ PATH | "DEFAULT" }}, as in {{ issue.title }}`,
				1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]])
		}
		p := placeholder{}
		if m[1] != "" {
			p.path = strings.Split(m[1], ".")
		}
		if m[2] != "" {
			var err error
			if p.fallback, err = strconv.Unquote(m[2]); err != nil {
				return nil, fmt.Errorf("hooks: line %d: the default %s is not a quoted text",
					1+strings.Count(text[:at[0]], "\n"), m[2])
			}
		}
		t.literals = append(t.literals, text[end:at[0]])
		t.values = append(t.values, p)
		end = at[1]
	}
	rest := text[end:]
	if i := strings.Index(rest, "{{"); i >= 0 {
		return nil, fmt.Errorf("hooks: line %d: a placeholder begins with {{ and does not end with }}",
			1+strings.Count(text[:end+i], "\n"))
	}
	t.literals = append(t.literals, rest)
	return t, nil
}

// fill replaces the placeholders with values of data. It returns errLong if the text is longer
// than limit bytes.
func (t *Template) fill(data any, limit int) (string, error) {
	var b strings.Builder
	for i, literal := range t.literals {
		b.WriteString(literal)
		if i < len(t.values) {
			b.WriteString(t.values[i].of(data))
		}
		if b.Len() > limit {
			return "", errLong
		}
	}
	return b.String(), nil
}

func (p placeholder) of(v any) string {
	for _, name := range p.path {
		switch parent := v.(type) {
		case map[string]any:
			v = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return p.fallback
			}
			v = parent[i]
		default:
			return p.fallback
		}
	}
	if text := show(v); text != "" {
		return text
	}
	return p.fallback
}

// show returns a string unchanged, "" for null, and any other value as JSON.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return plainjson.Text(v)
}

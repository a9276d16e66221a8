package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gateway/store/plainjson"
)

// maxText is the maximum length of a message in bytes.
const maxText = 64 << 10

// text returns the message for a body, or "" if the template gives an empty text.
func (h Hook) text(contentType string, body []byte) (string, error) {
	data, plain, err := decode(contentType, body)
	if err != nil {
		return "", err
	}
	if h.Template == nil {
		if strings.TrimSpace(plain) == "" {
			return "", refused("the post is empty")
		}
		if len(plain) > maxText {
			return "", &refusal{http.StatusRequestEntityTooLarge, Refused,
				"the post is too long for a message: the hook needs a template", 0}
		}
		return plain, nil
	}
	text, err := h.Template.fill(data, maxText)
	if err != nil {
		return "", &refusal{http.StatusUnprocessableEntity, Refused,
			"the hook's template can't be filled with it: " + err.Error(), 0}
	}
	return strings.TrimSpace(text), nil
}

// errLong means that the text of a template is too long.
var errLong = errors.New("the message becomes too long")

// decode decodes a body into data for a template and text for a message.
func decode(contentType string, body []byte) (data any, text string, err error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = ""
	}
	if kind == "multipart/form-data" {
		fields, err := parts(body, params["boundary"])
		if err != nil {
			return nil, "", refused("want a form in parts, with UTF-8")
		}
		if len(fields) == 0 {
			return fields, "", nil
		}
		return fields, plainjson.Text(fields), nil
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // .NET may write this mark first
	// Many programs leave out the hyphen of UTF-8. ASCII is a part of it.
	known := []string{"", "utf-8", "utf8", "us-ascii"}
	if !utf8.Valid(body) || !slices.Contains(known, strings.ToLower(params["charset"])) {
		return nil, "", &refusal{http.StatusUnsupportedMediaType, Refused, "want text in UTF-8", 0}
	}
	const form = "application/x-www-form-urlencoded"
	if kind == form && !isForm(body) {
		kind = ""
		if json.Valid(body) {
			kind = "application/json"
		}
	}
	switch {
	case isJSON(kind):
		if data, err = parseJSON(body); err != nil {
			return nil, "", refused("want JSON: " + err.Error())
		}
		var spaceless bytes.Buffer
		_ = json.Compact(&spaceless, body) // can't fail, since the JSON is valid
		return data, spaceless.String(), nil
	case kind == form:
		values, err := url.ParseQuery(string(body))
		if err != nil {
			break // it is text, such as "load=95%"
		}
		if !utf8.ValidString(joined(values)) {
			return nil, "", refused("want a form in UTF-8")
		}
		fields := make(map[string]any, len(values))
		for name, list := range values {
			fields[name] = list[0]
		}
		return fields, plainjson.Text(fields), nil
	}
	// JavaScript's fetch calls JSON a plain text unless its caller says otherwise.
	if start := bytes.TrimSpace(body); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		if data, err := parseJSON(body); err == nil {
			return data, string(body), nil
		}
	}
	return string(body), string(body), nil
}

// isJSON reports whether a content type is that of JSON.
func isJSON(kind string) bool {
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// parts returns the fields of a form in parts, which programs post that may add files. A part of
// JSON becomes its value. A file becomes its name, because no message shows its content.
func parts(body []byte, boundary string) (map[string]any, error) {
	fields := make(map[string]any)
	for r := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return fields, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(part) // no longer than the body
		if err != nil {
			return nil, err
		}
		kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")) // "": a text
		var value any = string(content)
		if v, err := parseJSON(content); isJSON(kind) && utf8.Valid(content) && err == nil {
			value = v
		} else if part.FileName() != "" {
			value = part.FileName()
		}
		text, isText := value.(string)
		if isText && !utf8.ValidString(text) || !utf8.ValidString(part.FormName()) {
			return nil, errors.New("not UTF-8")
		}
		if _, known := fields[part.FormName()]; !known {
			fields[part.FormName()] = value
		}
	}
}

// isForm reports whether a body can be a form. curl and other programs say so of each body, also of
// JSON and of text. A form begins with a name, which has no spaces, braces and quotation marks.
func isForm(body []byte) bool {
	name, _, found := bytes.Cut(body, []byte("="))
	return found && len(name) > 0 && !bytes.ContainsAny(name, " \t\r\n{}\"")
}

// joined returns all names and values of a form.
func joined(values url.Values) string {
	var b strings.Builder
	for name, list := range values {
		b.WriteString(name + strings.Join(list, ""))
	}
	return b.String()
}

// parseJSON parses one JSON value. Numbers keep their form.
func parseJSON(body []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the first value")
	}
	return v, nil
}

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

// A placeholder is the path to a value of the data, and the text that replaces a missing value.
type placeholder struct {
	path     []string // empty: all data
	fallback string
}

var (
	gap = regexp.MustCompile(`(?s)\{\{(.*?)\}\}`)
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

// of returns the text for v, the data. A number in the path is an index into a list, from 0. An
// index or a field that does not exist gives the fallback.
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

package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of what a server may ask for.
const (
	maxFields   = 20
	maxChoices  = 50
	maxNested   = 16 // objects and lists of a schema within others
	maxButtons  = 8
	maxLabel    = 40      // characters; buttons are short
	maxAsked    = 1_000   // characters of the server's message
	maxLink     = 2_000   // bytes
	maxInteger  = 1 << 53 // values are float64, which have no larger exact integers
	maxUnfit    = 5       // invalid answers in a row, after which the question is cancelled
	wordDefault = "default"
	wordSkip    = "skip"
	wordDecline = "decline"
	wordCancel  = "cancel"
)

// A request asks a person to fill in a form, or to open a link.
type request struct {
	ID      string          `json:"id,omitempty"`
	Message string          `json:"message"`
	Link    string          `json:"link,omitempty"`
	Schema  json.RawMessage `json:"schema,omitempty"` // of the form; newRequest has checked it
}

// newRequest returns the request of p. The server gets the text of an error.
func newRequest(id string, p *sdk.ElicitParams) (request, error) {
	if p == nil {
		return request{}, errors.New("it has no parameters")
	}
	r := request{ID: id, Message: oneLine(p.Message, maxAsked)}
	if p.Mode == "url" || p.Mode == "" && p.URL != "" {
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
			u.User != nil || len(p.URL) > maxLink || !isPlain(p.URL) {
			return r, errors.New("want a URL with http or https, without a user, in ASCII")
		}
		r.Link = u.String()
		return r, nil
	}
	if p.Mode != "" && p.Mode != "form" {
		return r, fmt.Errorf("the mode %q does not exist", oneLine(p.Mode, 80))
	}
	if p.RequestedSchema == nil {
		return r, nil
	}
	root, err := object(p.RequestedSchema)
	if err == nil {
		err = unfit(root, maxNested)
	}
	if err != nil {
		return r, err
	}
	if r.Schema, err = json.Marshal(root); err != nil {
		return r, err
	}
	_, err = r.fields()
	return r, err
}

// isPlain reports whether a link has only printable ASCII characters, which can't be mistaken for
// others, and none that could end a link or a code span in Markdown.
func isPlain(link string) bool {
	return !strings.ContainsFunc(link, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("`<>\"\\", c)
	})
}

// unfit returns an error if a schema has references, with which a validation might not end, or has
// schemas more than left deep in others: the time for decoding them grows with the depth.
func unfit(v any, left int) error {
	if left < 0 {
		return errors.New("the schema is too deep")
	}
	switch v := v.(type) {
	case map[string]any:
		for key, sub := range v {
			if strings.HasPrefix(key, "$") && strings.HasSuffix(strings.ToLower(key), "ref") {
				return errors.New("the schema has references")
			}
			if err := unfit(sub, left-1); err != nil {
				return err
			}
		}
	case []any:
		for _, sub := range v {
			if err := unfit(sub, left-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// A field is one value of a form.
type field struct {
	name     string
	required bool
	schema   *jsonschema.Schema
	values   []any    // to choose from; nil: any value that fits the schema
	labels   []string // of values
	preset   any      // default; nil: none
}

// fields returns the fields of r, the required ones first. It returns nil for a link, and if the
// person only has to agree. The order is fixed, because the number of a field is stored between two
// answers.
func (r request) fields() ([]*field, error) {
	if len(r.Schema) == 0 {
		return nil, nil
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(r.Schema, &s); err != nil {
		return nil, fmt.Errorf("its schema is not valid: %s", oneLine(err.Error(), 200))
	}
	if s.Type != "" && s.Type != "object" {
		return nil, errors.New("its schema is not that of an object")
	}
	if len(s.Properties) > maxFields {
		return nil, fmt.Errorf("it asks for more than %d values", maxFields)
	}
	var list []*field
	for name, p := range s.Properties {
		f, err := newField(name, p)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", oneLine(name, 80), err)
		}
		f.required = slices.Contains(s.Required, name)
		list = append(list, f)
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(list, func(a, b *field) int {
		return cmp.Or(rank[a.required]-rank[b.required], strings.Compare(a.name, b.name))
	})
	return list, nil
}

// newField returns the field for a property of a form. A person can answer a boolean, a number, a
// text, or a choice of texts. Other schemas are an error. A default that is not a valid value is
// ignored.
func newField(name string, p *jsonschema.Schema) (*field, error) {
	if p == nil {
		return nil, errors.New("it has no schema")
	}
	f := &field{name: name, schema: p}
	var err error
	switch p.Type {
	case "boolean":
		f.values, f.labels = []any{true, false}, []string{"Yes", "No"}
	case "number", "integer":
	case "string", "":
		err = f.choices(p)
	case "array":
		if p.Items == nil {
			return nil, errors.New("it has no values to choose from")
		}
		if err = f.choices(p.Items); err == nil && len(f.values) == 0 {
			err = errors.New("it has no values to choose from")
		}
	default:
		err = fmt.Errorf("values of the type %q can't be asked for", oneLine(p.Type, 80))
	}
	if err != nil {
		return nil, err
	}
	if len(p.Default) > 0 {
		var v any
		if json.Unmarshal(p.Default, &v) == nil && f.fits(v) {
			f.preset = v
		}
	}
	return f, nil
}

// choices sets the values to choose from. There are three forms of them: enum, enum with enumNames,
// and oneOf or anyOf with titles.
func (f *field) choices(p *jsonschema.Schema) error {
	f.values = slices.Clone(p.Enum)
	names, _ := p.Extra["enumNames"].([]any) // of the old form
	for i, v := range f.values {
		label := fmt.Sprint(v)
		if i < len(names) {
			label = fmt.Sprint(names[i])
		}
		f.labels = append(f.labels, label)
	}
	for _, one := range append(slices.Clone(p.OneOf), p.AnyOf...) {
		if one == nil || one.Const == nil {
			return errors.New("one of its values is missing")
		}
		f.values = append(f.values, *one.Const)
		f.labels = append(f.labels, cmp.Or(one.Title, fmt.Sprint(*one.Const)))
	}
	if len(f.values) > maxChoices {
		return fmt.Errorf("it has more than %d values to choose from", maxChoices)
	}
	for _, v := range f.values {
		if _, ok := v.(string); !ok {
			return errors.New("one of its values is not a string")
		}
	}
	f.labels = distinct(f.labels)
	return nil
}

// distinct returns a label for each title of a choice. No two labels are equal, because an answer
// contains only the label. If long titles begin alike, their labels show the end. No label is empty
// or a keyword.
func distinct(titles []string) (labels []string) {
	heads := make([]string, len(titles))
	count := make(map[string]int) // how many titles begin so
	for i, title := range titles {
		heads[i] = label(oneLine(title, maxLabel))
		count[heads[i]]++
	}
	for i, title := range titles {
		name := heads[i]
		if whole := []rune(oneLine(title, len(title))); count[name] > 1 && len(whole) > maxLabel {
			name = label("…" + string(whole[len(whole)-maxLabel+1:]))
		}
		unique := name
		for n := 2; slices.Contains(labels, unique); n++ {
			unique = fmt.Sprintf("%s (%d)", name, n)
		}
		labels = append(labels, unique)
	}
	return labels
}

// label returns text as the label of a choice. A keyword or an empty text gets quotation marks.
func label(text string) string {
	text = strings.ReplaceAll(text, "`", "'")
	switch strings.ToLower(text) {
	case "", wordDefault, wordSkip, wordDecline, wordCancel:
		return "“" + text + "”"
	}
	return text
}

// several reports whether several values may be chosen.
func (f *field) several() bool { return f.schema.Type == "array" }

// fits reports whether v is a value of f.
func (f *field) fits(v any) bool {
	p := f.schema
	// Only these keywords count. Choices and formats are checked below.
	limits := &jsonschema.Schema{Type: cmp.Or(p.Type, "string"),
		MinLength: p.MinLength, MaxLength: p.MaxLength, Pattern: p.Pattern,
		Minimum: p.Minimum, Maximum: p.Maximum,
		ExclusiveMinimum: p.ExclusiveMinimum, ExclusiveMaximum: p.ExclusiveMaximum,
		MultipleOf: p.MultipleOf, MinItems: p.MinItems, MaxItems: p.MaxItems}
	check, err := limits.Resolve(nil)
	if err != nil || check.Validate(v) != nil {
		return false
	}
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(one any) bool { return !slices.Contains(f.values, one) })
	case string:
		return f.values != nil && slices.Contains(f.values, any(v)) || f.values == nil && f.formed(v)
	}
	return true
}

// formed reports whether text has the format of f. Other formats are not checked.
func (f *field) formed(text string) (ok bool) {
	var err error
	switch f.schema.Format {
	case "email":
		var a *mail.Address
		a, err = mail.ParseAddress(text)
		return err == nil && a.Address == text
	case "uri":
		var u *url.URL
		u, err = url.Parse(text)
		return err == nil && u.Scheme != ""
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	return err == nil
}

// value returns the value that a person's words stand for. ok reports whether they are a valid
// value of f.
func (f *field) value(text string) (v any, ok bool) {
	switch {
	case f.several():
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			one, ok := f.chosen(part)
			if !ok {
				return nil, false
			}
			if !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
		v = list
	case f.values != nil:
		if v, ok = f.chosen(text); !ok {
			return nil, false
		}
	case f.schema.Type == "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > maxInteger || n < -maxInteger {
			return nil, false
		}
		v = float64(n)
	case f.schema.Type == "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n-n != 0 { // infinite, or no number
			return nil, false
		}
		v = n
	default:
		v = text
	}
	return v, f.fits(v)
}

// chosen returns the value that text names by its label, its own text or its number in the list.
// Labels and values may differ only in case, so an exact match counts more. The number is tried
// last, because it may also be a label or a value.
func (f *field) chosen(text string) (any, bool) {
	text = strings.TrimSpace(text)
	i := -1
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b }, strings.EqualFold,
	} {
		if i < 0 {
			i = slices.IndexFunc(f.labels, func(l string) bool { return same(l, text) })
		}
		if i < 0 {
			i = slices.IndexFunc(f.values, func(v any) bool { return same(fmt.Sprint(v), text) })
		}
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(text, ".")); i < 0 && err == nil {
		i = n - 1
	}
	if i < 0 || i >= len(f.values) {
		return nil, false
	}
	return f.values[i], true
}

// buttons reports whether the choices of f fit on buttons, together with one to decline.
func (f *field) buttons() bool {
	return !f.several() && f.values != nil && len(f.values) < maxButtons
}

// wants describes the valid values of f in sentences, or returns "" if buttons show them.
func (f *field) wants() string {
	var b strings.Builder
	p := f.schema
	switch {
	case f.values != nil && !f.buttons():
		b.WriteString("One of these")
		if f.several() {
			b.Reset()
			b.WriteString("Some of these, with commas between them")
			b.WriteString(rangeText(asFloat(p.MinItems), asFloat(p.MaxItems), ""))
		}
		for i, label := range f.labels {
			fmt.Fprintf(&b, "\n%d. %s", i+1, label)
		}
		b.WriteString("\n")
		return b.String()
	case f.values != nil:
		return ""
	case p.Type == "integer":
		b.WriteString("A whole number" + rangeText(p.Minimum, p.Maximum, ""))
	case p.Type == "number":
		b.WriteString("A number" + rangeText(p.Minimum, p.Maximum, ""))
	case p.Format == "email":
		b.WriteString("An e-mail address")
	case p.Format == "uri":
		b.WriteString("An address such as https://example.org")
	case p.Format == "date":
		b.WriteString("A date such as 2026-12-31")
	case p.Format == "date-time":
		b.WriteString("A time such as 2026-12-31T18:00:00Z")
	default:
		b.WriteString("A text" + rangeText(asFloat(p.MinLength), asFloat(p.MaxLength), " characters"))
	}
	if p.Pattern != "" {
		fmt.Fprintf(&b, ", in the form `%s`", strings.ReplaceAll(oneLine(p.Pattern, 100), "`", "'"))
	}
	return b.String() + "."
}

// asFloat converts a limit for rangeText; nil means that there is none.
func asFloat(n *int) *float64 {
	if n == nil {
		return nil
	}
	v := float64(*n)
	return &v
}

// rangeText returns the limits of a value as words, such as " from 1 to 5 characters".
func rangeText(least, most *float64, unit string) string {
	show := func(v *float64) string { return strconv.FormatFloat(*v, 'f', -1, 64) }
	switch {
	case least != nil && most != nil:
		return " from " + show(least) + " to " + show(most) + unit
	case least != nil:
		return " of at least " + show(least) + unit
	case most != nil:
		return " of at most " + show(most) + unit
	}
	return ""
}

// show returns a value of f as a person reads it.
func (f *field) show(v any) string {
	if list, ok := v.([]any); ok {
		words := make([]string, len(list))
		for i := range list {
			words[i] = f.show(list[i])
		}
		return strings.Join(words, ", ")
	}
	if i := slices.Index(f.values, v); i >= 0 {
		return f.labels[i]
	}
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strings.ReplaceAll(oneLine(fmt.Sprint(v), 200), "`", "'")
}

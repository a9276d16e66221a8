package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
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
	charset := params["charset"]
	if !utf8.Valid(body) || charset != "" && !strings.EqualFold(charset, "utf-8") &&
		!strings.EqualFold(charset, "us-ascii") {
		return nil, "", &refusal{http.StatusUnsupportedMediaType, Refused, "want text in UTF-8", 0}
	}
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		if data, err = parseJSON(body); err != nil {
			return nil, "", refused("want JSON: " + err.Error())
		}
		return data, compact(body), nil
	case kind == "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(body))
		if err != nil || !utf8.ValidString(joined(values)) {
			return nil, "", refused("want a form in UTF-8")
		}
		fields := make(map[string]any, len(values))
		for name, list := range values {
			fields[name] = list[0]
		}
		return fields, plainjson.Text(fields), nil
	}
	return string(body), string(body), nil
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

// compact removes the spaces from valid JSON.
func compact(body []byte) string {
	var b bytes.Buffer
	_ = json.Compact(&b, body) // can't fail
	return b.String()
}

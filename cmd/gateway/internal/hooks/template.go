package hooks

import (
	"fmt"

	"gateway/cmd/gateway/internal/hooks/template"
)

// ParseTemplate reads the template of a message. Its data is the JSON value that is posted, the
// fields of a form, or else the text. What is not there shows as nothing, and what is no text as
// JSON. Its language is that of text/template, with what package
// [gateway/cmd/gateway/internal/hooks/template] adds and leaves out.
func ParseTemplate(name, text string) (*template.Template, error) {
	t, err := template.Parse(name, text)
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	return t, nil
}

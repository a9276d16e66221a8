package demo

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"gateway/store/plaintext"
)

// request has the fields of a request that the model uses.
type request struct {
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		} `json:"function"`
	} `json:"tools"`
}

// A content is the text of a message and a description of its images.
type content struct {
	text   string
	images []string // such as "PNG, 12 KB"
}

// UnmarshalJSON implements [json.Unmarshaler]. A content is a string or a list of parts.
func (c *content) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &c.text); err == nil {
		return nil
	}
	var parts []struct {
		Text     string `json:"text"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		c.text += p.Text
		if p.ImageURL.URL != "" {
			c.images = append(c.images, describe(p.ImageURL.URL))
		}
	}
	return nil
}

// describe returns the type and size of the image in a data URL.
func describe(url string) string {
	kind, data, ok := strings.Cut(strings.TrimPrefix(url, "data:image/"), ";base64,")
	if !ok {
		return "on the web"
	}
	size := base64.StdEncoding.DecodedLen(len(data))
	return fmt.Sprintf("%s, %d KB", strings.ToUpper(kind), (size+1023)/1024)
}

// offers reports whether the model may call the tool. The gateway lists rarely used tools in the
// description of another tool, and accepts calls by their own names too.
func (r *request) offers(tool string) bool {
	for _, t := range r.Tools {
		if t.Function.Name == tool || strings.Contains(t.Function.Description, "\n- "+tool+": ") {
			return true
		}
	}
	return false
}

// answered reports whether the model has written any text yet.
func (r *request) answered() bool {
	for _, m := range r.Messages {
		if m.Role == "assistant" && strings.TrimSpace(m.Content.text) != "" {
			return true
		}
	}
	return false
}

// question returns the last message of the user.
func (r *request) question() content {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == "user" {
			return r.Messages[i].Content
		}
	}
	return content{}
}

// frame matches the lines around text from outside, which people need not see.
var frame = lazily(`(?m)^\[(?:text of .*, which is information and no instruction|` +
	`end of .*)\]\n?`)

// results returns the results of tools at the end of the request, or "".
func (r *request) results() string {
	var results []string
	for i := len(r.Messages) - 1; i >= 0 && r.Messages[i].Role == "tool"; i-- {
		text := frame().ReplaceAllString(r.Messages[i].Content.text, "")
		text = plaintext.Clip(strings.TrimSpace(text), maxResult)
		results = append([]string{cmp.Or(text, "(nothing)")}, results...)
	}
	return strings.Join(results, "\n\n")
}

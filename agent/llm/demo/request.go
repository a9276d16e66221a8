package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/store/plaintext"
)

// A request is what the model knows of a conversation.
type request llm.Request

// offers reports whether the model may call the tool. The gateway lists rarely used tools in the
// description of another tool, and accepts calls by their own names too.
func (r *request) offers(tool string) bool {
	return slices.ContainsFunc(r.Tools, func(t llm.ToolSpec) bool {
		return t.Name == tool || strings.Contains(t.Description, "\n- "+tool+": ")
	})
}

// answered reports whether the model has written any text yet.
func (r *request) answered() bool {
	return slices.ContainsFunc(r.Messages, func(m llm.Message) bool {
		return m.Role == llm.Assistant && strings.TrimSpace(m.Text) != ""
	})
}

// question returns the last message of the user.
func (r *request) question() llm.Message {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == llm.User {
			return m
		}
	}
	return llm.Message{}
}

// frame matches the lines around text from outside, which people need not see.
var frame = plaintext.Pattern(`(?m)^\[(?:text of .*, which is information and no instruction|` +
	`end of .*)\]\n?`)

// results returns the results of tools at the end of the request, or "".
func (r *request) results() string {
	var results []string
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != llm.ToolRole {
			break
		}
		text := plaintext.Clip(strings.TrimSpace(frame().ReplaceAllString(m.Text, "")), maxResult)
		results = append(results, cmp.Or(text, "(nothing)"))
	}
	slices.Reverse(results)
	return strings.Join(results, "\n\n")
}

// describe describes the images that have data by type and size, or returns "".
func describe(images []llm.Image) string {
	var list []string
	for _, im := range images {
		if size := len(im.Data); size > 0 {
			kind := strings.ToUpper(strings.TrimPrefix(im.Type, "image/"))
			list = append(list, fmt.Sprintf("%s, %d KB", kind, (size+1023)/1024))
		}
	}
	switch len(list) {
	case 0:
		return ""
	case 1:
		return "an image (" + list[0] + ")"
	}
	return fmt.Sprintf("%d images (%s)", len(list), strings.Join(list, "; "))
}

package prompt

import (
	"strings"

	"gateway/agent/llm"
)

// A Part is a part of a system prompt, with a label for people.
type Part struct{ Label, Text string }

// A Content says how much of a context window one kind of content uses.
type Content struct {
	Label string
	Bytes int
}

// Labels of the contents besides the system prompt.
const (
	contentTools    = "Tools"
	contentMessages = "Messages"
	contentResults  = "Results of tools"
	contentFiles    = "Files and pictures"
)

// Contents returns the contents of a request: the parts of its system prompt, the tools,
// and the conversation. It leaves out empty contents.
func Contents(system []Part, tools []llm.ToolSpec, conversation []llm.Message) (list []Content) {
	add := func(label string, bytes int) {
		if n := len(list); n > 0 && list[n-1].Label == label {
			list[n-1].Bytes += bytes
		} else if bytes > 0 {
			list = append(list, Content{label, bytes})
		}
	}
	for _, p := range system {
		add(p.Label, len(p.Text))
	}
	add(contentTools, ToolsSize(tools))
	var said, results, files int
	pictures := 0
	for _, m := range conversation {
		pictures += len(m.Images)
		m.Images = nil
		size := TextSize([]llm.Message{m})
		if m.Role == llm.ToolRole {
			results += size
			continue
		}
		inFiles := 0
		if m.Role == llm.User {
			inFiles = documentsSize(m.Text)
		}
		said, files = said+size-inFiles, files+inFiles
	}
	add(contentMessages, said)
	add(contentResults, results)
	add(contentFiles, files+min(pictures, MaxImages)*imageSize)
	return list
}

// documentsSize returns the number of bytes in a message that are texts of files, see
// [DocumentText].
func documentsSize(text string) (n int) {
	for {
		begin := strings.Index(text, documentBegin)
		if begin < 0 {
			return n
		}
		text = text[begin:]
		file, _, _ := strings.Cut(text[len(documentBegin):], documentSays)
		end := documentEnd + file + "]"
		size := strings.Index(text, end)
		if size < 0 {
			return n
		}
		n += size + len(end)
		text = text[size+len(end):]
	}
}

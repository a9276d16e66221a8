package demo

import (
	"encoding/json"
	"strings"

	"gateway/agent/llm"
	"gateway/store/plaintext"
)

// The beginnings of the gateway's own requests, for notes and for long-term memory.
const (
	notesPrompt = "You keep the long-term notes of an assistant."
	dreamPrompt = "You look after the long-term memory of an assistant."
)

// maxNote is how much of a message a note repeats, in bytes.
const maxNote = 300

// internalReply answers the gateway's own requests: the notes repeat what users wrote, and
// documents are never changed. It returns false for other requests.
func internalReply(r request) (reply, bool) {
	if len(r.Messages) == 0 || r.Messages[0].Role != llm.System {
		return reply{}, false
	}
	switch system := r.Messages[0].Text; {
	case strings.HasPrefix(system, notesPrompt):
		return reply{text: notes(r.question().Text)}, true
	case strings.HasPrefix(system, dreamPrompt):
		return reply{text: "[SKIP]"}, true
	}
	return reply{}, false
}

// notes returns the users' lines of a conversation.
func notes(conversation string) string {
	var b strings.Builder
	for line := range strings.Lines(conversation) {
		var entry struct{ Day, Who, Text string }
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Who != "user" {
			continue
		}
		text := envelope().ReplaceAllString(remembered().ReplaceAllString(entry.Text, ""), "")
		b.WriteString("- " + entry.Day + ": " + plaintext.Clip(plaintext.OneLine(text), maxNote) + "\n")
	}
	if b.Len() == 0 {
		return "(nothing)"
	}
	return b.String()
}

package background

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"gateway/agent/llm"
	"gateway/session"
)

// identifier is what must be kept to the letter: links, mail addresses, paths, and words with
// digits in them, such as codes, versions, times, amounts and numbers of several parts.
var identifier = regexp.MustCompile(`https?://[^\s<>"'\]})]+|` +
	`[\w.+-]+@[\w-]+(?:\.[\w-]+)+|` +
	`(?:~|\.{1,2})?/[\w@.+-]+(?:/[\w@.+-]+)+|` +
	`\b[\w-]*\d[\w-]*(?:[/.:,][\w-]*\d[\w-]*)*\b`)

// The bounds of what is added to notes.
const (
	maxLost       = 30
	maxIdentifier = 120 // bytes of one
	leastDigits   = 4   // of a mere number
)

// envelope is what the gateway writes before a person's message: its time is not news.
var envelope = regexp.MustCompile(`(?m)^(?:\d+\. )?\[[A-Z][a-z]+day \d{4}-\d\d-\d\d[^\]]*\]`)

// lost returns the identifiers of what people and the assistant have said that are not in notes.
func lost(notes string, entries []session.Entry) []string {
	var list []string
	for _, e := range entries {
		m := e.Message
		if m.Role != llm.User && m.Role != llm.Assistant {
			continue
		}
		for _, id := range identifier.FindAllString(envelope.ReplaceAllString(m.Text, ""), -1) {
			id = strings.TrimRight(id, ".,;:!?-_")
			if len(id) <= maxIdentifier && telling(id) && !strings.Contains(notes, id) &&
				!slices.Contains(list, id) {
				list = append(list, id)
			}
			if len(list) == maxLost {
				return list
			}
		}
	}
	return list
}

// telling reports whether id says something that another word would not.
func telling(id string) bool {
	digits := 0
	for _, r := range id {
		if unicode.IsDigit(r) {
			digits++
		}
	}
	switch {
	case strings.Trim(id, "0123456789-_/.:,") == "": // a number or a date
		return digits >= leastDigits
	case strings.ContainsAny(id, "/@"):
		return true
	}
	return digits > 0 && len(id) >= leastDigits
}

// quote returns s as a JSON string, with its signs as they are.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""` // strings can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

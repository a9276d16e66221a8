package background

import (
	"slices"
	"strings"
	"unicode"

	"gateway/agent/llm"
	"gateway/session"
	"gateway/store/plaintext"
)

// identifier matches the parts of text that notes must preserve literally: links, mail addresses,
// paths, and words with digits, such as codes, versions, times, amounts and numbers with several
// parts.
var identifier = plaintext.Pattern(`https?://[^\s<>"'\]})]+|` +
	`[\w.+-]+@[\w-]+(?:\.[\w-]+)+|` +
	`(?:~|\.{1,2})?/[\w@.+-]+(?:/[\w@.+-]+)+|` +
	`\b[\w-]*\d[\w-]*(?:[/.:,][\w-]*\d[\w-]*)*\b`)

// Limits of the identifiers that are added to notes.
const (
	maxLost       = 30
	maxIdentifier = 120 // bytes per identifier
	leastDigits   = 4   // minimum length of a plain number
)

// envelope matches the text that the gateway writes before a person's message. Its time is not
// worth noting.
var envelope = plaintext.Pattern(`(?m)^(?:\d+\. )?\[[A-Z][a-z]+day \d{4}-\d\d-\d\d[^\]]*\]`)

// lost returns the identifiers that people and the assistant have written but that notes lack.
func lost(notes string, entries []session.Entry) []string {
	var list []string
	for _, e := range entries {
		m := e.Message
		if m.Role != llm.User && m.Role != llm.Assistant {
			continue
		}
		for _, id := range identifier().FindAllString(envelope().ReplaceAllString(m.Text, ""), -1) {
			id = strings.TrimRight(id, ".,;:!?-_")
			if len(id) <= maxIdentifier && isSpecific(id) && !strings.Contains(notes, id) &&
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

// isSpecific reports whether id is specific enough to be worth preserving.
func isSpecific(id string) bool {
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

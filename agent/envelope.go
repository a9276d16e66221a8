package agent

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/bus"
)

// envelopeTime is the form of the time that each message of a person begins with.
const envelopeTime = "Monday 2006-01-02 15:04 -07:00"

// userMessages returns what the model sees of batch. Messages that were collected become one,
// numbered; so do the pieces of one that was sent in parts.
func (t *turn) userMessages(batch []bus.Received) []llm.Message {
	if len(batch) == 0 {
		return nil
	}
	t.d.mu.Lock()
	mode := t.d.mode(t.Session)
	t.d.mu.Unlock()
	if len(batch) > 1 && mode == Collect {
		var b strings.Builder
		for i, r := range batch {
			fmt.Fprintf(&b, "%d. %s\n", i+1, envelope(r.Message, t.d.opts.Location))
		}
		return []llm.Message{{Role: llm.User, Text: strings.TrimSuffix(b.String(), "\n")}}
	}
	var list []llm.Message
	for _, r := range batch {
		list = append(list, llm.Message{Role: llm.User, Text: envelope(r.Message, t.d.opts.Location)})
	}
	return list
}

// envelope returns the text of m with what the model must know of it: when it was sent, who
// wrote it where several people do, and what it quotes.
func envelope(m bus.InboundMessage, zone *time.Location) string {
	var b strings.Builder
	b.WriteString("[" + m.Time.In(zone).Format(envelopeTime) + "] ")
	if m.Group {
		b.WriteString(name(m.Sender.Name, m.Sender.ID) + ": ")
	}
	if m.Forwarded != "" {
		b.WriteString("[forwarded, written by " + name(m.Forwarded, "somebody") + "] ")
	}
	if q := m.ReplyTo; q != nil && q.Text != "" {
		author := "you"
		if !q.Ours {
			author = name(q.Sender, "somebody")
		}
		fmt.Fprintf(&b, "[in reply to %s: %q] ", author, clip(q.Text, maxQuote))
	}
	b.WriteString(envelopeLike.ReplaceAllString(m.Text, "($1)"))
	return b.String()
}

// envelopeLike is what could pass for the envelope of another message in the text of this one.
// It loses its brackets.
var envelopeLike = regexp.MustCompile(`\[\s*([A-Za-z]+day\s+\d{4}-\d\d-\d\d[^\]]*)\]`)

// maxQuote is how much of a quoted message is repeated, in bytes.
const maxQuote = 500

// name returns s in a form that cannot pass for a part of the envelope: a display name is
// its owner's choice.
func name(s, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '[' || r == ']' || r == ':':
			return ' '
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	s = clip(strings.Join(strings.Fields(s), " "), 64)
	if s == "" {
		return otherwise
	}
	return s
}

// clip returns the beginning of s, of at most n bytes, and never a part of a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
